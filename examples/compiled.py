"""torch.compile: one graph without breaks. Give a backend of it as an argument, such as aot_eager,
to do without a compiler.
"""

import sys

import torch

from phgcn.nn import PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv

backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
torch.manual_seed(0)
x, edge_index = torch.randn(50, 16), torch.randint(50, (2, 200))
layers = {
    "PHGCNConv": (PHGCNConv(16, 8, heads=2), (x, edge_index)),
    "EDAConv": (EDAConv(16, 8, heads=2), (x, edge_index)),
    "GlobalAttention": (GlobalAttention(16, 8, heads=2), (x,)),
    "GlobalBlock": (GlobalBlock(16), (x,)),
    "GlobalGNN": (GlobalGNN(16, 32, 3, global_layers=1).eval(), (x, edge_index)),
    "PHGCN": (PHGCN(16, 8, 3).eval(), (x, edge_index)),
}
for name, (layer, inputs) in layers.items():
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    want, got = layer(*inputs), compiled(*inputs)
    got.square().sum().backward()
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-5)
    print(f"{name}: compiled as eager, up to {float((got - want).detach().abs().max()):.0e}")
