"""GlobalMemory: parts of a graph attend to all of it."""

import pytest
import torch
from clouds import normal, relative
from graphs import make
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader

from phgcn.nn import GlobalAttention, GlobalBlock, GlobalGNN, GlobalMemory

NODES = 60


def part(*numbers):
    return torch.tensor(numbers)


def attention(**settings):
    return make(GlobalAttention, 5, 4, heads=2, decay=1.0, **settings), GlobalMemory(
        NODES, 4, heads=2
    ).double()


def block(**settings):
    layer = make(GlobalBlock, 8, heads=2, **settings)
    torch.nn.init.ones_(layer.gate)
    return layer, GlobalMemory(NODES, 4, heads=2).double()


LAYERS = {
    "GlobalAttention": (attention, 5),
    "with queries": (lambda: attention(query_channels=5), 5),
    "GlobalBlock": (block, 8),
    "with mass": (lambda: block(mass=True), 8),
}


@pytest.mark.parametrize("name", LAYERS)
def test_parts_attend_to_the_whole_graph_once_all_have_passed(name):
    (layer, memory), x = LAYERS[name][0](), normal(NODES, LAYERS[name][1])
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long), n_id=torch.arange(NODES))
    loader = RandomNodeLoader(data, num_parts=5, shuffle=True)
    whole = layer(x)
    for batch in loader:
        layer(batch, memory=memory)
    assert bool(memory.seen.all())
    for batch in loader:
        assert relative(layer(batch, memory=memory), whole[batch.n_id]) < 1e-12
        assert relative(layer(batch.x, memory=memory, n_id=batch.n_id), whole[batch.n_id]) < 1e-12
        assert relative(layer(batch.x), whole[batch.n_id]) > 1e-3


def test_nodes_that_have_not_passed_are_left_out():
    layer, memory = attention()
    x, first, second = normal(NODES, 5), torch.arange(10), torch.arange(30, 45)
    assert relative(layer(x[first], memory=memory, n_id=first), layer(x[first])) < 1e-12
    got = layer(x[second], memory=memory, n_id=second)
    assert relative(got, layer(x[second], torch.cat([x[first], x[second]]))) < 1e-12
    memory.reset_parameters()
    assert relative(layer(x[second], memory=memory, n_id=second), layer(x[second])) < 1e-12


def test_the_batch_is_fresh_and_has_gradients_and_the_rest_has_none():
    layer, memory = attention()
    x, n_id = normal(NODES, 5), part(7, 3, 50)
    layer(x, memory=memory, n_id=torch.arange(NODES))
    moved = x[n_id].clone().requires_grad_()
    with torch.no_grad():
        moved += 1
    out = layer(moved, memory=memory, n_id=n_id)
    everyone = torch.cat(
        [x.index_fill(0, n_id, 0)[[i for i in range(NODES) if i not in n_id]], moved]
    )
    want = layer(moved, everyone)
    assert relative(out, want) < 1e-12
    grads = [
        torch.autograd.grad(t.square().sum(), moved, retain_graph=True)[0] for t in (out, want)
    ]
    assert relative(*grads) < 1e-9
    assert not memory.positions.requires_grad and not memory.values.requires_grad
    out.sum().backward()  # and again after the memory has changed
    layer(x[n_id], memory=memory, n_id=n_id).sum().backward()


def test_it_is_saved_with_the_weights_and_moves_with_the_module():
    layer, memory = attention()
    layer(normal(3, 5), memory=memory, n_id=part(1, 2, 3))
    twin = GlobalMemory(NODES, 4, heads=2).double()
    twin.load_state_dict(memory.state_dict())
    assert torch.equal(twin.positions, memory.positions) and twin.seen.sum() == 3
    assert (
        str(memory) == "GlobalMemory(60, 4, heads=2)"
        and memory.float().positions.dtype == torch.float32
    )


def test_what_does_not_fit_is_refused():
    layer, memory = attention()
    x = normal(3, 5)
    with pytest.raises(ValueError, match="n_id is None; allowed beside a memory"):
        layer(x, memory=memory)
    with pytest.raises(ValueError, match=r"n_id\[1\] is 60; allowed: 0 to 59"):
        layer(x, memory=memory, n_id=part(0, 60, 1))
    with pytest.raises(ValueError, match=r"n_id has shape \(2,\); allowed: \(3,\)"):
        layer(x, memory=memory, n_id=part(0, 1))
    with pytest.raises(ValueError, match="n_id is given; allowed: None, as there is no memory"):
        layer(x, n_id=part(0, 1, 2))
    with pytest.raises(ValueError, match="batch is given beside a memory"):
        layer(x, memory=memory, n_id=part(0, 1, 2), batch=part(0, 0, 1))
    with pytest.raises(ValueError, match="key or value is given beside a memory"):
        layer(x, x, memory=memory, n_id=part(0, 1, 2))
    with pytest.raises(
        ValueError, match=r"values of the batch are \(2, 4\) of each node; allowed: \(2, 3\)"
    ):
        layer(x, memory=GlobalMemory(NODES, 3, heads=2), n_id=part(0, 1, 2))
    with pytest.raises(ValueError, match="num_nodes is 0; allowed: a positive integer"):
        GlobalMemory(0, 4)


@pytest.mark.parametrize("place", ["top", "each"])
def test_GlobalGNN_remembers(place):
    torch.manual_seed(0)
    model = GlobalGNN(
        5, 8, 3, local="none", heads=2, global_layers=2, global_at=place, dropout=0.0, norm="layer"
    ).double()
    for one in model.global_blocks:
        torch.nn.init.ones_(one.gate)
    model.remember(NODES)
    x, edges = normal(NODES, 5), torch.empty(2, 0, dtype=torch.long)
    whole = model(x, edges)
    for _ in range(3):  # the second block attends to what the first made of what it knew
        for n_id in torch.arange(NODES).split(20):
            model(x[n_id], edges, n_id=n_id)
    data = Data(x=x[20:40], edge_index=edges, n_id=torch.arange(20, 40))
    assert relative(model(data), whole[20:40]) < 1e-12
    assert torch.equal(model(x, edges), whole)  # without n_id, the whole graph is what is given
