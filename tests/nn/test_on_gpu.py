"""Layers on a GPU against the CPU, and their bits."""

import pytest
import torch
from clouds import normal, relative

from phgcn.nn import EDAConv, GlobalGNN, PHGCNConv

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@on_gpu
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("layer", [EDAConv, PHGCNConv])
def test_layers_on_a_gpu_are_those_on_the_cpu(layer, self_loops, weights):
    conv = layer(5, 3, heads=2, add_self_loops=self_loops, residual=True, learn_decay=True).double()
    x = normal(30, 5, seed=1)
    edge_index = torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(0))
    # self-loops, which count as often as they occur unless each node gets one
    edge_index[:, :9] = torch.arange(9)

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
    """The output and the gradients of one step."""
    out = model(x, edge_index)
    return out.detach(), *torch.autograd.grad(out.square().sum(), list(model.parameters()))


@on_gpu
@pytest.mark.parametrize("at", ["top", "each"])
@pytest.mark.parametrize("local", ["gcn", "sage", "gin", "eda", "none"])
def test_every_step_of_a_global_gnn_has_the_same_bits(local, at):
    torch.manual_seed(0)
    model = GlobalGNN(
        8, 16, 3, 3, local, global_layers=1, global_at=at, mass=True, dropout=0.0
    ).cuda()
    for block in model.global_blocks:
        torch.nn.init.normal_(block.gate)
    generator = torch.Generator().manual_seed(0)
    x = normal(500, 8).float().cuda()
    edge_index = torch.randint(500, (2, 20_000), generator=generator).cuda()
    edge_index[1, ::3] = 7  # a hub: many atomics would meet here
    out, *grads = train_step(model, x, edge_index)
    for _ in range(3):
        again = train_step(model, x, edge_index)
        assert all(torch.equal(a, b) for a, b in zip(again, (out, *grads), strict=True))
