"""The local layers of GlobalGNN against PyG's, of which they differ in how they sum."""

import pytest
import torch
from clouds import relative
from graphs import random_graph
from torch_geometric.nn import MLP, GATConv, GCNConv, GINConv, Linear, SAGEConv, SGConv

from phgcn.nn import EDAConv
from phgcn.nn.graph_input import GraphInput
from phgcn.nn.local_conv import LocalEdges, apply_local, make_local, prepare_edges

CUDA = torch.cuda.is_available()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="needs a GPU"))]
PYG = {
    "gcn": lambda: GCNConv(8, 8),
    "sage": lambda: SAGEConv(8, 8),
    "gin": lambda: GINConv(MLP([8, 8, 8], norm=None)),
    "gat": lambda: GATConv(8, 4, 2),
}


def edges_for(conv, x, edge_index, backend="auto"):
    return prepare_edges(conv, GraphInput(x, edge_index), backend)


def run(conv, x, edges):
    """The output, and the gradients of features and parameters."""
    x = x.clone().requires_grad_()
    out = apply_local(conv, x, edges) if isinstance(edges, LocalEdges) else conv(x, edges)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PYG)
def test_a_layer_is_PyGs_and_takes_its_weights(name, device):
    x, edge_index = (
        t.to(device) for t in random_graph(nodes=40, edges=160, channels=8, dtype=torch.float32)
    )
    # self-loops, which GCN and GAT replace, and the others keep
    assert bool((edge_index[0] == edge_index[1]).any())
    pyg, local = PYG[name]().to(device), make_local(name, 8, 2, "auto").to(device)
    local.load_state_dict(pyg.state_dict())
    assert isinstance(local, type(pyg))
    for got, want in zip(
        run(local, x, edges_for(local, x, edge_index)), run(pyg, x, edge_index), strict=True
    ):
        assert relative(got.cpu(), want.cpu()) < 1e-5


def test_propagation_is_one_step_of_SGConv():
    x, edge_index = random_graph(nodes=40, edges=160, channels=8)
    sgc, local = SGConv(8, 8, K=1, bias=False).double(), make_local("sgc", 8, 2, "auto")
    torch.nn.init.eye_(sgc.lin.weight)
    assert not list(local.parameters())
    assert (
        relative(apply_local(local, x, edges_for(local, x, edge_index)), sgc(x, edge_index)) < 1e-12
    )


@pytest.mark.parametrize("name", ["gcn", "sgc", "sage", "gin"])
def test_backends_agree(name):
    x, edge_index = random_graph(nodes=15, edges=50, channels=8)
    conv, results = make_local(name, 8, 2, "auto").double(), []
    for backend in ("reference", "numba", "triton"):
        device = "cuda" if CUDA and backend == "triton" else "cpu"
        conv, x, edge_index = (thing.to(device) for thing in (conv, x, edge_index))
        results.append([t.cpu() for t in run(conv, x, edges_for(conv, x, edge_index, backend))])
    for other in results[1:]:
        assert all(relative(a, b) < 1e-12 for a, b in zip(other, results[0], strict=True))


@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_half_types_are_summed_in_float32(name):
    nodes = 600  # more neighbours than bfloat16 can count
    edge_index = torch.stack([torch.arange(nodes), torch.zeros(nodes, dtype=torch.long)])
    conv, x = make_local(name, 8, 2, "auto"), torch.ones(nodes, 8)
    want = apply_local(conv, x, edges_for(conv, x, edge_index))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = apply_local(conv, x.bfloat16(), edges_for(conv, x, edge_index))
    assert relative(half, want) < 0.02


def test_the_other_layers():
    assert isinstance(make_local("none", 8, 2, "auto"), Linear)
    eda = make_local("eda", 8, 2, "reference")
    assert isinstance(eda, EDAConv) and (eda.out_channels, eda.heads, eda.backend) == (
        4,
        2,
        "reference",
    )
    assert isinstance(make_local(SAGEConv, 8, 2, "auto"), SAGEConv)


@pytest.mark.parametrize(
    "local, heads, message",
    [
        (
            "gatv2",
            2,
            "local is 'gatv2'; allowed: 'gcn', 'sgc', 'sage', 'gat', 'gin', 'eda', 'none', or a "
            "layer's class",
        ),
        (None, 2, "local is None; allowed: 'gcn'"),
        ("gat", 3, "hidden_channels is 8; allowed: a multiple of heads, which is 3"),
        ("eda", 3, "hidden_channels is 8; allowed: a multiple of heads, which is 3"),
    ],
)
def test_what_cannot_be_made_is_said(local, heads, message):
    with pytest.raises(ValueError, match=message):
        make_local(local, 8, heads, "auto")
