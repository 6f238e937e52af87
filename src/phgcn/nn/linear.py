r"""A linear map of node features whose rows do not notice each other, and that takes sparse features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torch_geometric.nn.dense.linear as pyg
from torch import Tensor

from ..kernels.legacy import use_threads

# BLAS may round a node's features differently when more nodes are beside it: the layers promise that a graph's output is the
# same alone and in a batch, to the last bit. Its sums over all nodes, the gradient, also depend on the number of threads.
torch.library.define("phgcn::linear", "(Tensor x, Tensor weight) -> Tensor")
torch.library.define("phgcn::linear_gradient", "(Tensor grad, Tensor x) -> Tensor")


@torch.library.impl("phgcn::linear", "cpu")
def linear(x: Tensor, weight: Tensor) -> Tensor:
    r"""The product :math:`\mathbf{x} \mathbf{W}^{\top}`; half types are summed in float32.

    Shapes:
        - **x:** :math:`(N, F_{in})`, **weight:** :math:`(F_{out}, F_{in})`
        - **output:** :math:`(N, F_{out})`
    """
    from .linear_cpu import BLOCK, multiply

    use_threads()
    columns = weight.size(0)
    padded = F.pad(_summed(weight), (0, 0, 0, -columns % BLOCK)).contiguous()
    out = multiply(_summed(x).contiguous().numpy(), padded.numpy(), columns)
    return torch.from_numpy(out).to(x.dtype)


@torch.library.impl("phgcn::linear_gradient", "cpu")
def linear_gradient(grad: Tensor, x: Tensor) -> Tensor:
    r"""The product :math:`\mathbf{g}^{\top} \mathbf{x}`, the gradient of the weight; half types are summed in float32.

    Shapes:
        - **grad:** :math:`(N, F_{out})`, **x:** :math:`(N, F_{in})`
        - **output:** :math:`(F_{out}, F_{in})`
    """
    from .linear_cpu import multiply_columns

    use_threads()
    out = multiply_columns(_summed(grad).contiguous().numpy(), _summed(x).contiguous().numpy())
    return torch.from_numpy(out).to(x.dtype)


def _summed(tensor: Tensor) -> Tensor:
    """In the type that sums are taken in."""
    return tensor.detach().to(torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype)


@torch.library.register_fake("phgcn::linear")
def _(x, weight):
    return x.new_empty(x.size(0), weight.size(0))


@torch.library.register_fake("phgcn::linear_gradient")
def _(grad, x):
    return x.new_empty(grad.size(1), x.size(1))


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    x, weight = ctx.saved_tensors
    grad_x = torch.ops.phgcn.linear(grad, weight.t()) if ctx.needs_input_grad[0] else None
    return grad_x, torch.ops.phgcn.linear_gradient(grad, x) if ctx.needs_input_grad[1] else None


def _gradient_backward(ctx, outer):
    grad, x = ctx.saved_tensors
    of_grad = torch.ops.phgcn.linear(x, outer) if ctx.needs_input_grad[0] else None
    return of_grad, torch.ops.phgcn.linear(grad, outer.t()) if ctx.needs_input_grad[1] else None


torch.library.register_autograd("phgcn::linear", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::linear_gradient", _gradient_backward, setup_context=_setup_context)


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

    def recordable(self, nodes: int) -> bool:
        """As in :class:`phgcn.nn.distance_conv.DistanceConv`."""
        return True

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
