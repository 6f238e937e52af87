r"""What stands under a score: simple models on the same nodes, intervals, and features that give the label away."""

import csv
import json
import random

import pytest
import torch
from small_graphs import small_graph, write_tables

from phgcn.cli import app, display
from phgcn.train import Plan, Run, Settings

QUICK = ("--set", "epochs=3", "--set", "hidden_channels=8", "--set", "heads=2")


def said(capsys, *arguments):
    """The exit code, and the lines on stdout and stderr."""
    capsys.readouterr()
    code = app.run([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def answer(capsys, *arguments):
    code, out, err = said(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def churn(folder, rows=120, noise=2.0, header=("id", "label", "age", "calls"), **columns):
    """Customers of whom one in four leaves, which follows from their age and noise; more columns as functions of the row."""
    chance = random.Random(0)
    table = []
    for number in range(rows):
        age = chance.gauss(0, 1)
        row = {"id": f"c{number}", "age": age, "calls": chance.gauss(0, 1)}
        row["label"] = "yes" if age + noise * chance.gauss(0, 1) > 0.7 * (1 + noise) else "no"
        table.append(row | {name: make(row) for name, make in columns.items()})
    folder.mkdir()
    with open(folder / "nodes.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [*header, *columns], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)
    ends = [[f"c{chance.randrange(rows)}", f"c{chance.randrange(rows)}"] for _ in range(rows)]
    with open(folder / "edges.csv", "w", newline="") as file:
        csv.writer(file).writerows([["source", "target"], *ends])
    return folder


def test_every_score_stands_above_simple_models_on_the_same_nodes(tmp_path, capsys):
    graph = churn(tmp_path / "churn")
    result = answer(capsys, "train", graph, *QUICK, "--set", "global_layers=1", "--out", tmp_path / "run")
    assert len(result["splits"]) == 3, "three splits by default"
    assert {name: row["splits"] for name, row in result["yardsticks"].items()} == {"commonest": 3, "linear": 3, "local": 1}
    assert result["commonest"] == "always answering 'no'"
    common = result["yardsticks"]["commonest"]
    assert common["model"] == pytest.approx(result["test"]["mean"])
    run = Run.open(tmp_path / "run")
    y = run.data().y
    for row in result["splits"]:
        assert row["yardsticks"]["commonest"] == pytest.approx(float((y == 0).double().mean()), abs=0.03)
        assert sum(row["nodes"].values()) == 120


def test_a_model_that_is_worse_than_a_simple_one_is_said_in_plain_words(tmp_path, capsys):
    graph = churn(tmp_path / "churn", noise=0.2)
    quick = ("--model", "mlp", "--splits", "1", "--set", "epochs=1", "--set", "learning_rate=1e-9")
    code, out, err = said(capsys, "train", graph, *quick, "--out", tmp_path / "run")
    assert code == 0, err
    (split,) = Run.open(tmp_path / "run").result()["splits"]
    own, linear = 100 * split["test"], 100 * split["yardsticks"]["linear"]
    assert linear > own and f"warning: accuracy {own:.1f} % is below a linear model of the features: {linear:.1f} %" in out
    assert "always answering 'no': " in out


def test_the_network_without_global_attention_is_the_same_whenever_it_is_trained(tmp_path):
    """With the same seed, weights and epochs; a resumed run has the bits of one that was not cut off."""
    data = small_graph()
    settings = Settings(hidden_channels=8, heads=2, epochs=4, global_layers=1)
    runs = {}
    for name in ("whole", "cut"):
        plan = Plan("small", model="global-gnn", splits=2, settings=settings, yardsticks=True)
        runs[name] = Run.create(tmp_path / name, plan, data)
    whole = runs["whole"].train(data)

    def stop(progress):
        if progress.yardstick:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs["cut"].train(data, stop)
    assert not runs["cut"].finished(runs["cut"].plan.trials()[0])
    resumed = runs["cut"].train(data)
    assert resumed["yardsticks"] == whole["yardsticks"] and resumed["test"] == whole["test"]
    assert "local" in whole["splits"][0]["yardsticks"] and "local" not in whole["splits"][1]["yardsticks"]


@pytest.mark.parametrize("label", ["regression", "multilabel"])
def test_numbers_and_several_labels_have_yardsticks_too(label, tmp_path):
    data = small_graph()
    weights = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    data.y = data.x @ weights[:, 0] if label == "regression" else (data.x @ weights > 0).float()
    data.task, data.classes = label, ["a", "b"]
    metric = "rmse" if label == "regression" else "f1_micro"
    plan = Plan("small", "mlp", splits=1, metric=metric, settings=Settings(epochs=1), task=label, yardsticks=True)
    result = Run.create(tmp_path / "run", plan, data).train(data)
    common, linear = (result["yardsticks"][name]["mean"] for name in ("commonest", "linear"))
    assert linear < 0.1 * common if label == "regression" else linear > 0.85 > common


def test_one_split_has_no_interval_and_few_are_counted(tmp_path, capsys):
    graph = write_tables(small_graph(nodes=30), tmp_path / "small")
    _, one, _ = said(capsys, "train", graph, "--model", "mlp", *QUICK, "--splits", 1, "--out", tmp_path / "one")
    assert "±" not in one and "% (1 split)" in one
    _, few, err = said(capsys, "train", graph, "--model", "mlp", *QUICK, "--out", tmp_path / "few")
    assert " ± " in few and "% (3 splits)" in few and "3 splits of protocol paper" in err
    for command in (("evaluate", tmp_path / "one"), ("compare", tmp_path / "one", tmp_path / "one")):
        assert "±" not in said(capsys, *command)[1], command


# Leaks


@pytest.mark.parametrize(
    "make",
    [
        lambda row: row["label"],
        lambda row: f"{row['label']}-{len(row['id']) % 2}",
        lambda row: 10 if row["label"] == "yes" else 3,
        lambda row: 100 * (row["label"] == "yes") + row["calls"],
    ],
    ids=["a copy", "names that determine it", "a code", "a number that determines it"],
)
def test_a_feature_that_gives_the_label_away_is_named(make, tmp_path, capsys):
    graph = churn(tmp_path / "churn", leak=make)
    code, _, err = said(capsys, "train", graph, "--model", "mlp", *QUICK, "--out", tmp_path / "run")
    warnings = [line for line in err.splitlines() if line.startswith("warning")]
    assert code == 0 and len(warnings) == 1
    assert warnings[0].startswith("warning: the feature leak alone predicts 100 % of the label; if it is not known before")


def test_a_copy_of_a_number_is_named_and_features_that_are_none_are_not(tmp_path, capsys):
    graph = churn(tmp_path / "price", header=("id", "age", "calls"), price=lambda row: 1000.5 + 50 * row["calls"])
    options = ("--label", "price", "--model", "mlp", *QUICK, "--out", tmp_path / "run")
    _, _, err = said(capsys, "train", graph, *options)
    assert "the feature calls alone predicts" in err and "feature age" not in err
    graph = churn(tmp_path / "fine", number=lambda row: row["id"][1:])
    assert "warning" not in said(capsys, "train", graph, "--model", "mlp", *QUICK, "--out", tmp_path / "fine-run")[2]


def test_the_label_is_never_a_feature(tmp_path, capsys):
    graph = churn(tmp_path / "churn")
    code, _, err = said(capsys, "train", graph, "--features", "age,label", "--out", tmp_path / "run")
    assert code == 2 and "column 'label' is the label, and no feature; allowed: 'age'" in err


# Predictions


def test_predictions_say_what_the_model_learned_from(tmp_path, capsys):
    graph = churn(tmp_path / "churn")
    for protocol, line in (("paper", "it learned from 60 % of the labels, `phgcn train ... --protocol final`"), ("final", "")):
        out = tmp_path / protocol
        options = ("--model", "mlp", "--splits", 1, "--protocol", protocol, *QUICK, "--out", out)
        assert said(capsys, "train", graph, *options)[0] == 0
        code, said_so, _ = said(capsys, "predict", out, graph, "-o", tmp_path / "out.csv")
        assert code == 0 and line in said_so and ("it learned" in said_so) == bool(line)


# Preparation


@pytest.mark.parametrize("model", ["mlp", "gcn", "global-gnn", "phgcn"])
def test_every_model_gets_the_same_preparation_of_a_table(model, tmp_path, capsys):
    graph = churn(tmp_path / "churn", income=lambda row: 1e5 * row["age"])
    config = answer(capsys, "train", graph, "--model", model, "--splits", 1, *QUICK, "--out", tmp_path / "run")["config"]
    assert config["scaling"] == "standard"
    assert model == "global-gnn" or config["dropout"] == 0.0, "half of three columns are too few"


def test_the_explorer_is_suggested_where_it_is_installed(tmp_path, capsys, monkeypatch):
    graph = churn(tmp_path / "churn")
    monkeypatch.setattr(display, "find_spec", lambda name: name)
    options = ("--model", "mlp", "--splits", 1, *QUICK)
    assert "phgcn explore" in said(capsys, "train", graph, *options, "--out", tmp_path / "with")[1]
    monkeypatch.setattr(display, "find_spec", lambda name: None)
    assert "phgcn explore" not in said(capsys, "train", graph, *options, "--out", tmp_path / "without")[1]
