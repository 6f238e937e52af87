"""Self-loops, duplicate edges and attention weights of EDAConv and PHGCNConv, beside GATConv."""

import copy
import inspect

import pytest
import torch
from clouds import normal, relative
from graphs import LAYERS, make, random_graph
from torch_geometric.nn import GATConv
from torch_geometric.utils import remove_self_loops

pytestmark = pytest.mark.parametrize("layer", LAYERS)


def activated(layer, out):
    return out if layer == "EDAConv" else torch.nn.functional.elu(out)


def test_only_what_GATConv_has_in_the_same_place_is_positional(layer):
    signatures = (inspect.signature(conv).parameters for conv in (LAYERS[layer], GATConv))
    ours, theirs = (list(parameters.values()) for parameters in signatures)
    positional = [p.name for p in ours if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == [p.name for p in theirs[:4]]
    assert positional == ["in_channels", "out_channels", "heads", "concat"]
    shared = {p.name: p.default for p in theirs} | {"residual": False}
    assert all(p.default == shared[p.name] for p in ours if p.name in shared)
    with pytest.raises(TypeError, match="positional"):
        LAYERS[layer](5, 4, 2, False, 0.2)


def test_each_node_has_one_self_loop_whatever_the_edges_have(layer):
    x, edge_index = random_graph()
    conv, without = make(layer, 5, 4), make(layer, 5, 4, add_self_loops=False)
    bare, loops = remove_self_loops(edge_index)[0], torch.arange(20).repeat(2, 3)
    assert bare.size(1) < edge_index.size(1)
    want = conv(x, edge_index)
    assert torch.equal(conv(x, bare), want)
    assert torch.equal(conv(x, torch.cat([bare, loops], dim=1)), want)
    assert relative(without(x, torch.cat([bare, loops[:, :20]], dim=1)), want) < 1e-12
    assert relative(without(x, bare), want) > 1e-3
    with pytest.raises(ValueError, match=r"edge_index\[0, 1\] is 20; allowed: 0 to 19"):
        conv(x, torch.tensor([[3, 20], [4, 20]]))  # a self-loop of no node


def test_an_edge_that_occurs_twice_counts_twice(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4, heads=2)
    bare = remove_self_loops(edge_index)[0]
    _, (_, once) = conv(x, bare, return_attention_weights=True)
    _, (used, twice) = conv(x, torch.cat([bare, bare], dim=1), return_attention_weights=True)
    count = bare.size(1)
    assert used.size(1) == 2 * count + 20
    total = 1 + torch.zeros(20, 2, dtype=torch.float64).index_add(0, bare[1], once[:count])
    assert torch.allclose(twice[:count], once[:count] / total[bare[1]])
    assert torch.allclose(twice[count : 2 * count], twice[:count])


def test_attention_weights_are_those_that_were_used(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4, heads=2, bias=False)
    out, (used, alpha) = conv(x, edge_index, return_attention_weights=True)
    assert torch.equal(out, conv(x, edge_index))
    assert used.shape == (2, remove_self_loops(edge_index)[0].size(1) + 20)
    assert alpha.shape == (used.size(1), 2)
    sums = torch.zeros(20, 2, dtype=torch.float64).index_add(0, used[1], alpha)
    assert torch.allclose(sums, torch.ones_like(sums))
    values = conv.lin(x).view(20, 2, 4)
    weighed = alpha.unsqueeze(-1) * values[used[0]]
    gathered = torch.zeros_like(values).index_add(0, used[1], weighed)
    assert torch.allclose(out[:, :8], activated(layer, gathered.flatten(1)))


def test_a_node_without_edges_attends_to_itself_or_to_nobody(layer):
    x, edge_index = normal(6, 5), torch.tensor([[0, 1], [1, 2]])
    conv = make(layer, 5, 4, heads=2, bias=False)
    assert torch.allclose(conv(x, edge_index)[5, :8], activated(layer, conv.lin(x)[5]))
    without = make(layer, 5, 4, heads=2, bias=False, add_self_loops=False)
    assert bool((without(x, edge_index)[5, :8] == 0).all())


def test_a_layer_may_be_used_twice_in_one_graph(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 5, concat=False)
    twin = copy.deepcopy(conv)
    twice = conv(conv(x, edge_index), edge_index)
    stacked = twin(conv(x, edge_index), edge_index)
    assert torch.equal(twice, stacked)
    grads = torch.autograd.grad(twice.square().sum(), conv.parameters())
    first = torch.autograd.grad(stacked.square().sum(), [*conv.parameters(), *twin.parameters()])
    for i, grad in enumerate(grads):
        assert relative(grad, first[i] + first[i + len(grads)]) < 1e-12
