r"""A script with GATConv, one line changed: the calls that GATConv takes, and what is said where
something is in the way."""

import warnings
from functools import partial

import pytest
import torch
from graphs import make, random_graph
from torch_geometric.nn import GATConv
from torch_geometric.utils import (
    add_self_loops,
    to_torch_coo_tensor,
    to_torch_csc_tensor,
    to_torch_csr_tensor,
)

import phgcn
from phgcn.nn import EDAConv, PHGCNConv

LAYERS = pytest.mark.parametrize("layer", ["EDAConv", "PHGCNConv"])
MAKERS = {"coo": to_torch_coo_tensor, "csr": to_torch_csr_tensor, "csc": to_torch_csc_tensor}
MAKE = {
    "EDAConv": partial(EDAConv, 5, 4),
    "PHGCNConv": partial(PHGCNConv, 5, 4),
    "GATConv": partial(GATConv, 5, 4),
    "GAT": partial(phgcn.nn.GAT, 5, 4, 3),
    "GlobalGNN": partial(phgcn.nn.GlobalGNN, 5, 8, 3, local="gat"),
}


def test_layers_say_how_wide_they_are_and_the_next_one_why_it_does_not_fit():
    x, edges = random_graph(dtype=torch.float32)
    first = PHGCNConv(5, 8, heads=4)
    assert first.output_width == first(x, edges).size(1) == 64
    assert EDAConv(5, 8, heads=4).output_width == 32
    assert PHGCNConv(5, 8, heads=4, concat=False).output_width == 8
    why = (
        r"x has shape \(20, 64\); allowed: \(N, 32\), or in_channels=64 after a PHGCNConv, which is"
    )
    for second in (PHGCNConv(32, 3), EDAConv(32, 3)):
        with pytest.raises(ValueError, match=why):
            second(first(x, edges), edges)
    assert EDAConv(first.output_width, 3)(first(x, edges), edges).shape == (20, 3)


@LAYERS
def test_both_take_the_same_call_by_position(layer):
    x, edges = random_graph()
    conv, attr = make(layer, 5, 4, edge_dim=3), torch.randn(60, 3, dtype=torch.float64)
    batch = torch.arange(20) // 10
    inside = edges[:, batch[edges[0]] == batch[edges[1]]]
    assert conv(x, inside, batch=batch).shape == (20, conv.output_width)
    out, (used, alpha) = conv(x, edges, attr, (20, 20), True)
    assert torch.equal(out, conv(x, edges, edge_attr=attr)) and alpha.shape == (used.size(1), 1)
    with pytest.raises(
        ValueError,
        match=r"size is \(19, 20\); allowed: \(20, 20\), the numbers of sources and targets",
    ):
        conv(x, edges, attr, (19, 20))


@LAYERS
def test_bipartite_graphs_are_taken_as_GATConv_takes_them(layer):
    x, edges = random_graph()
    edges = edges[:, edges[1] < 8]
    conv = make(layer, (5, 3), 4, heads=2)  # self-loops are left out, not refused
    target = torch.randn(8, 3, dtype=torch.float64)
    assert torch.equal(
        conv((x, target), edges),
        make(layer, (5, 3), 4, heads=2, add_self_loops=False)((x, target), edges),
    )
    origin = conv((x, torch.zeros_like(target)), edges)
    assert torch.equal(conv((x, None), edges, size=(20, 8)), origin)
    adjacency = to_torch_csc_tensor(edges, size=(20, 8)).double().t()
    torch.testing.assert_close(conv((x, None), adjacency), origin)
    gat = GATConv((5, 3), 4, heads=2, add_self_loops=False).double()
    assert gat((x, None), edges, size=(20, 8)).shape == (8, 8) and origin.shape == (
        8,
        conv.output_width,
    )


@LAYERS
def test_the_flow_turns_edges_around(layer):
    x, edges = random_graph()
    turned, plain = (
        make(layer, 5, 4, flow=flow) for flow in ("target_to_source", "source_to_target")
    )
    out, (used, alpha) = turned(x, edges.flip(0), return_attention_weights=True)
    wanted, (same, weights) = plain(x, edges, return_attention_weights=True)
    assert (
        torch.equal(out, wanted) and torch.equal(used, same.flip(0)) and torch.equal(alpha, weights)
    )
    assert turned.flow == "target_to_source"
    seen = []
    turned.register_message_forward_hook(lambda module, inputs, out: seen.append(out))
    torch.testing.assert_close(turned(x, edges.flip(0)), wanted)
    assert seen, "messages are shown to hooks"


@LAYERS
def test_self_loops_have_the_features_that_fill_value_says(layer):
    x, edges = random_graph()
    edges = edges[:, edges[0] != edges[1]]
    attr = torch.randn(edges.size(1), 3, dtype=torch.float64)
    loops = torch.arange(20).expand(2, 20)
    for fill in (
        2.0,
        torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64),
        "mean",
        "add",
        "min",
        "max",
        "mul",
    ):
        conv = make(layer, 5, 4, edge_dim=3, fill_value=fill)
        if isinstance(fill, str):  # as PyG makes them
            written = add_self_loops(edges, attr, fill_value=fill, num_nodes=20)[1][-20:]
        else:
            written = torch.as_tensor(fill, dtype=torch.float64).expand(20, 3)
        explicit = make(layer, 5, 4, edge_dim=3, add_self_loops=False)
        wanted = explicit(x, torch.cat([edges, loops], dim=1), torch.cat([attr, written]))
        torch.testing.assert_close(conv(x, edges, attr), wanted)
    conv = make(layer, 5, 4, edge_dim=3, fill_value=torch.ones(2))
    with pytest.raises(
        ValueError, match=r"fill_value has shape \(2,\); allowed: a number, or a tens"
    ):
        conv(x, edges, attr)


@LAYERS
@pytest.mark.parametrize("form", MAKERS)
def test_values_of_a_sparse_adjacency_are_edge_features_or_it_is_said(layer, form):
    x, edges = random_graph()
    values = torch.rand(60, dtype=torch.float64) + 0.5
    adjacency = MAKERS[form](edges.flip(0), values, size=(20, 20))
    conv = make(layer, 5, 4, edge_dim=1)
    torch.testing.assert_close(conv(x, adjacency), conv(x, edges, values))
    plain = make(layer, 5, 4)
    with pytest.warns(
        UserWarning, match="the values of the sparse edge_index are not used: set edge_dim"
    ):
        plain(x, adjacency)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain(x, MAKERS[form](edges.flip(0), size=(20, 20)).double())


@pytest.mark.parametrize("form", ["coo", "csr"])
@pytest.mark.parametrize("name", ["EDAConv", "PHGCNConv", "GATConv", "GAT", "GlobalGNN"])
def test_a_hybrid_adjacency_holds_several_features_of_each_edge(name, form):
    x, edges = random_graph(dtype=torch.float32)
    values = torch.rand(60, 3)
    adjacency = torch.sparse_coo_tensor(edges.flip(0), values, (20, 20, 3)).coalesce()
    edges, values = adjacency.indices().flip(0), adjacency.values()
    if form == "csr":
        rows = torch.bincount(edges[1], minlength=20).cumsum(0)
        rows = torch.cat([rows.new_zeros(1), rows])
        adjacency = torch.sparse_csr_tensor(rows, edges[0], values, (20, 20, 3))
    conv = MAKE[name](edge_dim=3).eval()
    torch.testing.assert_close(conv(x, adjacency), conv(x, edges, edge_attr=values))
    if name != "GATConv":
        wrong = r"edge_attr has shape \(\d+, 3\), 3 for each edge; allowed: \(\d+, 2\), as edge_dim"
        for given, attr in ((adjacency, {}), (edges, {"edge_attr": values})):
            with pytest.raises(ValueError, match=wrong):
                MAKE[name](edge_dim=2)(x, given, **attr)


@pytest.mark.parametrize("form", MAKERS)
def test_local_layers_read_values_or_say_that_they_do_not(form):
    x, edges = random_graph(dtype=torch.float32)
    values = torch.rand(60) + 0.5
    adjacency = MAKERS[form](edges.flip(0), values, size=(20, 20))
    for model in (phgcn.nn.GCN(5, 4, 3), phgcn.nn.GlobalGNN(5, 8, 3, local="gcn")):
        out = model.eval()(x, adjacency)
        torch.testing.assert_close(out, model(x, edges, edge_weight=values))
        assert not torch.allclose(out, model(x, edges))
    for model in (phgcn.nn.GAT(5, 4, 3), phgcn.nn.GlobalGNN(5, 8, 3, local="sage")):
        with pytest.warns(UserWarning, match="values of the sparse edge_index are not used: this"):
            torch.testing.assert_close(model.eval()(x, adjacency), model(x, edges))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(x, MAKERS[form](edges.flip(0), size=(20, 20)))


@LAYERS
@pytest.mark.parametrize("form", MAKERS)
def test_attention_weights_of_a_sparse_adjacency_are_sparse(layer, form):
    x, edges = random_graph()
    adjacency = MAKERS[form](edges.flip(0), size=(20, 20)).double()
    conv = make(layer, 5, 4, heads=2)
    _, (matrix, alpha) = conv(x, adjacency, return_attention_weights=True)
    assert (
        matrix.layout == adjacency.layout and matrix.shape[:2] == (20, 20) and alpha.shape[1] == 2
    )
    sums = torch.zeros(20, 2, dtype=torch.float64)
    _, (used, weights) = conv(x, edges, return_attention_weights=True)
    dense = torch.zeros(20, 20, 2, dtype=torch.float64).index_put((used[1], used[0]), weights)
    torch.testing.assert_close(matrix.to_dense(), dense)
    torch.testing.assert_close(dense.sum(dim=1), sums + 1)


def test_vmap_over_the_decay_is_answered_clearly():
    positions, values = torch.randn(10, 2), torch.randn(10, 3)
    with pytest.raises(
        ValueError,
        match="decay is batched by vmap; allowed: a tensor of one decay per head, or a loop",
    ):
        torch.vmap(lambda decay: phgcn.global_attention(positions, values, decay=decay))(
            torch.tensor([1.0, 2.0])
        )
