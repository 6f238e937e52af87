r"""The coefficient λ of distances: a number, or learned for each head."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter


class Decay(torch.nn.Module):
    r"""The coefficient :math:`\lambda`: a fixed number, or :math:`\exp(\theta)` for each head, which stays positive.

    Args:
        name (str): The layer's argument, for errors.
        value (float): The number, or the start of learning.
        heads (int): Number of heads.
        learn (bool): Whether it is learned.
    """

    def __init__(self, name: str, value: float, heads: int, learn: bool) -> None:
        super().__init__()
        if not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; allowed: a positive number")
        self.value = float(value)
        self.log = Parameter(torch.empty(heads)) if learn else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets a learned coefficient to the value that it started from."""
        if self.log is not None:
            torch.nn.init.constant_(self.log, math.log(self.value))

    def forward(self) -> float | Tensor:
        """Returns the number, or a tensor (heads,)."""
        return self.value if self.log is None else self.log.exp()

    def extra_repr(self) -> str:
        return f"{self.value}, learn={self.log is not None}"
