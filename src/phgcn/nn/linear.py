r"""A linear map of node features whose rows do not notice each other, and that takes sparse features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torch_geometric.nn.dense.linear as pyg
from torch import Tensor

# BLAS may round a node's features differently when more nodes are beside it: the layers promise that a graph's output is the
# same alone and in a batch, to the last bit. The gradients are sums over all nodes and are left to BLAS.
torch.library.define("phgcn::linear", "(Tensor x, Tensor weight) -> Tensor")


@torch.library.impl("phgcn::linear", "cpu")
def linear(x: Tensor, weight: Tensor) -> Tensor:
    r"""The product :math:`\mathbf{x} \mathbf{W}^{\top}`; half types are summed in float32.

    Shapes:
        - **x:** :math:`(N, F_{in})`, **weight:** :math:`(F_{out}, F_{in})`
        - **output:** :math:`(N, F_{out})`
    """
    from ..lattice.cpu.backend import _use_threads
    from .linear_cpu import BLOCK, multiply

    _use_threads()
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    columns = weight.size(0)
    padded = F.pad(weight.detach().to(dtype), (0, 0, 0, -columns % BLOCK)).contiguous()
    out = multiply(x.detach().to(dtype).contiguous().numpy(), padded.numpy(), columns)
    return torch.from_numpy(out).to(x.dtype)


@torch.library.register_fake("phgcn::linear")
def _(x, weight):
    return x.new_empty(x.size(0), weight.size(0))


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    x, weight = ctx.saved_tensors
    grad_x = grad @ weight if ctx.needs_input_grad[0] else None
    return grad_x, grad.t() @ x if ctx.needs_input_grad[1] else None


torch.library.register_autograd("phgcn::linear", _backward, setup_context=_setup_context)


class Linear(pyg.Linear):
    r"""PyG's linear map :math:`\mathbf{x} \mathbf{W}^{\top} + \mathbf{b}`, lazy if ``in_channels`` is :obj:`-1`, of dense or
    sparse features.

    Shapes:
        - **input:** :math:`(N, F_{in})`, dense, or a :obj:`torch.sparse` CSR or COO tensor
        - **output:** :math:`(N, F_{out})`, dense
    """

    def forward(self, x: Tensor) -> Tensor:
        out = self._product(x)
        return out if self.bias is None else out + self.bias

    def _product(self, x: Tensor) -> Tensor:
        if x.layout != torch.strided:
            return torch.sparse.mm(x, self.weight.t())
        return product(x, self.weight)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """The product of dense ``x`` (N, F_in) and ``weight`` (F_out, F_in), in autocast's type under autocast."""
    if x.device.type != "cpu":
        return F.linear(x, weight)
    if torch.is_autocast_enabled("cpu"):
        return torch.ops.phgcn.linear(x.to(weight.dtype), weight).to(torch.get_autocast_dtype("cpu"))
    return torch.ops.phgcn.linear(x, weight)
