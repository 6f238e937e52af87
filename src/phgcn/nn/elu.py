r"""The non-linearity of the layers, rounded the same wherever a number stands."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn.resolver import activation_resolver

# torch's own ELU rounds the last few numbers of an array, which do not fill a vector register, differently from the others:
# what is last depends on the nodes beside a graph. Its expm1 does not.
torch.library.define("phgcn::elu", "(Tensor x) -> Tensor")


@torch.library.impl("phgcn::elu", ("cpu", "cuda"))
def elu(x: Tensor) -> Tensor:
    r""":math:`x` where it is positive, else :math:`e^x - 1`."""
    out = x.clamp(max=0).expm1_()
    return torch.maximum(x, out, out=out)  # e^x - 1 is never below x, and 0 where x is positive


@torch.library.register_fake("phgcn::elu")
def _(x):
    return torch.empty_like(x)


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(output)


def _backward(ctx, grad):
    (out,) = ctx.saved_tensors
    return torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, out)


torch.library.register_autograd("phgcn::elu", _backward, setup_context=_setup_context)


class ELU(torch.nn.ELU):
    r""":math:`x` where it is positive, else :math:`e^x - 1`."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.phgcn.elu(x)


def make_activation(act: str | Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor] | None:
    """An activation by PyG's name for it, or as it is."""
    if act is None:
        return None
    return ELU() if act == "elu" else activation_resolver(act)
