"""Features and weights of edges, on the structural path."""

import pytest
import torch
from clouds import normal, relative
from graphs import LAYERS, make, random_graph
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import add_self_loops, remove_self_loops, softmax

from phgcn.nn import EDAConv, GlobalGNN


def written_out(conv, x, edge_index, edge_attr=None, edge_weight=None):
    """The structural path by PyG's own functions, self-loops filled in as GATConv does."""
    if conv.add_self_loops:
        loops_removed = [remove_self_loops(edge_index, rows) for rows in (edge_attr, edge_weight)]
        bare = loops_removed[0][0]
        edge_attr, edge_weight = (
            None
            if rows is None
            else add_self_loops(bare, rows, fill_value=fill, num_nodes=len(x))[1]
            for (_, rows), fill in zip(loops_removed, ("mean", 1.0), strict=True)
        )
        edge_index = add_self_loops(bare, num_nodes=len(x))[0]
    positions, values = conv.project(x)
    source, target = edge_index
    exponent = -conv.decay_local() * (positions[source] - positions[target]).norm(dim=-1)
    if edge_attr is not None:
        exponent = exponent + edge_attr @ conv.lin_edge.weight.t()
    if edge_weight is not None:
        exponent = exponent + edge_weight.log().unsqueeze(-1)
    alpha = softmax(exponent, target, num_nodes=len(x))
    return (
        torch.zeros_like(values)
        .index_add(0, target, alpha.unsqueeze(-1) * values[source])
        .flatten(1)
    )


@pytest.mark.parametrize("settings", [{}, {"add_self_loops": False}], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_they_enter_the_softmax_as_written_out(layer, settings):
    x, edge_index = random_graph()
    edge_attr = normal(60, 3, seed=1).requires_grad_()
    edge_weight = normal(60, seed=2).abs().requires_grad_()
    extra = {"act": None} if layer == "PHGCNConv" else {}
    conv = make(layer, 5, 4, heads=2, edge_dim=3, bias=False, **settings, **extra)
    for given in (
        {"edge_attr": edge_attr},
        {"edge_weight": edge_weight},
        {"edge_attr": edge_attr, "edge_weight": edge_weight},
    ):
        got, want = conv(x, edge_index, **given)[:, :8], written_out(conv, x, edge_index, **given)
        assert relative(got, want) < 1e-12
        for a, b in zip(
            *(
                torch.autograd.grad(out.square().sum(), [conv.embedding, *given.values()])
                for out in (got, want)
            ),
            strict=True,
        ):
            assert relative(a, b) < 1e-9
    plain = conv(x, edge_index)
    assert relative(conv(x, edge_index, edge_weight=torch.ones(60)), plain) < 1e-12
    assert relative(conv(x, edge_index, edge_attr), plain) > 1e-3  # the third place, as in GATConv


@pytest.mark.parametrize("layer", LAYERS)
def test_an_edge_of_weight_0_does_not_count(layer):
    x, edge_index = random_graph()
    weight = (torch.arange(60) % 3 > 0).double()
    conv = make(layer, 5, 4, heads=2)
    got, want = conv(x, edge_index, edge_weight=weight), conv(x, edge_index[:, weight > 0])
    torch.testing.assert_close(got, want)
    with pytest.raises(ValueError, match=r"edge_weight\[4\] is -1.0; allowed: non-negative"):
        conv(x, edge_index, edge_weight=weight.index_fill(0, torch.tensor(4), -1.0))


@pytest.mark.parametrize("layer", LAYERS)
def test_lazy_sizes_vectors_and_returned_weights(layer):
    x, edge_index = random_graph()
    lazy = make(layer, 5, 4, heads=2, edge_dim=-1)
    _, (edges, alpha) = lazy(x, edge_index, normal(60), return_attention_weights=True)
    assert lazy.lin_edge.weight.shape == (2, 1)
    sums = torch.zeros(20, 2, dtype=torch.float64).index_add(0, edges[1], alpha)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert edges.shape == (2, len(alpha))


def test_compiled_as_eager():
    x, edge_index = random_graph()  # with self-loops, which a compiled graph redirects
    conv = make("PHGCNConv", 5, 4, heads=2, edge_dim=3)
    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    given = normal(60, 3, seed=1), normal(60, seed=2).abs()
    got, want = (call(x, edge_index, given[0], edge_weight=given[1]) for call in (compiled, conv))
    torch.testing.assert_close(got, want)


BAD = {
    "no edge_dim": (
        {},
        {"edge_attr": torch.ones(60, 3)},
        r"edge_attr is given; allowed: None, as the layer was made without",
    ),
    "rows": (
        {"edge_dim": 3},
        {"edge_attr": torch.ones(59, 3)},
        r"edge_attr has shape \(59, 3\); allowed: \(60, edge_dim\)",
    ),
    "integers": (
        {"edge_dim": 3},
        {"edge_attr": torch.ones(60, 3).long()},
        r"edge_attr is torch.int64; allowed: torch.float64",
    ),
    "a list": (
        {"edge_dim": 1},
        {"edge_attr": [1.0] * 60},
        r"edge_attr is a list; allowed: a tensor",
    ),
    "weights": (
        {},
        {"edge_weight": torch.ones(60, 1)},
        r"edge_weight has shape \(60, 1\); allowed: \(60,\)",
    ),
    "NaN": (
        {},
        {"edge_weight": torch.full((60,), torch.nan)},
        r"edge_weight\[0\] is nan; allowed: finite",
    ),
}


@pytest.mark.parametrize("settings, given, message", BAD.values(), ids=BAD)
@pytest.mark.parametrize("layer", LAYERS)
def test_bad_ones_are_refused_by_name(layer, settings, given, message):
    x, edge_index = random_graph()
    with pytest.raises(ValueError, match=message):
        make(layer, 5, 4, **settings)(x, edge_index, **given)


def test_they_are_refused_beside_a_matrix_of_edges():
    x, edge_index = random_graph()
    with pytest.raises(ValueError, match="edge_weight is given beside a sparse matrix of edges"):
        matrix = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(60), (20, 20))
        make("EDAConv", 5, 4)(x, matrix, edge_weight=torch.ones(60))


# GlobalGNN


def gnn(local, **settings):
    torch.manual_seed(0)
    return GlobalGNN(
        5,
        8,
        3,
        local=local,
        heads=2,
        dropout=0.0,
        norm=None,
        residual=False,
        num_layers=1,
        **settings,
    ).double()


def test_local_layers_get_what_they_take():
    x, edge_index = random_graph()
    edge_attr, edge_weight = normal(60, 3, seed=1), normal(60, seed=2).abs()
    same = {  # PyG's layers with the same weights
        "gcn": (GCNConv(8, 8), {}, {"edge_weight": edge_weight}),
        "gat": (GATConv(8, 4, 2, edge_dim=3), {"edge_dim": 3}, {"edge_attr": edge_attr}),
        "eda": (
            EDAConv(8, 4, 2, edge_dim=3),
            {"edge_dim": 3},
            {"edge_attr": edge_attr, "edge_weight": edge_weight},
        ),
        GCNConv: (GCNConv(8, 8), {}, {"edge_weight": edge_weight}),
    }
    for local, (conv, settings, given) in same.items():
        model = gnn(local, **settings)
        conv.double().load_state_dict(model.local_blocks[0].conv.state_dict())
        got, plain = model(x, edge_index, **given), model(x, edge_index)
        want = model.lin_out(conv(model.lin_in(x), edge_index, **given).relu())
        assert relative(got, want) < 1e-12 and relative(plain, want) > 1e-3, local
        data = Data(x=x, edge_index=edge_index, **given)
        assert torch.equal(model(data), got)


def test_local_layers_refuse_what_they_cannot_use():
    x, edge_index = random_graph()
    for local in ("sage", "gin", "none", SAGEConv):
        with pytest.raises(
            ValueError, match="edge_weight is given; allowed: None, as the layer has no use"
        ):
            gnn(local)(x, edge_index, edge_weight=torch.ones(60))
        data = Data(x=x, edge_index=edge_index, edge_weight=torch.ones(60))
        # an object may hold more than is used
        assert torch.equal(gnn(local)(data), gnn(local)(x, edge_index))
    with pytest.raises(
        ValueError,
        match="edge_dim is 3; allowed for local 'gcn': None; for 'gat' and 'eda': a size",
    ):
        gnn("gcn", edge_dim=3)
