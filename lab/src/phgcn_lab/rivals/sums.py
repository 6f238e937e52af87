r"""What the sums in plain torch share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

ENTRIES = 2**26
"""Entries of the largest matrix that a part of a sum may hold: a quarter of a gigabyte in float32.
"""


def add_ones(values: Tensor) -> Tensor:
    """Values with a channel of ones, (N, C + 1)."""
    return torch.cat([values, torch.ones_like(values[:, :1])], dim=1)


def divide(sums: Tensor, values: Tensor) -> Tensor:
    """Divides by the sums of ones, at least 1; a mean lies between the least and greatest value."""
    means = sums[:, :-1] / sums[:, -1:].clamp(min=1.0)
    return means.clamp(min=values.detach().amin(dim=0), max=values.detach().amax(dim=0))


def in_part(part: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """Computes a part of a sum; a backward pass computes it again to save memory."""
    if torch.is_grad_enabled() and any(argument.requires_grad for argument in arguments):
        result: Tensor = checkpoint(part, *arguments, use_reentrant=False, preserve_rng_state=False)
        return result
    return part(*arguments)


def generator(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(0)
