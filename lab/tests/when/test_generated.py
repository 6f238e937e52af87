"""Generated graphs have the answer they say, where they say it is."""

import time

import pytest
import torch

from phgcn_lab.experiment import TimeUp
from phgcn_lab.when import generated


def test_the_answer_of_a_tree_is_the_value_of_the_leaf_with_the_roots_key():
    depth, graphs = 3, 20
    batch = generated.draw_tree(depth, graphs, seed=1)
    leaves, nodes = 8, 15
    x = batch.x.reshape(graphs, nodes, 16)
    for graph in range(graphs):
        assert int(batch.asked[graph]) == graph * nodes
        assert batch.batch[graph * nodes : (graph + 1) * nodes].eq(graph).all()
        key = int(x[graph, 0, :leaves].argmax())
        matching = [node for node in range(7, nodes) if x[graph, node, key] == 1]
        assert len(matching) == 1
        assert int(x[graph, matching[0], leaves:].argmax()) == int(batch.y[graph])
        assert x[graph, 0].sum() == 1
        assert x[graph, 1:7].sum() == 0
        assert x[graph, 7:].sum(dim=1).eq(2).all()
        assert x[graph, 7:].sum(dim=0).eq(1).all()  # keys and values are permutations
    source, target = batch.edge_index
    assert batch.edge_index.size(1) == graphs * (nodes - 1)
    assert torch.equal(target % nodes, (source % nodes - 1) // 2)
    assert torch.equal(source // nodes, target // nodes)


def test_the_answer_of_a_ring_is_on_the_other_side():
    batch = generated.draw_ring(6, 30, seed=2)
    x = batch.x.reshape(30, 6, 5)
    assert torch.equal(x[:, 3].argmax(dim=1), batch.y)
    assert x[:, 3].sum(dim=1).eq(1).all()
    assert x[:, 0].sum() == 0
    assert x[:, [1, 2, 4, 5]].eq(1).all() and set(batch.y.tolist()) == set(range(5))
    degree = torch.zeros(180, dtype=torch.long).index_add_(
        0, batch.edge_index[1], torch.ones(360, dtype=torch.long)
    )
    steps = (batch.edge_index[0] - batch.edge_index[1]).abs()
    assert degree.eq(2).all() and set(steps.tolist()) == {1, 5}


@pytest.mark.parametrize("name", generated.TASKS)
def test_draws_follow_from_the_seed_and_fit_the_network(name):
    task = generated.TASKS[name]
    level = task.levels[0]
    first, again, other = (task.draw(level, 4, seed, "cpu") for seed in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.x, other.x)
    features, classes = task.channels(level)
    model = generated.build(name, level, "on")
    assert first.x.size(1) == features
    assert model(first.x, first.edge_index, first.batch).shape == (len(first.x), classes)
    assert len(model.global_blocks) == task.layers(level)
    assert len(generated.build(name, level, "off").global_blocks) == 0


def test_a_network_follows_from_its_number_and_stops_at_the_deadline():
    far = time.time() + 600
    runs = [generated.train("ring", 4, "off", number, 3, "cpu", far)["test"] for number in (0, 0)]
    assert runs[0] == runs[1] and 0 <= runs[0] <= 1
    with pytest.raises(TimeUp):
        generated.train("ring", 4, "off", 0, 3, "cpu", time.time() - 1)


def test_two_layers_solve_the_smallest_ring():
    assert generated.train("ring", 4, "off", 0, 60, "cpu", time.time() + 600)["test"] > 0.9
