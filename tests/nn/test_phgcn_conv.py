"""What is particular to PHGCNConv: the paper's equations, the global path and its dropout."""

import pytest
import torch
from clouds import normal, relative
from graphs import dense_layer, make, random_graph
from torch_geometric.nn.models.basic_gnn import BasicGNN

import phgcn
from phgcn.crossings import CROSSINGS
from phgcn.lattice import Ladder, Separable
from phgcn.nn import PHGCNConv

SETTINGS = {
    "defaults": {},
    "averaged": {"concat": False},
    "residual": {"residual": True},
    "averaged with residual": {"concat": False, "residual": True},
    "without bias": {"bias": False},
    "learned decay": {"learn_decay": True, "decay_local": 0.7},
    "one dimension": {"embedding_dim": 1},
}


@pytest.mark.parametrize("layer", ["PHGCNConv", "EDAConv"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("batch", [None, torch.arange(20) % 3], ids=["one graph", "three graphs"])
def test_the_layer_is_the_paper_s_equations(layer, settings, batch):
    x, edge_index = random_graph()
    more = {"method": "exact", "decay_global": 3.0} if layer == "PHGCNConv" else {}
    conv = make(layer, 5, 4, heads=3, **settings, **more)
    if conv.gates is not None:
        # at 1, one could stand for another
        conv.gates.data.copy_(torch.linspace(0.5, -1.5, conv.paths + 1))
    x.requires_grad_()
    got = conv(x, edge_index, batch=batch)
    want = dense_layer(conv, x, edge_index, batch)
    assert got.shape == want.shape == (20, 4 if not conv.concat else conv.paths * 12)
    assert (got - want).abs().max() < 1e-10
    weight, inputs = normal(*got.shape, seed=7), [x, *conv.parameters()]
    grads = [torch.autograd.grad((out * weight).sum(), inputs) for out in (got, want)]
    for a, b in zip(*grads, strict=True):
        assert (a - b).abs().max() < 1e-10
        assert b.abs().max() > 1e-6  # the comparison says something of every parameter


def test_the_defaults_are_those_of_the_paper():
    conv = PHGCNConv(5, 4)
    assert (conv.decay_local(), conv.decay_global(), conv.embedding_dim) == (1.0, 10.0, 4)
    assert conv.method == "auto" and isinstance(conv.act, torch.nn.ELU)


def test_the_structural_half_is_EDAConv():
    x, edge_index = random_graph()
    conv = make("PHGCNConv", 5, 4, heads=3, act=None, bias=False)
    eda = make("EDAConv", 5, 4, heads=3, bias=False)
    eda.load_state_dict(conv.state_dict())
    assert torch.equal(conv(x, edge_index)[:, :12], eda(x, edge_index))
    assert not torch.equal(conv(x, edge_index)[:, 12:], eda(x, edge_index))


@pytest.mark.parametrize(
    "method", ["lattice", "lattice-fine", "separable", Ladder(pairs=4), Separable()], ids=str
)
def test_the_method_says_what_the_global_path_computes(method):
    x, edge_index = random_graph(500, 1000)
    exact, other = (make("PHGCNConv", 5, 4, heads=2, method=m) for m in ("exact", method))
    a, b = exact(x, edge_index), other(x, edge_index)
    assert torch.equal(a[:, :8], b[:, :8])  # the structural path has no method
    assert 1e-7 < relative(b[:, 8:], a[:, 8:]) < 0.5


CROSSING = CROSSINGS["cpu"][4].points
"""The largest graph that "auto" sums exactly."""


def by_method(x, edge_index, **given):
    methods = "auto", "exact", "lattice"
    return {m: make("PHGCNConv", 5, 4, method=m)(x, edge_index, **given) for m in methods}


@pytest.mark.parametrize("nodes", [500, CROSSING + 1])
def test_auto_is_the_method_that_explain_method_names(nodes):
    out = by_method(*random_graph(nodes, 1000))
    picked = phgcn.explain_method(nodes, dim=4).method
    assert picked == ("exact" if nodes == 500 else "lattice")
    assert torch.equal(out["auto"], out[picked])
    assert not torch.equal(out["exact"], out["lattice"])


def test_auto_picks_for_each_graph_of_a_batch_by_its_own_size():
    large = CROSSING + 1
    x, edge_index = random_graph(large + 100, 1000)
    batch = (torch.arange(large + 100) >= large).long()
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    out = by_method(x, edge_index, batch=batch)
    assert torch.equal(out["auto"][:large], out["lattice"][:large])
    assert torch.equal(out["auto"][large:], out["exact"][large:])


def test_the_backend_reaches_both_paths():
    backends = "reference", "numba"
    want, got = (make("PHGCNConv", 5, 4, backend=name)(*random_graph()) for name in backends)
    assert relative(got, want) < 1e-12


@pytest.mark.parametrize(
    "act, function", [("relu", torch.relu), (None, lambda x: x), (torch.nn.Tanh(), torch.tanh)]
)
def test_the_activation_may_be_chosen(act, function):
    x, edge_index = random_graph()
    plain = make("PHGCNConv", 5, 4, act=None)(x, edge_index)
    assert torch.equal(make("PHGCNConv", 5, 4, act=act)(x, edge_index), function(plain))
    averaged = [make("PHGCNConv", 5, 4, concat=False, act=a)(x, edge_index) for a in (act, None)]
    assert torch.equal(*averaged)


def unit_conv(layer, nodes, heads, dropout):
    """A layer whose values are the unit vectors of nodes: its output is the matrix of weights."""
    settings = {"act": None} if layer == "PHGCNConv" else {}
    conv = make(layer, nodes, nodes, heads=heads, dropout=dropout, bias=False, **settings)
    x = torch.eye(nodes, dtype=torch.float64)
    with torch.no_grad():
        conv.lin.weight.copy_(x.repeat(heads, 1))
    return conv, x


def test_dropout_on_the_global_path_drops_targets_for_all_that_attend_to_them():
    nodes, heads, drop = 12, 2, 0.4
    conv, x = unit_conv("PHGCNConv", nodes, heads, drop)
    edge_index = torch.empty(2, 0, dtype=torch.int64)
    weights, dropped = (
        conv.train(training)(x, edge_index)[:, heads * nodes :].view(nodes, heads, nodes)
        for training in (False, True)
    )
    ratio = dropped / weights
    # a column is kept or dropped as a whole
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio))
    kept = ratio[0] > 0
    assert 0 < kept.sum() < kept.numel()
    assert torch.allclose(ratio[0][kept], torch.tensor(1 / (1 - drop), dtype=torch.float64))
    assert not torch.equal(kept[0], kept[1])  # each head on its own


@pytest.mark.parametrize("layer", ["PHGCNConv", "EDAConv"])
def test_dropout_on_the_structural_path_drops_single_weights(layer):
    nodes, drop = 12, 0.4
    conv, x = unit_conv(layer, nodes, 1, drop)
    edge_index = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
    torch.manual_seed(1)
    ratio = conv.train()(x, edge_index)[:, :nodes] / conv.eval()(x, edge_index)[:, :nodes]
    scaled = torch.tensor(1 / (1 - drop), dtype=torch.float64)
    assert bool((torch.isclose(ratio, scaled) | (ratio == 0)).all())
    columns = (ratio > 0).sum(dim=0)
    assert bool(((columns > 0) & (columns < nodes)).any())  # no column is dropped as a whole
    assert abs(float((ratio == 0).double().mean()) - drop) < 0.15


def test_dropout_keeps_the_expected_output():
    x, edge_index = random_graph()
    conv = make("PHGCNConv", 5, 4, dropout=0.5, act=None)
    mean = torch.stack([conv(x, edge_index) for _ in range(500)]).mean(dim=0)
    want = conv.eval()(x, edge_index)
    assert torch.equal(want, conv(x, edge_index))
    assert relative(mean, want) < 0.1


def test_learned_decays_start_at_the_given_ones_stay_positive_and_learn():
    x, edge_index = random_graph()
    decays = {"decay_local": 2.0, "decay_global": 7.0}
    conv = make("PHGCNConv", 5, 4, heads=2, learn_decay=True, **decays)
    seven = torch.full((2,), 7.0, dtype=torch.float64)
    torch.testing.assert_close(conv.decay_local(), seven / 3.5)
    torch.testing.assert_close(conv.decay_global(), seven)
    fixed = make("PHGCNConv", 5, 4, heads=2, **decays)
    assert relative(conv(x, edge_index), fixed(x, edge_index)) < 1e-6
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        conv(x, edge_index).square().sum().backward()
        optimizer.step()
    assert bool((conv.decay_local() > 0).all()) and bool((conv.decay_global() > 0).all())
    assert not torch.allclose(conv.decay_global(), seven)
    conv.reset_parameters()
    torch.testing.assert_close(conv.decay_global(), seven)


class PHGNN(BasicGNN):
    """The layer in PyG's own stack: out_channels are those of all heads and paths together."""

    supports_edge_weight = False
    supports_edge_attr = False
    supports_norm_batch = False

    def init_conv(self, in_channels, out_channels, heads=1, **kwargs):
        return PHGCNConv(in_channels, out_channels // (2 * heads), heads, act=None, **kwargs)


@pytest.mark.parametrize("jk", [None, "cat"])
def test_the_layer_stacks_in_PyG_s_basic_models(jk):
    settings = {"num_layers": 3, "out_channels": 8, "heads": 2, "dropout": 0.1}
    model = PHGNN(5, 16, norm="batch_norm", jk=jk, **settings)
    out = model(*random_graph(dtype=torch.float32))
    assert out.shape == (20, 8)
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert isinstance(model.convs[0], PHGCNConv) and len(model.convs) == 3


def test_a_layer_can_learn_what_only_the_whole_graph_tells():
    """The label of a node is the commonest kind of its graph, which has no edges."""
    torch.manual_seed(0)
    conv = PHGCNConv(2, 8, heads=2, decay_global=0.1)
    model = torch.nn.ModuleList([conv, torch.nn.Linear(32, 2)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    edge_index, batch = torch.empty(2, 0, dtype=torch.int64), torch.arange(330) // 11
    for step in range(121):
        kind = torch.randint(0, 2, (30, 11))
        label = (kind.sum(dim=1) > 5).long().repeat_interleave(11)
        x = torch.nn.functional.one_hot(kind.flatten(), 2).float()
        out = model[1](conv(x, edge_index, batch=batch))
        if step < 120:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(out, label).backward()
            optimizer.step()
    assert (out.argmax(dim=1) == label).float().mean() > 0.9
