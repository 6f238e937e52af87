r"""One layer of the body of :class:`phgcn.nn.GlobalGNN`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear

from .local_conv import apply_local

GATED_SHARE = 0.1
"""The share of the gated product in the output of a polynomial layer, as in PyG's Polynormer."""

NORMS = {"batch": torch.nn.BatchNorm1d, "layer": torch.nn.LayerNorm}


class LocalBlock(torch.nn.Module):
    r"""A local layer with what makes deep networks of it train well: a linear map beside it, a norm, dropout.

    .. math::
        \mathbf{x}^{\prime} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\mathrm{conv}(\mathbf{x}) + \mathbf{W} \mathbf{x}
        + \mathbf{u})))

    With ``gated``, as in the `"Polynormer" <https://arxiv.org/abs/2403.01232>`_ paper, the output becomes
    :math:`0.1 \, \mathrm{LayerNorm}(\mathrm{relu}(\mathbf{V} \mathbf{x}) \odot \mathbf{x}^{\prime}) + 0.9 \,
    \mathbf{x}^{\prime}`: the degree of the polynomial in the features that is computed doubles with each layer.

    Args:
        channels (int): Size of each input and output sample.
        conv (torch.nn.Module): The local layer, of :func:`phgcn.nn.local_conv.make_local`.
        residual (bool): If :obj:`False`, :math:`\mathbf{W} \mathbf{x}` is left out.
        norm (str, optional): ``"batch"``, ``"layer"`` (over the channels of each node), or :obj:`None`.
        dropout (float): Dropout probability of the output.
        gated (bool): Whether the output is gated.
    """

    def __init__(self, channels: int, conv: Any, residual: bool, norm: str | None, dropout: float, gated: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self.conv = conv
        # Without edges, the layer is a linear map of the node itself already.
        self.res = Linear(channels, channels) if residual and not isinstance(conv, Linear) else None
        self.norm = torch.nn.Identity() if norm is None else NORMS[norm](channels)
        self.gate = Linear(channels, channels) if gated else None
        self.gate_norm = torch.nn.LayerNorm(channels) if gated else None

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        modules: list[Any] = list(self.children())
        for module in modules:
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, edges: Any, update: Tensor | None = None) -> Tensor:
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features, :math:`(N, C)`.
            edges: The edges, as :func:`phgcn.nn.local_conv.prepare_edges` makes them for the local layer.
            update (torch.Tensor, optional): What is added before the norm, :math:`(N, C)`. (default: :obj:`None`)
        """
        out = apply_local(self.conv, x, edges)
        if self.res is not None:
            out = out + self.res(x)
        if update is not None:
            out = out + update
        out = F.dropout(F.relu(self.norm(out)), self.dropout, self.training)
        if self.gate is not None and self.gate_norm is not None:
            gated = self.gate_norm(F.relu(self.gate(x)) * out)
            out = GATED_SHARE * gated + (1 - GATED_SHARE) * out
        return out
