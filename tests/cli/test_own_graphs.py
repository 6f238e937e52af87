r"""The commands on tables as people have them: names, tasks, gaps, and where answers are
written."""

import csv
import json
import random
import shlex
import shutil
import subprocess
import sys

import pytest
from commands import call
from installed import environment

from phgcn.cli import app

ALL_METRICS = {"f1_micro", "f1", "roc_auc", "accuracy"}
MLP = "--model mlp --set epochs=40 --set learning_rate=0.05 --set dropout=0"
QUICK = f"{MLP} --splits 1"


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


HEADER = ["house", "price", "area", "rooms", "city", "cheap", "extras"]


def houses(folder, count=60, seed=0, header=HEADER, **changes):
    """Houses whose price follows from area and city; some areas are not known."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        area, city = chance.uniform(20, 200), chance.choice(["Oslo", "Rome"])
        rooms = chance.randint(1, 6)
        price = 1000 * area + (50_000 if city == "Oslo" else 0)
        extras = [name for name, holds in (("lift", rooms > 3), ("pool", area > 100)) if holds]
        row = {
            "house": f"h{number}",
            "price": f"{price:.2f}",
            "area": "" if number % 10 == 3 else f"{area:.1f}",
            "rooms": rooms,
            "city": city,
            "cheap": "yes" if price < 130_000 else "no",
            "extras": ";".join(extras) or ";",
            "remark": f"remark {number}",
        }
        rows.append({**row, **changes})
    write(folder / "nodes.csv", [header, *([row[name] for name in header] for row in rows)])
    ends = [(chance.randrange(count), chance.randrange(count)) for _ in range(2 * count)]
    write(folder / "edges.csv", [["source", "target"], *([f"h{a}", f"h{b}"] for a, b in ends)])
    return folder


COLUMNS = "--id house --features area,rooms,city"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that predicts prices, its graph, and what was said."""
    folder = tmp_path_factory.mktemp("houses")
    graph = houses(folder / "houses")
    options = f"{COLUMNS} --label price {QUICK} --set scaling=standard --out"
    call("train", graph, options, folder / "run")
    return folder / "run"


@pytest.fixture
def predicted(run, tmp_path, said):
    """Predicts for a graph, and returns the table."""

    def predict(graph):
        code, _, err = said("predict", run, graph, "-o", tmp_path / "out.csv")
        assert code == 0, err
        return list(csv.DictReader((tmp_path / "out.csv").open()))

    return predict


# Tasks


@pytest.mark.parametrize(
    ("label", "task", "reason", "metrics", "first"),
    [
        ("price", "regression", "labels are numbers with decimals", {"mae", "rmse", "r2"}, "mae"),
        ("cheap", "classification", "labels are names", {"accuracy", "roc_auc", "f1"}, "accuracy"),
        ("extras", "multilabel", "are several of one node", ALL_METRICS, "f1_micro"),
    ],
)
def test_the_task_follows_from_the_labels_and_is_said(
    label, task, reason, metrics, first, tmp_path, answer, said
):
    graph, run = houses(tmp_path / "houses"), tmp_path / "run"
    options = (COLUMNS, "--label", label, QUICK, "--set scaling=standard --out", run)
    code, out, err = said("train", graph, *options)
    assert code == 0
    assert f"task {task} (" in err
    assert reason in err
    assert "6 missing values in 1 column" in err
    assert "columns left out" in err
    assert f"protocol paper, {first}" in out
    result = answer("evaluate", run)
    assert result["as_recorded"] and result["task"] == task and set(result["scores"]) == metrics
    scores = {name: spread["mean"] for name, spread in result["scores"].items()}
    assert scores.get("accuracy", 1) > 0.5
    assert scores.get("r2", 1) > 0.5
    assert scores.get("f1", 1) > 0.8
    code, out, _ = said("evaluate", run)
    assert code == 0 and all(name in out for name in metrics) and "as recorded" in out
    code, out, _ = said("predict", run, graph, "-o -")
    heading = out.splitlines()[0].split(",")
    assert heading[:2] == (["id", "prediction"] if task == "regression" else ["id", "label"])
    assert len(out.splitlines()) == 61


@pytest.mark.parametrize(
    ("change", "options", "line"),
    [
        ({"price": "7"}, "--label price", "all labels are the same class, which is predicted"),
        ({"price": "7"}, "--label price --task regression", "all labels are the same number"),
        (
            {},
            "--label city --features area --task regression",
            "city is 'Rome'; allowed: a finite number",
        ),
        ({}, "--label city", "column 'city' is the label, and no feature; allowed: area, rooms"),
        ({}, "--label price --metric accuracy", "metric is 'accuracy'; allowed: mae, rmse, r2"),
        ({}, "--label price --protocol balanced", "'balanced'; allowed for labels of regression"),
        ({}, "--label price --task guess", "task is 'guess'; allowed: classification, regression"),
        (
            {},
            "--label price --set class_weights=balanced",
            "class_weights is balanced; allowed for regression",
        ),
        ({}, "--label cheap --features area,remark", "'remark': the column holds 60 different"),
    ],
)
def test_what_cannot_be_learned_is_said_in_one_line(change, options, line, tmp_path, said):
    graph = houses(tmp_path / "houses", header=[*HEADER, "remark"], **change)
    code, out, err = said("train", graph, QUICK, COLUMNS, options, "--out", tmp_path / "run")
    assert code == 2 and out == "" and line in err.splitlines()[-1]


def test_class_weights_change_what_is_learned(tmp_path, answer):
    graph = houses(tmp_path / "houses")
    options = (COLUMNS, "--label cheap", QUICK)
    plain = answer("train", graph, *options, "--out", tmp_path / "plain")
    options = (*options, "--set class_weights=balanced --out", tmp_path / "weighed")
    weighed = answer("train", graph, *options)
    assert plain["val_loss"] != weighed["val_loss"]
    assert weighed["config"]["class_weights"] == "balanced"


# Features by name


def test_columns_in_another_order_give_the_same_answers(predicted, run, tmp_path):
    wanted = predicted(run.parent / "houses")
    order = ["remark", "city", "extras", "area", "house", "rooms"]
    assert predicted(houses(tmp_path / "turned", header=order)) == wanted


def test_a_missing_column_is_named(run, tmp_path, said):
    graph = houses(tmp_path / "new", header=["house", "area"])
    code, _, err = said("predict", run, graph, "-o", tmp_path / "out.csv")
    assert code == 2 and "columns 'rooms', 'city' are missing; found: house, area" in err
    assert not (tmp_path / "out.csv").exists()


def test_new_nodes_may_miss_numbers_and_have_new_categories(predicted, tmp_path, capsys):
    header = ["house", "area", "rooms", "city"]
    known = predicted(houses(tmp_path / "known", header=header))
    odd = houses(tmp_path / "odd", header=header, rooms="", city="Bern")
    values = [float(row["prediction"]) for row in predicted(odd)]
    assert len(values) == len(known) and all(abs(value) < 1e6 for value in values)
    assert len(set(values)) > 10, "areas are known still"


def test_a_reordered_table_is_still_the_runs_own_graph(run, tmp_path, answer):
    graph = houses(tmp_path / "turned", header=[*reversed(HEADER)])
    result = answer("evaluate", run, "--graph", graph)
    assert result["as_recorded"] is True


def test_a_file_of_arrays_is_matched_by_names_too(tmp_path, said):
    import numpy as np

    chance = np.random.default_rng(0)
    x = chance.normal(size=(40, 3)).astype(np.float32)
    arrays = {"edges": chance.integers(0, 40, (80, 2)), "node_labels": (x[:, 0] > 0).astype(int)}
    own = np.array(["a", "b", "c"])
    np.savez(tmp_path / "own.npz", node_features=x, feature_names=own, **arrays)
    names = np.array(["c", "extra", "a", "b"])
    moved = np.stack([x[:, 2], chance.normal(size=40), x[:, 0], x[:, 1]], axis=1)
    np.savez(tmp_path / "moved.npz", node_features=moved, feature_names=names, **arrays)
    np.savez(tmp_path / "less.npz", node_features=x[:, :2], feature_names=names[2:], **arrays)
    run = tmp_path / "run"
    assert said("train", tmp_path / "own.npz", QUICK, "--out", run)[0] == 0
    tables = [said("predict", run, tmp_path / name, "-o -")[1] for name in ("own.npz", "moved.npz")]
    assert tables[0] == tables[1] and tables[0].count("\n") == 41
    code, _, err = said("predict", run, tmp_path / "less.npz", "-o -")
    assert code == 2 and "features are missing that the run was trained on: c" in err


# Another graph, another device


def test_another_graph_is_scored_on_all_its_labelled_nodes(run, tmp_path, answer, said):
    result = answer("evaluate", run, "--graph", houses(tmp_path / "new", count=30, seed=5))
    assert result["as_recorded"] is None
    assert result["nodes"] == 30
    assert result["scores"]["r2"]["mean"] > 0.8
    code, out, _ = said("evaluate", run, "--graph", tmp_path / "new", "--device cpu")
    assert code == 0 and "on the 30 labelled nodes of new, which was not trained on" in out
    unlabelled = houses(tmp_path / "bare", header=["house", "area", "rooms", "city"])
    code, _, err = said("evaluate", run, "--graph", unlabelled)
    assert code == 2 and "column 'price' is missing" in err


def test_classes_of_another_graph_go_by_name(tmp_path, answer, said):
    graph, run = houses(tmp_path / "houses"), tmp_path / "run"
    assert said("train", graph, COLUMNS, "--label cheap", QUICK, "--out", run)[0] == 0
    cheap = houses(tmp_path / "only", count=20, seed=3, cheap="yes")
    only = answer("evaluate", run, "--graph", cheap)
    assert only["classes"] == ["no", "yes"]
    assert [row["nodes"] for row in only["per_class"]] == [0, 20]
    code, _, err = said("evaluate", run, "--graph", houses(tmp_path / "odd", cheap="perhaps"))
    assert code == 2 and "the run knows no class 'perhaps'; allowed: no, yes" in err


@pytest.mark.parametrize("command", ["evaluate RUN", "predict RUN GRAPH", "plot RUN"])
def test_every_command_takes_a_device(command, run, said):
    command = command.replace("RUN", str(run)).replace("GRAPH", str(run.parent / "houses"))
    code, _, err = said(command, "--device moon")
    assert code == 2 and "device is 'moon'; allowed: cpu" in err


# Splits, edges


def test_a_split_column_is_the_split(tmp_path, answer, said):
    graph = houses(tmp_path / "houses", header=HEADER)
    rows = list(csv.reader((graph / "nodes.csv").open()))
    parts = ["part", *(("train", "train", "val", "test")[number % 4] for number in range(60))]
    write(graph / "nodes.csv", [[*row, part] for row, part in zip(rows, parts, strict=True)])
    options = (COLUMNS, "--label price --split-column part", MLP)
    result = answer("train", graph, *options, "--out", tmp_path / "run")
    assert result["protocol"] == "official" and len(result["splits"]) == 1
    predicted = answer("evaluate", tmp_path / "run")
    assert predicted["as_recorded"]
    options = "--resume --label cheap --features area,rooms,city --out"
    code, _, err = said("train", graph, options, tmp_path / "run")
    assert code == 2 and "was begun with label 'price', not 'cheap'" in err


def test_edge_weights_and_features_reach_the_model(tmp_path, answer, said):
    graph = houses(tmp_path / "houses")
    rows = list(csv.reader((graph / "edges.csv").open()))[1:]
    kinds = [("road", "rail")[number % 2] for number in range(len(rows))]
    edges = [["source", "target", "weight", "kind"]]
    edges += [[*row, 1 + number % 5, kinds[number]] for number, row in enumerate(rows)]
    write(graph / "edges.csv", edges)
    options = (COLUMNS, "--label price --edge-features kind --splits 1 --set epochs=3")
    losses = {}
    more_options = {"no weights": "--edge-weight none", "none": "--edge-features none"}
    for name, more in {"both": "", **more_options}.items():
        result = answer("train", graph, *options, more, "--model gat-eda --out", tmp_path / name)
        losses[name] = result["val_loss"]["mean"]
    assert len(set(losses.values())) == 3
    assert answer("evaluate", tmp_path / "both")["as_recorded"]
    code, _, err = said("train", graph, *options, "--model gcn --out", tmp_path / "gcn")
    assert code == 0
    assert "gcn does not read edge features with these settings" in err
    assert "edge weights, 2 edge features" in err
    for without, line in ((3, "column 'kind' is missing"), (2, "edges have 0 weights; allowed: 1")):
        write(graph / "edges.csv", [[*row[:without], *row[without + 1 :]] for row in edges])
        code, _, err = said("predict", tmp_path / "both", graph, "-o -")
        assert code == 2 and line in err
    write(graph / "edges.csv", edges)
    # weights that it does not know
    assert said("predict", tmp_path / "no weights", graph, "-o -")[0] == 0


def test_columns_of_a_graph_without_any_are_refused(tmp_path, said):
    import numpy as np

    own, labels = tmp_path / "own.npz", np.arange(9) % 2
    edges = np.array([[0, 1]])
    np.savez(own, node_features=np.ones((9, 1)), edges=edges, node_labels=labels)
    code, _, err = said("train", own, "--split-column part --out", tmp_path / "run")
    assert code == 2
    line = (
        "--split-column is given for own, which has no columns; allowed: for CSV and Parquet files"
    )
    assert line in err


def test_the_command_that_a_search_proposes_reads_the_graph_as_the_search_did(tmp_path, said):
    pytest.importorskip("optuna")
    graph, quick = houses(tmp_path / "my houses"), "--model mlp --set epochs=2 --splits 1"
    options = f"{COLUMNS} --label cheap {quick} --trials 1 --out"
    code, out, err = said("tune", graph, options, tmp_path / "study")
    assert code == 0, err
    _, *train = shlex.split(out.splitlines()[-1].split(", for: ")[1])
    assert app.run([*train, *quick.split(), "--out", str(tmp_path / "run")]) == 0


def test_a_graph_that_is_gone_is_asked_for(run, tmp_path, answer, said):
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    about = json.loads((moved / "run.json").read_text())
    about["source"] = str(tmp_path / "gone")
    (moved / "run.json").write_text(json.dumps(about))
    code, _, err = said("evaluate", moved)
    assert code == 2
    line = f"gone: the graph that {moved} was trained on is gone; `--graph` says where it is now"
    assert line in err
    assert answer("evaluate", moved, "--graph", run.parent / "houses")["as_recorded"]


# Where answers go


def test_predictions_go_to_standard_output_and_nothing_else_does(run, said):
    code, out, err = said("predict", run, run.parent / "houses", "-o -")
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0
    assert len(rows) == 60
    assert set(rows[0]) == {"id", "prediction"}
    assert "60 nodes of houses" in err
    code, out, err = said("predict", run, run.parent / "houses", "-o - --json")
    assert code == 2 and out == "" and "--json and --out - are given" in err


def test_standard_output_by_its_path_gets_nothing_else_too(run, capfd):
    call("predict", run, run.parent / "houses", "-o /dev/stdout")
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 61 and "60 nodes of houses" in err


def test_every_command_that_writes_a_file_prints_it(run, capfdbinary):
    """``-o -``; the table of a comparison, which is printed otherwise, then goes to stderr."""
    call("export", run, "--predictions -o -")
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"id,prediction\n") and len(out.splitlines()) == 61 and err == b""
    call("compare", run, run, "-o -")
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"\x89PNG")
    assert out.rstrip().endswith(b"IEND\xaeB`\x82")
    assert b"the best first" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("export RUN --predictions --embeddings -o -", "-: gets 2 tables, embeddings, predictions"),
        ("export RUN --predictions -o - --json", "--json and --out - are given"),
        ("compare RUN RUN -o - --json", "--json and --out - are given"),
        ("plot RUN -o -", "out is '-'; allowed: a folder"),
        ("train RUN --out -", "out is '-'; allowed: a folder"),
        ("tune RUN --out /dev/null", "out is '/dev/null'; allowed: a folder"),
        ("partition RUN --parts 2 --out -", "out is '-'; allowed: a folder"),
        ("reproduce motif -o -", "out is '-'; allowed: a folder"),
    ],
)
def test_what_cannot_be_printed_is_refused(arguments, line, run, said):
    code, out, err = said(arguments.replace("RUN", str(run)))
    assert code == 2 and out == "" and line in err and len(err.splitlines()) == 1


def test_python_m_phgcn_is_the_command():
    command = [sys.executable, "-m", "phgcn", "--version"]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert found.returncode == 0 and found.stdout.startswith("phgcn ")
