r"""What :class:`phgcn.nn.EDAConv` and :class:`phgcn.nn.PHGCNConv` share: projection, embedding, the structural path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.inits import glorot, ones, zeros

from ..checks import check_choices, check_dropout, check_features, check_sizes
from ..functional import structural_attention
from .edges import to_coo, with_self_loops
from .linear import Linear, product


class DistanceConv(torch.nn.Module):
    r"""Projects nodes to values :math:`\mathbf{f} = \mathbf{W} \mathbf{x}`, embeds these at positions
    :math:`\mathbf{p} = \mathbf{\Phi} \mathbf{f}`, and attends to neighbours by distance.  Args are those of
    :class:`phgcn.nn.PHGCNConv`."""

    paths = 1
    """How many outputs are set side by side: 1, or 2 with a global path."""

    def __init__(
        self, in_channels: int, out_channels: int, heads: int, concat: bool, dropout: float,
        add_self_loops: bool, bias: bool, residual: bool, embedding_dim: int, method: Any, backend: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        check_sizes(in_channels, out_channels=out_channels, heads=heads, embedding_dim=embedding_dim)
        check_dropout("dropout", dropout)
        check_choices(method, backend)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.add_self_loops = add_self_loops
        self.embedding_dim = embedding_dim
        self.backend = backend
        width = self.paths * heads * out_channels if concat else out_channels
        self.lin = Linear(in_channels, heads * out_channels, bias=False, weight_initializer="glorot")
        self.embedding = Parameter(torch.empty(heads, embedding_dim, out_channels))
        self.res = Linear(in_channels, width, bias=False, weight_initializer="glorot") if residual else None
        self.gates = Parameter(torch.empty(self.paths + 1)) if residual else None
        self.bias = Parameter(torch.empty(width)) if bias else None

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        self.lin.reset_parameters()
        glorot(self.embedding)
        if self.res is not None:
            self.res.reset_parameters()
        ones(self.gates)
        zeros(self.bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The positions (N, heads, embedding_dim) and values (N, heads, out_channels) of nodes."""
        check_features(x, self.lin.in_channels, self.lin.weight)
        flat = self.lin(x)
        return embed(flat, self.embedding), flat.view(-1, self.heads, self.out_channels)

    def attend_neighbours(
        self, positions: Tensor, values: Tensor, edge_index: Any, decay: float | Tensor, weights: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """The structural path (N, heads, out_channels); with ``weights``, also the edges it went along and their weights."""
        edges, count = to_coo(edge_index, values), len(values)
        # Neither a compiled graph nor a CUDA graph can know how many self-loops there are, and on a GPU asking takes time.
        parked = self.add_self_loops and not weights and (torch.compiler.is_compiling() or edges.is_cuda)
        if parked:
            edges = torch.ops.phgcn.park_self_loops(edges, count)
            positions, values = F.pad(positions, (0, 0, 0, 0, 0, 1)), F.pad(values, (0, 0, 0, 0, 0, 1))
        elif self.add_self_loops:
            edges = with_self_loops(edges, count)
        mask = None
        if self.training and self.dropout > 0:
            mask = F.dropout(values.new_ones(edges.size(1), self.heads), self.dropout)
        found = structural_attention(
            positions, values, edges, decay, edge_mask=mask, return_attention_weights=weights, backend=self.backend
        )
        if isinstance(found, tuple):
            return found[0], (edges, found[1])
        return found[:count] if parked else found, None

    def combine(self, x: Tensor, parts: Sequence[Tensor]) -> Tensor:
        """Heads and paths side by side or averaged, plus the node's own channel and the bias."""
        if self.gates is not None:
            parts = [gated(part, gate) for part, gate in zip(parts, self.gates[:-1], strict=True)]
        if self.concat:
            out = torch.cat([part.flatten(1) for part in parts], dim=1)
        else:
            out = torch.cat(list(parts), dim=1).mean(dim=1)
        if self.res is not None and self.gates is not None:
            out = out + gated(self.res(x), self.gates[-1])
        return out if self.bias is None else out + self.bias

    def recordable(self, nodes: int) -> bool:
        """Whether a pass over so many nodes on a GPU asks it nothing, so that it can be recorded into a CUDA graph."""
        return self.backend in ("auto", "triton")

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def embed(flat: Tensor, embedding: Tensor) -> Tensor:
    r"""The positions :math:`\mathbf{\Phi} \mathbf{f}` of each head.

    Shapes:
        - **flat:** :math:`(N, H C)`, **embedding:** :math:`(H, D, C)`
        - **output:** :math:`(N, H, D)`
    """
    heads, dim, _ = embedding.shape
    blocks = torch.diag_embed(embedding.permute(1, 2, 0), dim1=0, dim2=2)  # (heads, D, heads, C)
    return product(flat, blocks.view(heads * dim, -1)).view(-1, heads, dim)


def gated(part: Tensor, gate: Tensor) -> Tensor:
    """A path times its weight; each channel's share of the gradient is summed apart, as torch's sum of everything depends on
    the number of threads."""
    return part * gate.expand(part.size(-1))
