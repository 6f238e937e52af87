"""Autocast: outputs have its type, and gradients that of the weights."""

import torch

from phgcn.nn import PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv

torch.manual_seed(0)
x, edge_index = torch.randn(50, 16), torch.randint(50, (2, 200))
layers = {
    "PHGCNConv": (PHGCNConv(16, 8, heads=2, residual=True), (x, edge_index)),
    "EDAConv": (EDAConv(16, 8, heads=2, residual=True), (x, edge_index)),
    "GlobalAttention": (GlobalAttention(16, 8, heads=2), (x,)),
    # adds to its input: in float32, the sum is in float32
    "GlobalBlock": (GlobalBlock(16), (x.bfloat16(),)),
    "GlobalGNN": (GlobalGNN(16, 32, 3, global_layers=1), (x, edge_index)),
    "PHGCN": (PHGCN(16, 8, 3, residual=True), (x, edge_index)),
}
for name, (layer, inputs) in layers.items():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(*inputs)
    out.float().square().mean().backward()
    assert out.dtype == torch.bfloat16
    assert all(
        p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters()
    )
    print(f"{name}: {str(out.dtype).removeprefix('torch.')}")
