"""Fewer edges and labels are part of more, and isolated nodes are tested alone."""

import pytest
import torch
from benchmark_graph import graph_with_splits, use_as_texas

from phgcn_lab.benchmark.training import choose, plan_of, tasks_of, train_split
from phgcn_lab.when.conditions import Condition, keep_edges, keep_labels
from phgcn_lab.when.conditions import test_isolated as isolated_test


def pairs(edge_index):
    return {tuple(edge) for edge in edge_index.T.tolist()}


def test_edges_keep_both_directions_and_smaller_shares_are_part_of_larger_ones():
    edges = graph_with_splits().edge_index
    kept = {share: pairs(keep_edges(edges, share, seed=3)) for share in (1.0, 0.5, 0.2, 0.0)}
    assert kept[1.0] == pairs(edges) and kept[0.0] == set() and kept[0.2] < kept[0.5] < kept[1.0]
    assert all((b, a) in kept[0.5] for a, b in kept[0.5])
    assert len(kept[0.5]) == 2 * round(0.25 * len(kept[1.0]))
    assert pairs(keep_edges(edges, 0.5, seed=4)) != kept[0.5]


@pytest.fixture
def plan(monkeypatch):
    use_as_texas(monkeypatch, graph_with_splits())
    return plan_of(
        "texas", "linkx", choose("texas", "linkx", {"hidden_channels": 16}, 3).settings, "cpu"
    )


def test_labels_are_so_many_of_each_class_and_fewer_are_part_of_more(plan):
    task = tasks_of(plan)[0]
    kept = {count: keep_labels(task, count, seed=0) for count in (1, 5, 100)}
    assert sorted(task.y[kept[1]].tolist()) == [0, 1, 2]
    assert task.y[kept[5]].bincount().tolist() == [5, 5, 5]
    assert (
        set(kept[1].tolist())
        < set(kept[5].tolist())
        < set(kept[100].tolist())
        == set(task.train.tolist())
    )


def test_a_condition_changes_only_what_it_says(plan):
    task = tasks_of(plan)[1]
    fewer = Condition("edges", "texas", 20).task(task, 1)
    assert fewer.edge_index.size(1) < task.edge_index.size(1)
    assert torch.equal(fewer.train, task.train)
    few = Condition("labels", "texas", 1).task(task, 1)
    assert torch.equal(few.edge_index, task.edge_index)
    assert len(few.train) == 3
    assert torch.equal(few.test, task.test)
    assert Condition("labels", "texas", None).task(task, 1) is task


def test_isolated_nodes_are_tested_with_the_best_weights(plan):
    task = tasks_of(plan)[0]
    some = task.test[:4]
    touches = torch.isin(task.edge_index, some).any(dim=0)
    loop = torch.stack([some[:1], some[:1]])
    cut = Condition("edges", "texas", 100).task(task, 0)
    cut = type(cut)(
        **{**cut.__dict__, "edge_index": torch.cat([cut.edge_index[:, ~touches], loop], dim=1)}
    )
    result, training = train_split(plan, {}, 0, float("inf"), cut)
    found = isolated_test(training)
    logits = training.model(*cut.inputs)
    right = (logits.argmax(dim=1) == cut.y).double()
    assert found["isolated_nodes"] >= 4
    assert float(right[cut.test].mean()) == pytest.approx(result["test"])
    ends = cut.edge_index[:, cut.edge_index[0] != cut.edge_index[1]]
    alone = [node for node in cut.test.tolist() if node not in ends.flatten().tolist()]
    assert found["isolated_nodes"] == len(alone)
    assert found["isolated_test"] == pytest.approx(float(right[alone].mean()))
    assert isolated_test(train_split(plan, {}, 0, float("inf"))[1]) == {
        "isolated_nodes": 0,
        "isolated_test": None,
    }
