"""What can be recorded into a CUDA graph; and layers on a GPU against the CPU."""

import pytest
import torch
from clouds import normal, relative

from phgcn import explain_method
from phgcn.lattice import Separable
from phgcn.nn import GAT, GATEDA, GCN, MLP, PHGCN, EDAConv, GlobalBlock, GlobalGNN, PHGCNConv
from phgcn.nn.local_conv import local_recordable, make_local
from phgcn.reproduce.geom_gcn import GeomGCN
from phgcn.train.recording import record

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    "nodes, settings, can",
    [
        (183, {}, True),
        (24_000, {}, True),
        (24_001, {}, False),  # a lattice from here on
        (24_001, {"embedding_dim": 17}, True),  # for which no lattice is built
        (100_000, {"method": "exact"}, True),
        (183, {"method": "lattice"}, False),
        (183, {"method": "separable"}, False),
        (183, {"method": Separable()}, False),
        (183, {"backend": "reference"}, False),
        (183, {"backend": "triton"}, True),
    ],
)
def test_a_layer_can_be_recorded_where_its_global_path_is_exact(nodes, settings, can):
    assert PHGCNConv(4, 2, **settings).recordable(nodes) is can


@pytest.mark.parametrize(
    "nodes, settings, can",
    [
        (24_000, {}, True),
        (24_001, {}, False),
        (24_001, {"method": "exact"}, True),
        (183, {"method": "lattice"}, False),
        (183, {"backend": "reference"}, False),
    ],
)
def test_a_global_block_can_be_recorded_where_it_is_exact(nodes, settings, can):
    assert GlobalBlock(4, **settings).recordable(nodes) is can


RECORDED = {"gcn": True, "sage": True, "gin": True, "eda": True, "none": True, "gat": False}


@pytest.mark.parametrize("local, can", RECORDED.items())
def test_local_layers_can_be_recorded_but_for_PyGs_own(local, can):
    conv = make_local(local, 8, 2, "auto")
    assert local_recordable(conv, 10**7, "auto") is can
    assert not local_recordable(make_local(local, 8, 2, "reference"), 10, "reference")


@pytest.mark.parametrize("nodes", [10, 24_000, 24_001, 10**6])
def test_by_default_a_layer_can_be_recorded_where_auto_says_that_it_is_exact(nodes):
    assert PHGCNConv(4, 2).recordable(nodes) is (explain_method(nodes, 4, "cuda").method == "exact")


def test_without_a_global_path_only_the_backend_matters():
    assert EDAConv(4, 2).recordable(10**7)
    assert not EDAConv(4, 2, backend="reference").recordable(10)


@pytest.mark.parametrize("model", [PHGCN, GATEDA, GeomGCN, MLP, GAT, GCN, GlobalGNN])
def test_nothing_is_recorded_on_the_cpu(model):
    assert not model(4, 2, 3).recordable(normal(5, 4).float())


@on_gpu
@pytest.mark.parametrize(
    "model, can", [(PHGCN, True), (GATEDA, True), (GeomGCN, True), (MLP, True), (GAT, False), (GCN, False)]
)
def test_models_of_this_package_are_recorded_on_a_gpu_for_dense_features(model, can):
    x = normal(5, 4).float().cuda()
    assert model(4, 2, 3).recordable(x) is can
    assert not model(4, 2, 3).recordable(x.to_sparse_csr())


@on_gpu
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("layer", [EDAConv, PHGCNConv])
def test_layers_on_a_gpu_are_those_on_the_cpu(layer, self_loops, weights):
    conv = layer(5, 3, heads=2, add_self_loops=self_loops, residual=True, learn_decay=True).double()
    x, edge_index = normal(30, 5, seed=1), torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(0))
    edge_index[:, :9] = torch.arange(9)  # self-loops, which count as often as they occur unless each node gets one

    def run(device):
        conv.to(device)
        result = conv(x.to(device), edge_index.to(device), return_attention_weights=weights)
        out, extra = (result[0], list(result[1])) if weights else (result, [])
        grads = torch.autograd.grad(out.square().sum(), list(conv.parameters()))
        return [t.detach().double().cpu() for t in (out, *extra, *grads)]

    on_cpu, on_gpu = run("cpu"), run("cuda")
    for got, want in zip(on_gpu, on_cpu, strict=True):
        assert relative(got, want) < 1e-9


@on_gpu
@pytest.mark.parametrize("layer", [EDAConv, PHGCNConv])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("node", [30, -1])
def test_an_edge_to_no_node_is_refused_on_a_gpu(layer, self_loops, node):
    conv = layer(5, 3, add_self_loops=self_loops).cuda()
    edge_index = torch.zeros(2, 8, dtype=torch.long, device="cuda")
    edge_index[:, 5] = node
    with pytest.raises(ValueError, match=rf"edge_index\[0, 5\] is {node}; allowed: 0 to 29"):
        conv(normal(30, 5, seed=1).float().cuda(), edge_index)


def train_step(model, x, edge_index):
    """Sets the gradients of one step, and returns the output; reads nothing from the device."""
    for p in model.parameters():
        p.grad = None
    out = model(x, edge_index)
    out.square().sum().backward()
    return out.detach(), [p.grad for p in model.parameters()]


@on_gpu
@pytest.mark.parametrize("at", ["top", "each"])
@pytest.mark.parametrize("local, can", RECORDED.items())
def test_a_recorded_step_of_a_global_gnn_has_the_bits_of_every_other(local, can, at):
    torch.manual_seed(0)
    model = GlobalGNN(8, 16, 3, 3, local, global_layers=1, global_at=at, mass=True, dropout=0.0).cuda()
    for block in model.global_blocks:
        torch.nn.init.normal_(block.gate)
    generator = torch.Generator().manual_seed(0)
    x, edge_index = normal(500, 8).float().cuda(), torch.randint(500, (2, 20_000), generator=generator).cuda()
    assert model.recordable(x) is can and not model.recordable(x.to_sparse_csr())
    if not can:
        return
    edge_index[1, ::3] = 7  # a hub: many atomics would meet here
    model(x, edge_index).sum().backward()
    out, grads = train_step(model, x, edge_index)
    out, grads = out.clone(), [g.clone() for g in grads]
    replay = record(lambda: train_step(model, x, edge_index), x.device)
    for _ in range(3):
        again, grads_again = replay()
        assert torch.equal(again, out)
        assert all(torch.equal(a, b) for a, b in zip(grads_again, grads, strict=True))


@on_gpu
def test_a_global_gnn_can_be_recorded_without_its_lattice():
    model, x = GlobalGNN(8, 16, 3, global_layers=1, method="lattice").cuda(), normal(50, 8).float().cuda()
    assert not model.recordable(x)
    model.set_global(False)
    assert model.recordable(x)
