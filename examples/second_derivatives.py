"""Second derivatives, for gradient penalties: of exact attention and of attention to neighbours. A
lattice has none.
"""

import torch

from phgcn.nn import PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv

torch.manual_seed(0)
x, edge_index = torch.randn(30, 8, dtype=torch.float64), torch.randint(30, (2, 90))
layers = {
    "PHGCNConv": (PHGCNConv(8, 4, heads=2, method="exact"), (edge_index,)),
    "EDAConv": (EDAConv(8, 4, heads=2), (edge_index,)),
    "GlobalAttention": (GlobalAttention(8, 4, heads=2, method="exact"), ()),
    "GlobalBlock": (GlobalBlock(8, method="exact"), ()),
    "GlobalGNN": (GlobalGNN(8, 16, 3, global_layers=1, method="exact").eval(), (edge_index,)),
    "PHGCN": (PHGCN(8, 4, 3, method="exact").eval(), (edge_index,)),
}


def penalty(layer, x, *rest):
    """The squared norm of the gradient of the output with respect to the features."""
    (grad,) = torch.autograd.grad(layer(x, *rest).square().sum(), x, create_graph=True)
    return grad.square().sum()


for name, (layer, rest) in layers.items():
    layer.double()
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    direction, leaf = torch.randn_like(x), x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(penalty(layer, leaf, *rest), leaf)
    moved = [
        penalty(layer, (x + step * direction).requires_grad_(), *rest).detach()
        for step in (1e-6, -1e-6)
    ]
    slope, want = float((grad * direction).sum()), float((moved[0] - moved[1]) / 2e-6)
    assert abs(slope - want) < 1e-4 * abs(want)
    print(f"{name}: slope of the penalty {slope:.6g}, by differences {want:.6g}")

lattice = GlobalAttention(8, 4, method="lattice").double()
try:
    penalty(lattice, x.clone().requires_grad_()).backward()
except RuntimeError as error:
    print(error)
