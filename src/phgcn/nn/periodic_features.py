"""Numbers as waves of learned frequencies."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from ..checks import check_positive
from .checks import check_features

ROWS = 2**16  # most rows at a time without gradients: waves take many times the memory of features


class PeriodicFeatures(torch.nn.Module):
    r"""Computes periodic features of each numeric column, for functions that bend and jump.

    .. math::
        \mathbf{z}_{ic} = \mathrm{relu}(\mathbf{W}_c \,
        [\sin(2 \pi \mathbf{f}_c x_{ic}), \cos(2 \pi \mathbf{f}_c x_{ic})] + \mathbf{b}_c)

    with the frequencies :math:`\mathbf{f}_c` of column :math:`c` drawn from a normal distribution
    and learned (`"On Embeddings for Numerical Features in Tabular Deep Learning"
    <https://arxiv.org/abs/2203.05556>`_). Columns are expected to have mean 0 and deviation 1.

    Args:
        columns (int): Number of columns.
        out_channels (int, optional): Number of features of each column. (default: :obj:`16`)
        frequencies (int, optional): Number of frequencies of each column. (default: :obj:`24`)
        deviation (float, optional): Standard deviation of the frequencies at the start. (default:
            :obj:`0.05`)

    Shapes:
        - **input:** :math:`(N, C)`
        - **output:** :math:`(N, C \cdot F_{out})`, the features of a column side by side
    """

    def __init__(
        self, columns: int, out_channels: int = 16, frequencies: int = 24, deviation: float = 0.05
    ) -> None:
        super().__init__()
        check_positive(out_channels=out_channels, frequencies=frequencies)
        if not 0 < deviation < math.inf:
            raise ValueError(f"deviation is {deviation!r}; allowed: a positive number")
        self.columns = columns
        self.out_channels = out_channels
        self.deviation = deviation
        self.frequency = Parameter(torch.empty(columns, frequencies))
        self.weight = Parameter(torch.empty(columns, 2 * frequencies, out_channels))
        self.bias = Parameter(torch.empty(columns, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
        bound = 1 / math.sqrt(self.weight.size(1))
        torch.nn.init.normal_(self.frequency, std=self.deviation)
        torch.nn.init.uniform_(self.weight, -bound, bound)
        torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The numeric columns.
        """
        check_features(x, self.columns, self.weight)
        if len(x) > ROWS and not torch.is_grad_enabled():
            return torch.cat([self._features(part) for part in x.split(ROWS)])
        return self._features(x)

    def _features(self, x: Tensor) -> Tensor:
        # (C, N, K): one product of matrices per column
        phase = 2 * math.pi * x.T.unsqueeze(2) * self.frequency.unsqueeze(1)
        waves = torch.cat([phase.sin(), phase.cos()], dim=2)
        out = torch.baddbmm(self.bias.unsqueeze(1), waves, self.weight).relu()
        return out.transpose(0, 1).reshape(len(x), self.columns * self.out_channels)

    def __repr__(self) -> str:
        sizes = f"{self.columns}, {self.out_channels}, frequencies={self.frequency.size(1)}"
        return f"{self.__class__.__name__}({sizes})"
