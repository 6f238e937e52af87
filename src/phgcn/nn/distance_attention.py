"""The base of layers of global attention: heads, the decay of distances, the settings of the
sum."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch_geometric.nn import Linear

from ..backends import BackendName
from ..checks import check_choices, check_kernel, check_positive
from ..functional import Method, global_attention
from ..kernels import Kernel, kernel_name
from ..tolerance import make_tolerance


class Decay(torch.nn.Module):
    r"""The coefficient :math:`\lambda`: the number ``value``, or a learned :math:`\exp(\theta)` per
    head that starts there. Errors name it ``name``."""

    def __init__(self, name: str, value: float, heads: int, learn: bool) -> None:
        super().__init__()
        if not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; allowed: a positive number")
        self.value = float(value)
        self.log = Parameter(torch.empty(heads)) if learn else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.log is not None:
            torch.nn.init.constant_(self.log, math.log(self.value))

    def forward(self) -> float | Tensor:
        """Returns the number, or a tensor (heads,)."""
        return self.value if self.log is None else self.log.exp()

    def extra_repr(self) -> str:
        return f"{self.value}, learn={self.log is not None}"


class DistanceAttention(torch.nn.Module):
    """Base class of layers that attend by Euclidean distance of embeddings."""

    def __init__(
        self,
        heads: int,
        embedding_dim: int,
        decay: float,
        learn_decay: bool,
        method: Method,
        backend: BackendName,
        tolerance: float | None,
        process_group: ProcessGroup | None,
        kernel: str | Kernel,
    ) -> None:
        super().__init__()
        check_positive(heads=heads, embedding_dim=embedding_dim)
        check_choices(method, backend)
        check_kernel(kernel_name(kernel), method)
        self.heads = heads
        self.embedding_dim = embedding_dim
        self.method = method
        self.backend = backend
        self.tolerance = make_tolerance(tolerance, method, heads)
        self.process_group = process_group
        self.kernel = kernel
        self.decay = Decay("decay", decay, heads, learn_decay)

    def as_positions(self, embedded: Tensor) -> Tensor:
        """Views (N, H * D) as the positions (N, H, D) of each head."""
        return embedded.view(-1, self.heads, self.embedding_dim)

    def attend(self, positions: Tensor, values: Tensor, **rest: Any) -> Any:
        """Computes :func:`phgcn.global_attention` with the settings of the layer."""
        return global_attention(
            positions,
            values,
            decay=self.decay(),
            kernel=self.kernel,
            method=self.method,
            backend=self.backend,
            tolerance=self.tolerance,
            group=self.process_group,
            **rest,
        )


def linear_map(in_channels: int, out_channels: int) -> Any:
    return Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")


def embed(flat: Tensor, embedding: Tensor) -> Tensor:
    r"""Computes the positions :math:`\mathbf{\Phi} \mathbf{f}` (N, H, D) of rows (N, H C) by
    embeddings (H, D, C)."""
    # One product with the block-diagonal matrix of all heads: on a CPU twice as fast as a product
    # per head (einsum), which reads and writes rows with strides.
    heads, dim, _ = embedding.shape
    # The gradient of the product below has other strides than the parameter, of which DDP warns.
    if heads == 1:
        return F.linear(flat, embedding.squeeze(0)).unsqueeze(1)
    blocks = torch.diag_embed(embedding.permute(1, 2, 0), dim1=0, dim2=2)  # (H, D, H, C)
    return F.linear(flat, blocks.view(heads * dim, -1)).view(-1, heads, dim)


def drop_targets(values: Tensor, dropout: float, training: bool) -> Tensor:
    """Drops the values (N, heads, C) of random nodes per head, and scales the others up."""
    if not training or dropout == 0:
        return values
    return values * F.dropout(values.new_ones(*values.shape[:2], 1), dropout)
