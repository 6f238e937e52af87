r"""What :class:`phgcn.nn.EDAConv` and :class:`phgcn.nn.PHGCNConv` share: projection, embedding, the structural path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import glorot, ones, zeros

from ..checks import check_choices, check_dropout, check_features, check_sizes
from ..functional import Backend, attend_neighbours
from .edges import replace_self_loops, to_coo

EdgeWeights = tuple[Tensor, Tensor]
"""Edges (2, E) and the attention weights (E, heads) along them."""


class DistanceConv(torch.nn.Module):
    r"""Projects nodes to values :math:`\mathbf{f} = \mathbf{W} \mathbf{x}`, embeds these at positions
    :math:`\mathbf{p} = \mathbf{\Phi} \mathbf{f}`, and attends to neighbours by distance.  Args are those of
    :class:`phgcn.nn.PHGCNConv`."""

    paths = 1
    """How many outputs are concatenated: 1, or 2 with a global path."""

    def __init__(
        self, in_channels: int, out_channels: int, heads: int, concat: bool, dropout: float, add_self_loops: bool,
        bias: bool, residual: bool, embedding_dim: int, backend: Backend,
    ) -> None:  # fmt: skip
        super().__init__()
        check_sizes(in_channels, out_channels=out_channels, heads=heads, embedding_dim=embedding_dim)
        check_dropout("dropout", dropout)
        check_choices("auto", backend)
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
        """Computes the positions (N, heads, embedding_dim) and values (N, heads, out_channels) of nodes."""
        check_features(x, self.lin.in_channels, self.lin.weight)
        flat = self.lin(x)
        return embed(flat, self.embedding), flat.view(-1, self.heads, self.out_channels)

    def attend_structural(
        self, positions: Tensor, values: Tensor, edge_index: Any, decay: float | Tensor, return_weights: bool
    ) -> tuple[Tensor, EdgeWeights | None]:
        """Computes the structural path (N, heads, out_channels) and, if asked for, the edges it used and their weights."""
        edges, count = to_coo(edge_index, values), len(values)
        # Returned edges must not show the spare node.
        redirect = self.add_self_loops and not return_weights and (torch.compiler.is_compiling() or edges.is_cuda)
        if redirect:
            edges = torch.ops.phgcn.redirect_self_loops(edges, count)
            positions, values = _append_node(positions), _append_node(values)
        elif self.add_self_loops:
            edges = replace_self_loops(edges, count)
        mask = None
        if self.training and self.dropout > 0:
            mask = F.dropout(values.new_ones(edges.size(1), self.heads), self.dropout)
        out, weights = attend_neighbours(positions, values, edges, decay, mask, return_weights, self.backend)
        if redirect:
            out = out[:count]
        return out, None if weights is None else (edges, weights)

    def combine(self, x: Tensor, paths: Sequence[Tensor]) -> Tensor:
        """Concatenates or averages heads and paths (N, heads, out_channels), then adds the residual and the bias."""
        if self.gates is not None:
            paths = [_gate(path, gate) for path, gate in zip(paths, self.gates[:-1], strict=True)]
        joined = paths[0] if len(paths) == 1 else torch.cat(list(paths), dim=1)
        out = joined.flatten(1) if self.concat else joined.mean(dim=1)
        if self.res is not None and self.gates is not None:
            out = out + _gate(self.res(x), self.gates[-1])
        return out if self.bias is None else out + self.bias

    def recordable(self, nodes: int) -> bool:
        """Tells whether a pass over so many nodes can be captured into a CUDA graph: no kernel waits for the host."""
        return self.backend in ("auto", "triton")

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def embed(flat: Tensor, embedding: Tensor) -> Tensor:
    r"""Computes the positions :math:`\mathbf{\Phi} \mathbf{f}` of each head.

    Shapes:
        - **flat:** :math:`(N, H C)`, **embedding:** :math:`(H, D, C)`
        - **output:** :math:`(N, H, D)`
    """
    # One product with the block-diagonal matrix of all heads: on a CPU twice as fast as a product per head (einsum), which
    # reads and writes rows with strides.
    heads, dim, _ = embedding.shape
    blocks = torch.diag_embed(embedding.permute(1, 2, 0), dim1=0, dim2=2)  # (H, D, H, C)
    return F.linear(flat, blocks.view(heads * dim, -1)).view(-1, heads, dim)


def _append_node(tensor: Tensor) -> Tensor:
    """Appends a row of 0 to (N, heads, width)."""
    return F.pad(tensor, (0, 0, 0, 0, 0, 1))


def _gate(path: Tensor, gate: Tensor) -> Tensor:
    """Multiplies a path by its learned weight, expanded to all channels: the gradient is then summed over nodes first, channel
    by channel.  torch's sum over a whole tensor at once depends on the number of threads."""
    return path * gate.expand(path.size(-1))
