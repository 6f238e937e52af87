"""The search of `phgcn train` without a model."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from small_graphs import small_graph
from torch.nn.functional import one_hot

from phgcn import NodeClassifier
from phgcn.data import Columns
from phgcn.train import Plan, Run, evaluate, search
from phgcn.train.candidates import (
    GLOBAL_GNN,
    SPLITS,
    Candidate,
    candidates,
    default_splits,
    part_epochs,
    size_class,
    start_settings,
    table_work,
    with_attention,
    without_attention,
    work_class,
)
from phgcn.train.entrant import Entrant
from phgcn.train.plan import Chosen
from phgcn.train.prepare import prepare
from phgcn.train.search import _announce_parts, choose_among, search_each
from phgcn.train.settings import Settings, resolve
from phgcn.train.tasks import Classification
from phgcn.train.verdict import mean_verdict
from phgcn_lab.when.far import FarTask

QUICK = {"epochs": 3}


def plan(**changes):
    return Plan("small", "global-gnn", **{"splits": 2, **changes})


def with_split(data):
    """Gives a graph a split of its own, which does not follow its labels."""
    part = torch.arange(data.num_nodes) % 5
    parts = {"train": part < 3, "val": part == 3, "test": part == 4}
    for name, mask in parts.items():
        data[f"{name}_mask"] = torch.stack([mask, mask.flip(0)], dim=1)
    return data


def test_the_same_seed_gives_the_same_choice_and_test_labels_do_not_matter():
    data, hidden = (with_split(small_graph(90)) for _ in range(2))
    test = hidden.test_mask[:, 0]
    hidden.y = torch.where(test, (hidden.y + 1) % 3, hidden.y)
    official = plan(protocol="official")
    found = [search(official, graph, changes=QUICK) for graph in (data, data, hidden)]
    rows = [[{**row, "seconds": 0} for row in seen["candidates"]] for _, seen in found]
    assert all(row == rows[0] for row in rows) and len({chosen.model for chosen, _ in found}) == 1


def test_a_far_task_is_won_by_attention_and_the_sentence_says_so():
    data = FarTask(200, distractors=2).draw(0)
    said = []
    chosen, seen = search(plan(), data, report=said.append)
    assert seen["helps"] and seen["sentence"].startswith("Attention to all nodes helps here: ")
    assert seen["with_attention"] > 0.9 and seen["without_attention"] < 0.75
    assert seen["chosen"].startswith("similar nodes") and chosen.settings.global_at == "input"
    assert chosen.splits == 2 and seen["epochs"] < 2500 and len(said) == 6
    json.dumps(seen)


def test_a_difference_within_its_error_is_called_none():
    data = small_graph(90)
    _, seen = search(plan(), data, changes={"epochs": 30})
    assert (
        not seen["helps"]
        and abs(seen["with_attention"] - seen["without_attention"]) <= 2 * seen["error"]
    )
    assert "makes no difference" in seen["sentence"]
    assert {row["attention"] for row in seen["candidates"]} == {True, False}


def test_networks_of_little_work_get_more_epochs(monkeypatch):
    """A network for words learns slowly, and its epochs take less work than those of a GCN."""
    data = small_graph(90)
    data.x = torch.eye(90)
    monkeypatch.setitem(sys.modules["phgcn.train.search"].RUNGS, "short", (2, 4, 6))
    _, seen = search(plan(), data, changes={"epochs": 50})
    epochs = {row["candidate"]: row["epochs"] for row in seen["candidates"]}
    assert epochs["gcn"] in (2, 4) and epochs["phgcn"] in (2, 4)
    assert epochs["words"] in (6, 12) and epochs["mlp"] in (6, 12)


def test_settings_restrict_the_models_that_are_tried():
    _, seen = search(plan(), small_graph(90), changes={"epochs": 2, "decay_global": 3.0})
    assert {row["model"] for row in seen["candidates"]} == {"phgcn"} and seen["helps"] is None
    known = f"{100 * seen['with_attention']:.1f} % with it (validation nodes of the first split)"
    assert seen["sentence"].endswith(f"is not known: {known} is all there is.")
    with pytest.raises(ValueError, match="the setting 'parts' is no setting of global-gnn"):
        search(plan(), small_graph(90), changes={"parts": "both"})


@pytest.mark.parametrize("changes", [{"labels": True}, {"global_layers": 1}])
def test_attention_that_is_asked_for_is_chosen_and_compared_with_networks_without(changes):
    chosen, seen = search(plan(), small_graph(90), changes={**QUICK, **changes})
    assert {row["attention"] for row in seen["candidates"]} == {True, False}
    assert seen["helps"] is not None and "with it" in seen["sentence"]
    ((key, value),) = changes.items()
    assert getattr(chosen.settings, key) == value
    plain = [c for c in candidates(small_graph(90), "cpu", changes) if not c.attention]
    assert [c.name for c in plain] == ["mlp", "gcn", "sage", "deep"]
    assert not any(c.settings.labels or c.settings.global_layers for c in plain)


def test_without_labels_no_candidate_attends_to_them():
    found = candidates(small_graph(90), "cpu", {"labels": False, "local": "gcn"})
    assert [c.name for c in found] == ["mlp", "gcn", "sage", "deep", "similar nodes"]
    best = replace(found[-1].settings, labels=True)
    plain = without_attention(Candidate("best", "global-gnn", best), {"labels": True})
    assert not plain.attention and plain.settings.local == "gcn"
    names = [c.name for c in with_attention(found[0], {"labels": False})]
    assert names == ["mlp + attention"]


def test_coordinates_are_for_labels_in_graphs_too():
    """The label is a checkerboard on the map: near nodes have it, edges are random."""
    data, generator = small_graph(400, classes=2), torch.Generator().manual_seed(0)
    data.x = 8 * torch.rand(400, 2, generator=generator)
    data.y = data.x.floor().sum(dim=1).long() % 2
    data.feature_names = ["lat", "lon"]
    data.x = (data.x - data.x.mean(dim=0)) / data.x.std(dim=0)
    on_map = plan(columns=Columns(coordinates=("lat", "lon")))
    changes = {"dropout": 0.0, "input_dropout": 0.0, "method": "exact"}
    chosen, seen = search(on_map, data, changes=changes)
    names = {row["candidate"] for row in seen["candidates"]}
    assert "labels on the map + mlp" in names and not any("phgcn" in name for name in names)
    assert seen["helps"] and chosen.settings.labels, seen["sentence"]


def tried(parts, right, failure=""):
    """An entrant of a table search that is right on so many of 100 rows, others for each part."""
    wrong = (torch.arange(100) + 10 * len(parts)) % 100 >= right
    outputs = one_hot(wrong.long(), 2).float(), torch.zeros(100, dtype=torch.int64)
    plan = Plan("table", "table", settings=Settings(parts=parts))
    return SimpleNamespace(
        candidate=Candidate(parts, "table", plan.settings),
        plan=plan,
        task=SimpleNamespace(kind=Classification()),
        metric=right / 100,
        order=(right / 100, 0.0),
        failure=failure,
        epochs=1,
        seconds=0.0,
        outputs=lambda: outputs,
    )


@pytest.mark.parametrize(
    ("network", "labels", "both", "chosen"),
    [
        (80, 80, 80, "network"),
        (80, 81, 80, "network"),
        (80, 95, 90, "labels"),
        (90, 80, 70, "network"),
    ],
)
def test_a_table_gets_attention_if_it_is_better_by_a_standard_error(network, labels, both, chosen):
    entrants = [tried("network", network), tried("labels", labels), tried("both", both)]
    found, seen = choose_among(entrants[0].plan, entrants)
    assert found.candidate.name == seen["chosen"] == chosen
    assert seen["helps"] == (labels == 95) and len(seen["candidates"]) == 3


def test_a_table_whose_training_diverged_is_not_chosen():
    entrants = [tried("network", 70), tried("both", 99, failure="no finite loss")]
    found, seen = choose_among(entrants[0].plan, entrants)
    assert found.candidate.name == "network" and "is not known" in seen["sentence"]


def test_splits_of_which_one_side_is_known_are_said():
    full = {"with_attention": 0.8, "without_attention": 0.6, "error": 0.01}
    part = {"with_attention": 0.5, "without_attention": None, "error": None}
    both = mean_verdict("accuracy", [full, part, full])
    assert both["helps"] and both["sentence"] == (
        "Attention to all nodes helps here: 80.0 % with it, 60.0 % without "
        "(validation nodes of 2 of 3 splits)."
    )
    one = mean_verdict("accuracy", [part, part])
    assert one["helps"] is None and "not known: 50.0 % with it (validation" in one["sentence"]


def test_large_graphs_are_trained_for_less_time():
    data = small_graph(90)
    assert size_class(data, "cpu") == 0
    data.edge_index = torch.zeros(2, 400_000, dtype=torch.int64)
    assert size_class(data, "cpu") == 1 and size_class(data, "cuda") == 0
    assert len(candidates(data, "cpu")) < len(candidates(data, "cuda"))
    start = start_settings(data, "global-gnn", "cpu")
    assert start.values["epochs"] == 300 and start.values["global_at"] == GLOBAL_GNN["global_at"]
    assert start_settings(data, "gat", "cpu").values == {"epochs": 300, "patience": 75}
    assert start_settings(data, "gat", "cuda") is None


def test_fewer_epochs_and_splits_where_an_epoch_of_the_model_takes_long():
    def found(model, nodes, edges=0, features=8, device="cpu"):
        data = small_graph(90)
        data.x, data.num_nodes = torch.ones(1, features).expand(nodes, features), nodes
        data.edge_index = torch.zeros(2, edges, dtype=torch.int64)
        start = start_settings(data, model, device)
        settings = resolve(model, start=start).settings
        return settings.epochs, SPLITS[work_class(data, model, settings, device)]

    assert found("global-gnn", 2708, 10_556) == (500, 3)
    assert found("global-gnn", 20_640) == (200, 1)  # the table of houses
    assert found("global-gnn", 20_640, device="cuda") == (500, 3)
    assert found("global-gnn", 10_000) == (300, 3)
    assert found("global-gnn", 6_000, 290_000, features=1000) == (200, 1)
    assert found("phgcn", 2708, 10_556) == (1000, 3) and found("phgcn", 20_640) == (200, 1)
    assert found("mlp", 20_640) == (1000, 3), "which takes no time"
    assert found("mlp", 20_640, 300_000) == (300, 3), "a large graph"


@pytest.mark.parametrize("rows, columns", [(300, 8), (3_000, 8), (20_640, 13), (60_000, 100)])
def test_the_default_of_a_table_ends_in_minutes_and_says_how_much_it_is(rows, columns):
    data = small_graph(90)
    data.x, data.num_nodes = torch.ones(1, columns).expand(rows, columns), rows
    settings = resolve("table", start=start_settings(data, "table", "cpu")).settings
    splits = default_splits(data, "table", settings, "cpu")
    tried = part_epochs(data, settings, "cpu")
    epochs = 3 * tried + splits * settings.epochs
    assert epochs * table_work(data, settings) < 2.5e12, "half of 3,600 steps on 20,640 rows"
    assert (tried < settings.epochs, splits) == ((True, 1) if rows > 4096 else (False, 3))
    assert tried >= 100 and (rows <= 4096 or settings.patience < settings.epochs)
    assert epochs < (1500 if rows > 4096 else 2000)
    begun = Plan("table", model="table", splits=splits, settings=settings)
    said = _announce_parts(begun, tried)
    assert said.endswith(f": {3 + splits} trainings, {epochs:,} epochs at most")
    assert ("on the first split (--splits 3 for more)" in said) == (splits == 1)


def test_a_long_search_sees_each_split_by_itself(tmp_path, monkeypatch):
    data = small_graph(90)
    monkeypatch.setitem(sys.modules["phgcn.train.search"].RUNGS, "long", (1, 2, 3))
    chosen, seen = search_each(plan(), data, changes=QUICK)
    assert len(chosen.per_split) == len(seen["splits"]) == 2
    assert seen["nodes"].startswith("training and validation nodes of each split")
    assert seen["with_attention"] == pytest.approx(
        sum(split["with_attention"] for split in seen["splits"]) / 2
    )
    assert {row["split"] for row in seen["candidates"]} == {0, 1}
    two = (
        Chosen("mlp", "mlp", Settings(epochs=2)),
        Chosen("gcn", "gcn", Settings(epochs=2, normalise=True)),
    )
    chosen = replace(chosen, model="mlp", settings=two[0].settings, per_split=two)
    run = Run.create(tmp_path / "run", chosen, data, search=seen)
    result = run.train(data)
    again = Run.open(tmp_path / "run")
    assert [row["model"] for row in result["splits"]] == ["mlp", "gcn"]
    assert again.plan.per_split == two and again.plan.of(1).settings.normalise
    assert evaluate(again, data)["as_recorded"]
    with pytest.raises(ValueError, match="its splits have models of their own"):
        again.extend(epochs=9)


def test_a_training_in_rungs_has_the_bits_of_one_in_one_go():
    data, losses = small_graph(90), []
    for rungs in ((6,), (2, 6)):
        task = prepare(replace(plan(), model="gcn"), data)[0]
        entrant = Entrant(
            Candidate("gcn", "gcn", plan().settings), replace(plan(), model="gcn"), task
        )
        for epochs in rungs:
            entrant.run(epochs)
        losses.append([row[:3] for row in entrant.training.state.curves])
    assert losses[0] == losses[1]


def test_estimators_search_too():
    far = FarTask(200).draw(0)
    classifier = NodeClassifier().fit(
        (far.x, far.edge_index), torch.where(far.y < 0, -1, far.y).numpy()
    )
    assert classifier.search_["helps"] and classifier.validation_score_ > 0.9
    named = NodeClassifier("mlp", epochs=2).fit((far.x, far.edge_index), far.y.numpy())
    assert named.search_ is None


def test_labels_of_similar_nodes_are_found_where_features_do_not_tell():
    torch.manual_seed(0)
    data = FarTask(300, distractors=4).draw(0)
    melody = torch.randn(60, 4).repeat(5, 1)
    data.x = torch.cat([melody + 0.02 * torch.randn(300, 4), torch.randn(300, 4)], dim=1)
    data.y = torch.randint(2, (60,)).repeat(5)
    _, seen = search(plan(), data)
    assert seen["chosen"] == "similar labels" and seen["helps"] and seen["with_attention"] > 0.85
