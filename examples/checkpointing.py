"""Gradient checkpointing: activations are computed again in the backward pass, and gradients are
the same.
"""

import torch
from torch.utils.checkpoint import checkpoint

from phgcn.nn import PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv

torch.manual_seed(0)
x, edge_index = torch.randn(50, 16, requires_grad=True), torch.randint(50, (2, 200))
layers = {
    "PHGCNConv": (PHGCNConv(16, 8, heads=2, dropout=0.5), (x, edge_index)),
    "EDAConv": (EDAConv(16, 8, heads=2, dropout=0.5), (x, edge_index)),
    "GlobalAttention": (GlobalAttention(16, 8, heads=2, dropout=0.5), (x,)),
    "GlobalBlock": (GlobalBlock(16, dropout=0.5), (x,)),
    "GlobalGNN": (GlobalGNN(16, 32, 3, global_layers=1), (x, edge_index)),
    "PHGCN": (PHGCN(16, 8, 3), (x, edge_index)),
}
for name, (layer, inputs) in layers.items():
    grads = []
    for call in (
        layer,
        lambda *inputs, layer=layer: checkpoint(layer, *inputs, use_reentrant=False),
    ):
        torch.manual_seed(1)  # of dropout
        grads.append(torch.autograd.grad(call(*inputs).square().sum(), x)[0])
    assert torch.equal(*grads)
    print(f"{name}: the same gradients, bit for bit")
