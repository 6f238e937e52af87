"""Integer keys of vertices or cells of all clouds, which sort by cloud and coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]

MOST_KEYS = 2**63  # keys that there are


def bit_widths(size: Ints) -> Ints:
    """Returns the bits of coordinates 0 to ``size``."""
    return np.ceil(np.log2(size.astype(np.float64) + 1)).astype(np.int64)


def take_together(bits: Sequence[int]) -> Iterator[range]:
    """Yields ranges of clouds whose keys fit into one table."""
    begin, total = 0, 0
    for cloud, width in enumerate(bits):
        if total + (1 << width) > MOST_KEYS and cloud > begin:
            yield range(begin, cloud)
            begin, total = cloud, 0
        total += 1 << width
    if begin < len(bits):
        yield range(begin, len(bits))


def of_cloud(table: Tensor, cloud: Tensor) -> Tensor:
    """Returns a table's row (B,) or (B, D) for each point's or vertex's cloud, (P,) or (P, D). One
    row is repeated, others are gathered column by column, as a GPU gathers short rows slowly."""
    if len(table) == 1:
        return table.expand(len(cloud), *table.shape[1:])
    return table[cloud] if table.dim() == 1 else table.T[:, cloud].T


class Grid:
    """A window of an integer grid for each cloud, without shared keys.

    A key is the first key of the cloud plus the coordinates from the window's base, each in bits of
    its own.

    Args:
        base (np.ndarray): The lowest coordinates, int64, (B, D).
        size (np.ndarray): The number of coordinates, int64, (B, D).
        device (torch.device): The device of keys.
    """

    def __init__(self, base: Ints, size: Ints, device: torch.device) -> None:
        bits = bit_widths(size)
        shift = bits.sum(axis=1, keepdims=True) - bits.cumsum(axis=1)
        first = [0]
        for total in bits.sum(axis=1).tolist():
            first.append(first[-1] + (1 << total))
        if first[-1] > MOST_KEYS:
            raise ValueError(
                f"positions have {first[-1]:.1e} lattice vertices in their range; allowed: up to "
                f"{MOST_KEYS:.1e}"
            )
        self.base, self.shift, self.bits = (
            torch.from_numpy(table).to(device) for table in (base, shift, bits)
        )
        self.first = torch.tensor(first[:-1], dtype=torch.int64, device=device)

    def pack(self, x: Tensor, cloud: Tensor) -> Tensor:
        """Returns the keys of coordinates (V, D) of clouds (V,)."""
        behind = (x - of_cloud(self.base, cloud)) << of_cloud(self.shift, cloud)
        return of_cloud(self.first, cloud) + behind.sum(dim=1)

    def unpack(self, key: Tensor, cloud: Tensor) -> Tensor:
        """Returns the coordinates (V, D) of keys."""
        rest = (key - of_cloud(self.first, cloud)).unsqueeze(1) >> of_cloud(self.shift, cloud)
        return (rest & of_cloud((1 << self.bits) - 1, cloud)) + of_cloud(self.base, cloud)

    def offsets(self, directions: Sequence[Sequence[int]]) -> Tensor:
        """Returns the offsets of directions (S, D) in the keys of each cloud, (S, B)."""
        unit = torch.tensor(directions, dtype=torch.int64, device=self.shift.device).unsqueeze(1)
        return (unit * (1 << self.shift)).sum(dim=2)

    def cloud(self, key: Tensor) -> Tensor:
        if len(self.first) == 1:
            return torch.zeros_like(key)
        return torch.searchsorted(self.first, key, right=True) - 1
