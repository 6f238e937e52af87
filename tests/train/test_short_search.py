"""The search of `phgcn train` without a model."""

import json

import pytest
import torch
from small_graphs import small_graph

from phgcn import NodeClassifier
from phgcn.reproduce.when.far import FarTask
from phgcn.train import Plan, search
from phgcn.train.candidates import GLOBAL_GNN, candidates, size_class, start_settings

QUICK = {"epochs": 3}


def plan(**changes):
    return Plan("small", "global-gnn", splits=2, **changes)


def test_the_same_seed_gives_the_same_choice_and_test_labels_do_not_matter():
    data = small_graph(90)
    found = [search(plan(), data, changes=QUICK) for _ in range(2)]
    hidden = small_graph(90)
    from phgcn.data import splits

    test = splits(data.y, "paper", 1, 0)[0].test
    hidden.y = torch.where(test, (data.y + 1) % 3, data.y)
    kept = splits(hidden.y, "paper", 1, 0)[0]
    if torch.equal(kept.test, test):  # the split follows the labels, so only if it is the same
        found.append(search(plan(), hidden, changes=QUICK))
    rows = [[{**row, "seconds": 0} for row in seen["candidates"]] for _, seen in found]
    assert all(row == rows[0] for row in rows) and len({chosen.model for chosen, _ in found}) == 1


def test_a_far_task_is_won_by_attention_and_the_sentence_says_so():
    data = FarTask(200, distractors=2).draw(0)
    said = []
    chosen, seen = search(plan(), data, report=said.append)
    assert seen["helps"] and seen["sentence"].startswith("Attention to all nodes helps here: ")
    assert seen["with_attention"] > 0.9 and seen["without_attention"] < 0.75
    assert seen["chosen"].startswith("similar nodes") and chosen.settings.global_at == "input"
    assert chosen.splits == 2 and seen["epochs"] < 2500 and len(said) == 5
    json.dumps(seen)


def test_a_difference_within_its_error_is_called_none():
    data = small_graph(90)
    _, seen = search(plan(), data, changes={"epochs": 30})
    assert not seen["helps"] and abs(seen["with_attention"] - seen["without_attention"]) <= 2 * seen["error"]
    assert "makes no difference" in seen["sentence"]
    assert {row["attention"] for row in seen["candidates"]} == {True, False}


def test_settings_restrict_the_models_that_are_tried():
    _, seen = search(plan(), small_graph(90), changes={"epochs": 2, "decay_global": 3.0})
    assert {row["model"] for row in seen["candidates"]} == {"phgcn"} and seen["helps"] is None
    with pytest.raises(ValueError, match="the settings are parts, which no model that is tried has"):
        search(plan(), small_graph(90), changes={"parts": "both"})


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


def test_estimators_search_too():
    far = FarTask(200).draw(0)
    classifier = NodeClassifier().fit((far.x, far.edge_index), torch.where(far.y < 0, -1, far.y).numpy())
    assert classifier.search_["helps"] and classifier.validation_score_ > 0.9
    named = NodeClassifier("mlp", epochs=2).fit((far.x, far.edge_index), far.y.numpy())
    assert named.search_ is None
