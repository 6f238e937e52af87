r"""What stands under a score: simple models on the same nodes, intervals, and features that give
the label away."""

import csv
import os
import random
from pathlib import Path

import pytest
import torch
from commands import call
from small_graphs import small_graph, write_tables

from phgcn.cli import display
from phgcn.train import Plan, Run, Settings

TABLE = Path(os.environ.get("PHGCN_DATA", ".")) / "tables" / "california_housing.csv"
HOUSING = pytest.mark.skipif(not TABLE.is_file(), reason=f"{TABLE} is not here")
QUICK = "--set epochs=3 --set hidden_channels=8 --set heads=2"


def churn(folder, rows=120, noise=2.0, header=("id", "label", "age", "calls"), seed=0, **columns):
    """Customers of whom one in four leaves, which follows from their age and noise; more columns as
    functions of the row."""
    chance = random.Random(seed)
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


def test_every_score_stands_above_simple_models_on_the_same_nodes(tmp_path, answer):
    graph = churn(tmp_path / "churn")
    result = answer("train", graph, QUICK, "--set global_layers=1 --out", tmp_path / "run")
    assert len(result["splits"]) == 3, "three splits by default"
    splits = {name: row["splits"] for name, row in result["yardsticks"].items()}
    assert splits == {"commonest": 3, "linear": 3, "local": 1}
    assert result["commonest"] == "always answering 'no'"
    common = result["yardsticks"]["commonest"]
    assert common["model"] == pytest.approx(result["test"]["mean"])
    run = Run.open(tmp_path / "run")
    y = run.data().y
    for row in result["splits"]:
        share = float((y == 0).double().mean())
        assert row["yardsticks"]["commonest"] == pytest.approx(share, abs=0.03)
        assert sum(row["nodes"].values()) == 120


def test_a_model_that_is_worse_than_a_simple_one_is_said_in_plain_words(tmp_path, said):
    graph = churn(tmp_path / "churn", noise=0.2)
    quick = "--model mlp --splits 1 --set epochs=1 --set learning_rate=1e-9"
    code, out, err = said("train", graph, quick, "--out", tmp_path / "run")
    assert code == 0, err
    (split,) = Run.open(tmp_path / "run").result()["splits"]
    own, linear = 100 * split["test"], 100 * split["yardsticks"]["linear"]
    assert linear > own
    line = f"warning: accuracy {own:.1f} % is below a linear model of the features: {linear:.1f} %"
    assert line in out
    assert "always answering 'no': " in out


def test_they_stand_under_the_scores_of_evaluate_and_compare_too(tmp_path, answer, said):
    graph = churn(tmp_path / "churn")
    for model in ("mlp", "phgcn"):
        call("train", graph, f"--model {model} --splits 1", QUICK, "--out", tmp_path / model)
    phgcn = tmp_path / "phgcn"
    for command in (("evaluate", phgcn), ("compare", tmp_path / "mlp", phgcn)):
        code, out, err = said(*command)
        assert code == 0, err
        assert "always answering 'no': " in out and "a linear model of the features: " in out
    lines = answer("evaluate", phgcn)["yardsticks"]
    assert any("without global attention" in line for line in lines)


def test_another_graph_is_scored_by_the_yardsticks_of_the_training(tmp_path, answer):
    graph = churn(tmp_path / "churn", rows=400, noise=0.5)
    quick = f"--model global-gnn --splits 1 {QUICK} --set epochs=60 --set patience=60 --out"
    train = ("train", graph, quick)
    call(*train, tmp_path / "run", "--set global_layers=1")
    other = churn(tmp_path / "other", rows=200, noise=0.5, seed=1)
    lines = answer("evaluate", tmp_path / "run", "--graph", other)["yardsticks"]
    with open(other / "nodes.csv") as file:
        rows = [(row["label"] == "yes", float(row["age"])) for row in csv.DictReader(file)]
    share = sum(not leaves for leaves, _ in rows) / len(rows)
    assert lines[0] == f"always answering 'no': {100 * share:.1f} %"
    # who leaves follows from age alone, and the commonest answer of the training is no
    best = max(
        sum((age > bound) == leaves for leaves, age in rows) / len(rows) for _, bound in rows
    )
    name, score = lines[1].removesuffix(" %").rsplit(": ", 1)
    assert name == "a linear model of the features" and float(score) > 100 * best - 4
    without = "--set global_layers=0 --set labels=false --set local_epochs=0"
    call(*train, tmp_path / "local", without)
    scored = answer("evaluate", tmp_path / "local", "--graph", other)["test"]["mean"]
    assert lines[2].startswith("the network without global attention: ")
    assert float(lines[2].split(": ")[1].removesuffix(" %")) == pytest.approx(
        100 * scored, abs=0.05
    )


@HOUSING
def test_an_mlp_of_the_housing_table_is_better_than_a_linear_model(tmp_path, answer):
    """By a wide margin, with default settings: what other models are compared with is no straw
    man."""
    options = "--model mlp --splits 1 --metric rmse --set epochs=300"
    label = "--label median_house_value"
    result = answer("train", TABLE, label, options, "--out", tmp_path / "run")
    linear, common = (result["yardsticks"][name]["mean"] for name in ("linear", "commonest"))
    assert result["test"]["mean"] < 0.9 * linear < 0.6 * common


def test_the_network_without_global_attention_is_the_same_whenever_it_is_trained(tmp_path):
    """With the same seed, weights and epochs; a resumed run has the bits of one that was not cut
    off."""
    data = small_graph()
    settings = Settings(hidden_channels=8, heads=2, epochs=4, global_layers=1)
    runs = {}
    for name in ("whole", "cut"):
        plan = Plan("small", model="global-gnn", splits=2, settings=settings, yardsticks="all")
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
    assert "local" in whole["splits"][0]["yardsticks"]
    assert "local" not in whole["splits"][1]["yardsticks"]


@pytest.mark.parametrize("label", ["regression", "multilabel"])
def test_numbers_and_several_labels_have_yardsticks_too(label, tmp_path):
    data = small_graph()
    weights = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    data.y = data.x @ weights[:, 0] if label == "regression" else (data.x @ weights > 0).float()
    data.task, data.classes = label, ["a", "b"]
    metric = "rmse" if label == "regression" else "f1_micro"
    once = {"splits": 1, "settings": Settings(epochs=1), "yardsticks": "simple"}
    plan = Plan("small", "mlp", metric=metric, task=label, **once)
    result = Run.create(tmp_path / "run", plan, data).train(data)
    common, linear = (result["yardsticks"][name]["mean"] for name in ("commonest", "linear"))
    assert linear < 0.1 * common if label == "regression" else linear > 0.85 > common


def test_one_split_has_no_interval_and_few_are_counted(tmp_path, said):
    graph = write_tables(small_graph(nodes=30), tmp_path / "small")
    _, one, _ = said("train", graph, "--model mlp", QUICK, "--splits 1 --out", tmp_path / "one")
    assert "±" not in one and "% (1 split)" in one
    _, few, err = said("train", graph, "--model mlp", QUICK, "--out", tmp_path / "few")
    assert " ± " in few and "% (3 splits)" in few and "3 splits of protocol paper" in err
    one = tmp_path / "one"
    for command in (("evaluate", one), ("compare", one, one)):
        assert "±" not in said(*command)[1], command


# Leaks


@pytest.mark.parametrize(
    "make",
    [
        lambda row: row["label"],
        lambda row: f"{row['label']}-{len(row['id']) % 2}",
        lambda row: 10 if row["label"] == "yes" else 3,
        lambda row: 100 * (row["label"] == "yes") + row["calls"],
        lambda row: "moved" if row["label"] == "yes" else "",
    ],
    ids=["a copy", "names that determine it", "a code", "a number", "a reason where it holds"],
)
def test_a_feature_that_gives_the_label_away_is_named(make, tmp_path, said):
    graph = churn(tmp_path / "churn", leak=make)
    code, _, err = said("train", graph, "--model mlp", QUICK, "--out", tmp_path / "run")
    warnings = [line for line in err.splitlines() if line.startswith("warning")]
    assert code == 0 and len(warnings) == 1
    assert warnings[0].startswith(
        "warning: the feature leak alone predicts 100 % of the label; leave it out if it is not "
        "known"
    )


def test_a_copy_of_a_number_is_named_and_features_that_are_none_are_not(tmp_path, said):
    price = lambda row: 1000.5 + 50 * row["calls"]  # noqa: E731
    graph = churn(tmp_path / "price", header=("id", "age", "calls"), price=price)
    options = f"--label price --model mlp {QUICK} --out"
    _, _, err = said("train", graph, options, tmp_path / "run")
    assert "the feature calls alone predicts" in err and "feature age" not in err
    graph = churn(tmp_path / "fine", number=lambda row: row["id"][1:])
    _, _, err = said("train", graph, "--model mlp", QUICK, "--out", tmp_path / "fine-run")
    assert "warning" not in err


def test_no_column_gives_a_label_away_that_nearly_all_nodes_have(tmp_path, said):
    rare = churn(tmp_path / "rare", rows=60, header=("id", "age"), label=lambda row: "no")
    text = (rare / "nodes.csv").read_text()
    (rare / "nodes.csv").write_text(text.replace(",no", ",yes", 1))
    _, _, err = said("train", rare, "--model mlp", QUICK, "--out", tmp_path / "run")
    assert "alone predicts" not in err


def test_the_label_is_never_a_feature(tmp_path, said):
    graph = churn(tmp_path / "churn")
    code, _, err = said("train", graph, "--features age,label --out", tmp_path / "run")
    assert code == 2 and "column 'label' is the label, and no feature; allowed: age" in err


# Predictions


def test_predictions_say_what_the_model_learned_from(tmp_path, said):
    graph = churn(tmp_path / "churn")
    for protocol, line in (
        ("paper", "it learned from 60 % of the labels, `phgcn train ... --protocol final`"),
        ("final", ""),
    ):
        out = tmp_path / protocol
        call("train", graph, f"--model mlp --splits 1 --protocol {protocol} {QUICK} --out", out)
        code, said_so, _ = said("predict", out, graph, "-o", tmp_path / "out.csv")
        assert code == 0 and line in said_so and ("it learned" in said_so) == bool(line)


# Preparation


@pytest.mark.parametrize("model", ["mlp", "gcn", "global-gnn", "phgcn"])
def test_every_model_gets_the_same_preparation_of_a_table(model, tmp_path, answer):
    graph = churn(tmp_path / "churn", income=lambda row: 1e5 * row["age"])
    options = f"--model {model} --splits 1 {QUICK} --out"
    config = answer("train", graph, options, tmp_path / "run")["config"]
    assert config["scaling"] == "standard"
    assert model == "global-gnn" or config["dropout"] == 0.0, "half of three columns are too few"


def test_the_explorer_is_suggested_where_it_is_installed(tmp_path, said, monkeypatch):
    graph = churn(tmp_path / "churn")
    monkeypatch.setattr(display, "find_spec", lambda name: name)
    options = f"--model mlp --splits 1 {QUICK}"
    assert "phgcn explore" in said("train", graph, options, "--out", tmp_path / "with")[1]
    monkeypatch.setattr(display, "find_spec", lambda name: None)
    assert "phgcn explore" not in said("train", graph, options, "--out", tmp_path / "without")[1]
