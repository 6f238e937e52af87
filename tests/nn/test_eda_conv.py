"""What PyG users expect of a layer, for EDAConv and PHGCNConv alike."""

import copy
import inspect

import pytest
import torch
from clouds import forced, normal, relative
from graphs import LAYERS, formats, make, random_graph
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, Sequential
from torch_geometric.utils import remove_self_loops

pytestmark = pytest.mark.parametrize("layer", LAYERS)


def test_repr_and_shapes(layer):
    x, edge_index = random_graph(channels=16)
    conv = make(layer, 16, 8, heads=4)
    assert str(conv) == f"{layer}(16, 8, heads=4)"
    assert conv(x, edge_index).shape == (20, conv.paths * 32)
    assert make(layer, 16, 8, heads=4, concat=False)(x, edge_index).shape == (20, 8)


def test_only_what_GATConv_has_in_the_same_place_is_positional(layer):
    ours, theirs = (list(inspect.signature(conv).parameters.values()) for conv in (LAYERS[layer], GATConv))
    positional = [p.name for p in ours if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == [p.name for p in theirs[:3]] == ["in_channels", "out_channels", "heads"]
    shared = {p.name: p.default for p in theirs} | {"residual": False}
    assert all(p.default == shared[p.name] for p in ours if p.name in shared)
    with pytest.raises(TypeError, match="positional"):
        LAYERS[layer](5, 4, 2, False)


@pytest.mark.parametrize("residual", [False, True])
def test_lazy_input_size(layer, residual):
    x, edge_index = random_graph()
    lazy, eager = make(layer, -1, 4, heads=2, residual=residual), make(layer, 5, 4, heads=2, residual=residual)
    lazy(x, edge_index)
    assert lazy.lin.weight.shape == eager.lin.weight.shape
    lazy.load_state_dict(eager.state_dict())
    assert torch.equal(lazy(x, edge_index), eager(x, edge_index))
    fresh = make(layer, -1, 4, heads=2, residual=residual)
    fresh.load_state_dict(eager.state_dict())  # before the first call
    assert torch.equal(fresh(x, edge_index), eager(x, edge_index))


def test_reset_parameters_draws_all_weights_anew(layer):
    conv = make(layer, 5, 4, heads=2, residual=True, learn_decay=True)
    before = {name: p.clone() for name, p in conv.named_parameters()}
    with torch.no_grad():
        for p in conv.parameters():
            p.fill_(0.5)
    conv.reset_parameters()
    for name, p in conv.named_parameters():
        assert not bool((p == 0.5).any()), name
        if not any(word in name for word in ("decay", "bias", "gates")):
            assert not torch.equal(p, before[name]), name
            assert p.abs().max() > 0.1, name
    assert bool((conv.bias == 0).all()) and bool((conv.gates == 1).all())


def test_formats_of_edges_give_the_same_output(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4, heads=2)
    want = conv(x, edge_index)
    assert relative(conv(x, edge_index.flip(0)), want) > 1e-3  # the direction matters
    for name, same in formats(edge_index, 20).items():
        assert relative(conv(x, same), want) < 1e-12, name


def test_sparse_features_give_the_same_output_and_gradients(layer):
    x, edge_index = random_graph()
    x = x * (x > 0.5)
    conv = make(layer, 5, 4, heads=2, residual=True)
    want = conv(x, edge_index)
    grads = torch.autograd.grad(want.square().sum(), conv.parameters())
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        lazy = make(layer, -1, 4, heads=2, residual=True)
        lazy(sparse, edge_index)
        lazy.load_state_dict(conv.state_dict())
        got = lazy(sparse, edge_index)
        assert relative(got, want) < 1e-12
        for a, b in zip(torch.autograd.grad(got.square().sum(), lazy.parameters()), grads, strict=True):
            assert relative(a, b) < 1e-12


def test_each_node_has_one_self_loop_whatever_the_edges_have(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4)
    bare = remove_self_loops(edge_index)[0]
    assert bare.size(1) < edge_index.size(1)
    loops = torch.arange(20).repeat(2, 3)
    assert torch.equal(conv(x, bare), conv(x, edge_index))
    assert torch.equal(conv(x, torch.cat([bare, loops], dim=1)), conv(x, edge_index))
    without = make(layer, 5, 4, add_self_loops=False)
    assert relative(without(x, torch.cat([bare, loops[:, :20]], dim=1)), conv(x, edge_index)) < 1e-12
    assert relative(without(x, bare), conv(x, edge_index)) > 1e-3


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
    assert used.shape == (2, remove_self_loops(edge_index)[0].size(1) + 20) and alpha.shape == (used.size(1), 2)
    sums = torch.zeros(20, 2, dtype=torch.float64).index_add(0, used[1], alpha)
    assert torch.allclose(sums, torch.ones_like(sums))
    values = conv.lin(x).view(20, 2, 4)
    gathered = torch.zeros(20, 2, 4, dtype=torch.float64).index_add(0, used[1], alpha.unsqueeze(-1) * values[used[0]])
    want = gathered.flatten(1) if layer == "EDAConv" else torch.nn.functional.elu(gathered.flatten(1))
    assert torch.allclose(out[:, :8], want)


def test_isolated_nodes_and_empty_graphs(layer):
    x = normal(6, 5)
    edge_index = torch.tensor([[0, 1], [1, 2]])
    conv = make(layer, 5, 4, heads=2, bias=False)
    alone = conv(x, edge_index)[5, :8]
    value = conv.lin(x)[5]
    assert torch.allclose(alone, value if layer == "EDAConv" else torch.nn.functional.elu(value))
    without = make(layer, 5, 4, heads=2, bias=False, add_self_loops=False)
    assert bool((without(x, edge_index)[5, :8] == 0).all())
    none = torch.empty(2, 0, dtype=torch.int64)
    for nodes in (0, 1, 6):
        out = conv(x[:nodes].requires_grad_(), none)
        assert out.shape == (nodes, conv.paths * 8)
        out.sum().backward()
    assert without(x[:0], none).shape == (0, conv.paths * 8)


def _graphs(count=3):
    """Graphs of different sizes, and all of them in one batch."""
    graphs = [random_graph(nodes, 3 * nodes, seed=nodes, dtype=torch.float32) for nodes in (7, 40, 19)[:count]]
    return graphs, Batch.from_data_list([Data(x=x, edge_index=e) for x, e in graphs])


METHODS = {"auto": "auto", "exact": "exact", "lattice": forced("lattice", 4, 1), "separable": "separable"}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("concat", [True, False])
def test_graphs_in_a_batch_are_the_graphs_alone(layer, method, concat):
    """Up to rounding: torch's matrix product may round a row differently when other rows are beside it."""
    graphs, data = _graphs()
    settings = {"method": method} if layer == "PHGCNConv" else {}
    conv = make(layer, 5, 6, heads=3, concat=concat, residual=True, dtype=torch.float32, **settings)
    given = {"batch": data.batch} if layer == "PHGCNConv" else {}
    alone = torch.cat([conv(x, e) for x, e in graphs])
    assert torch.allclose(conv(data.x, data.edge_index, **given), alone, rtol=1e-6, atol=1e-6)
    # The same with the nodes of all graphs mixed, those of each still in their order, and the edges in theirs.
    place = torch.argsort(torch.rand(66, generator=torch.Generator().manual_seed(1)))
    for graph in range(3):
        members = data.batch == graph
        place[members] = place[members].sort().values
    x, mixed = torch.empty_like(data.x), torch.empty_like(data.batch)
    x[place], mixed[place] = data.x, data.batch
    given = {"batch": mixed} if layer == "PHGCNConv" else {}
    assert torch.allclose(conv(x, place[data.edge_index], **given)[place], alone, rtol=1e-6, atol=1e-6)


def test_permuting_nodes_permutes_the_output(layer):
    x, edge_index = random_graph(50, 200)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    conv = make(layer, 5, 4, heads=2)
    assert relative(conv(x[order], place[edge_index]), conv(x, edge_index)[order]) < 1e-12


def test_Data_and_Batch_objects_and_PyG_s_Sequential(layer):
    _, data = _graphs()
    conv = make(layer, 5, 4, dtype=torch.float32)
    arguments = "x, edge_index, batch=batch" if layer == "PHGCNConv" else "x, edge_index"
    model = Sequential("x, edge_index, batch", [(conv, f"{arguments} -> x"), torch.nn.Linear(4 * conv.paths, 2)])
    given = {"batch": data.batch} if layer == "PHGCNConv" else {}
    want = conv(data.x, data.edge_index, **given)
    assert torch.equal(model(data.x, data.edge_index, data.batch), model[1](want))


def test_the_layer_moves_between_types(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4, learn_decay=True, residual=True, dtype=torch.float32)
    single = conv(x.float(), edge_index)
    double = conv.to("cpu").double()(x, edge_index)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert 0 < relative(single, double) < 1e-5
    half = conv.bfloat16()(x.bfloat16(), edge_index)
    assert half.dtype == torch.bfloat16 and relative(half, double) < 0.1


@pytest.mark.parametrize("settings", [{}, {"learn_decay": True, "residual": True, "concat": False}])
def test_saved_weights_and_copies_give_the_same_output(layer, settings, tmp_path):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4, heads=2, **settings)
    want = conv(x, edge_index)
    torch.save(conv.state_dict(), tmp_path / "weights.pt")
    other = make(layer, 5, 4, heads=2, seed=1, **settings)
    assert not torch.equal(other(x, edge_index), want)
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert torch.equal(other(x, edge_index), want)
    twin = copy.deepcopy(conv)
    assert torch.equal(twin(x, edge_index), want)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    assert torch.equal(conv(x, edge_index), want)


@pytest.mark.parametrize("settings", [{}, {"learn_decay": True, "residual": True}, {"add_self_loops": False}])
def test_compiles_as_one_graph(layer, settings):
    x, edge_index = random_graph(dtype=torch.float32)  # with self-loops, whose number a compiled graph cannot know
    conv = make(layer, 5, 4, heads=2, dtype=torch.float32, **settings)
    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    want, got = conv(x, edge_index), compiled(x, edge_index)
    assert torch.equal(got, want)
    for a, b in zip(
        torch.autograd.grad(got.square().sum(), conv.parameters()),
        torch.autograd.grad(want.square().sum(), conv.parameters()),
        strict=True,
    ):
        assert relative(a, b) < 1e-5
    for nodes in (31, 47):  # other sizes
        other = random_graph(nodes, 3 * nodes, dtype=torch.float32)
        assert torch.equal(compiled(*other), conv(*other))
    with pytest.raises(Exception, match=r"edge_index\[1, 3\] is 20; allowed: 0 to 19"):
        bad = edge_index.clone()
        bad[1, 3] = 20
        compiled(x, bad)


def test_autocast(layer):
    x, edge_index = random_graph(dtype=torch.float32)
    conv = make(layer, 5, 4, heads=2, residual=True, learn_decay=True, dtype=torch.float32)
    want = conv(x, edge_index)
    for given in (x, x.bfloat16()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = conv(given, edge_index)
        assert relative(got, want) < 0.05
        conv.zero_grad()
        got.float().sum().backward()
        assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in conv.parameters())


def test_gradient_checkpointing(layer):
    x, edge_index = random_graph()
    conv = make(layer, 5, 4, heads=2, dropout=0.5)
    grads = []
    for call in (conv, lambda *args: checkpoint(conv, *args, use_reentrant=False)):
        torch.manual_seed(0)
        grads.append(torch.autograd.grad(call(x, edge_index).square().sum(), conv.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


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


SHAPES = {"texas": (183, 1703, 0.05), "cora": (2708, 1433, 0.01), "hidden layer": (3000, 37, 1.0)}
"""Nodes, features and the share of features that is not 0, as in these graphs."""
LAYOUTS = [(shape, layout) for shape in ("texas", "cora") for layout in ("dense", "csr", "coo")] + [("hidden layer", "dense")]


@pytest.mark.parametrize("shape, layout", LAYOUTS)
def test_a_training_step_gives_the_same_bits_for_any_number_of_threads(layer, threads, shape, layout):
    nodes, channels, density = SHAPES[shape]
    x, edge_index = random_graph(nodes, 4 * nodes, channels, dtype=torch.float32)
    x = x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < density)
    x = {"dense": x, "csr": x.to_sparse_csr(), "coo": x.to_sparse_coo()}[layout]
    settings = {"heads": 8, "residual": True, "learn_decay": True, "dropout": 0.5, "dtype": torch.float32}
    results = []
    for count in (1, 3, 4):
        threads(count)
        conv = make(layer, channels, 8, **settings)
        optimizer = torch.optim.Adam(conv.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            out = conv(x, edge_index)
            torch.nn.functional.cross_entropy(out, torch.arange(nodes) % 7).backward()
            optimizer.step()
        results.append([out, *conv.parameters(), *(p.grad for p in conv.parameters())])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


BAD = {
    "an index too large": (
        lambda x, e: (x, torch.cat([e, torch.tensor([[3], [20]])], 1)),
        r"edge_index\[1, 60\] is 20; allowed: 0 to 19",
    ),
    "a negative index": (
        lambda x, e: (x, torch.cat([e, torch.tensor([[-1], [2]])], 1)),
        r"edge_index\[0, 60\] is -1; allowed: 0",
    ),
    "edges of floats": (lambda x, e: (x, e.double()), r"edge_index is torch.float64; allowed: int64"),
    "edges as rows": (lambda x, e: (x, e.t()), r"edge_index has shape \(60, 2\)"),
    "edges as a list": (lambda x, e: (x, e.tolist()), r"edge_index is a list; allowed: a tensor"),
    "a matrix of other size": (
        lambda x, e: (x, torch.eye(7).to_sparse_csr()),
        r"edge_index is a sparse matrix of shape \(7, 7\)",
    ),
    "NaN": (lambda x, e: (x.index_fill(0, torch.tensor(3), torch.nan), e), r"x\[3, 0\] is nan; allowed: finite numbers"),
    "sparse NaN": (lambda x, e: ((x * torch.nan).to_sparse_csr(), e), r"x.values\(\)\[0\] is nan; allowed: finite"),
    "infinity": (lambda x, e: (x.index_fill(0, torch.tensor(3), torch.inf), e), r"x\[3, 0\] is inf; allowed: finite numbers"),
    "another type": (lambda x, e: (x.float(), e), r"x is torch.float32; allowed: torch.float64, as the layer's weights"),
    "integers": (lambda x, e: (x.long(), e), r"x is torch.int64; allowed: torch.float64"),
    "another width": (lambda x, e: (x[:, :4], e), r"x has shape \(20, 4\); allowed: \(N, 5\)"),
    "one node": (lambda x, e: (x[0], e), r"x has shape \(5,\); allowed: \(N, 5\)"),
}


@pytest.mark.parametrize("bad, message", BAD.values(), ids=BAD)
def test_bad_input_is_refused_by_name(layer, bad, message):
    x, edge_index = random_graph()
    with pytest.raises(ValueError, match=message):
        make(layer, 5, 4)(*bad(x, edge_index))


SETTINGS = {
    "in_channels": (0, "a positive integer, or -1"),
    "out_channels": (-1, "a positive integer"),
    "heads": (0, "a positive integer"),
    "embedding_dim": (1.5, "a positive integer"),
    "dropout": (1.5, "0 to 1"),
    "decay_local": (0, "a positive number"),
    "backend": ("cuda", "'auto'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_bad_settings_are_refused_by_name(layer, name):
    value, allowed = SETTINGS[name]
    with pytest.raises(ValueError, match=f"{name} is {value!r}; allowed: {allowed}"):
        LAYERS[layer](**{"in_channels": 5, "out_channels": 4, name: value})
