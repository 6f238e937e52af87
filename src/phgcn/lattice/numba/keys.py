"""Keys: one number per vertex of a lattice or cell of a grid, linear in its coordinates. A step of
the last coordinate adds 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

KEY_BITS = 63
WRAPPED_BITS = 11
MARGIN = 2  # free cells around all points, so that no key borrows from another coordinate's bits


class Keys(NamedTuple):
    """A linear map from coordinates to keys: ``multiplier``, uint64, (D,), and ``bits``."""

    multiplier: np.ndarray
    bits: int

    @property
    def shift(self) -> np.ndarray:
        """The first bit of each coordinate, uint64, (D,)."""
        return np.array([int(m).bit_length() - 1 for m in self.multiplier], np.uint64)

    def of_prefix(self, prefix: np.ndarray) -> np.ndarray:
        """Computes the keys of offsets (R, D-1) whose last coordinate is 0."""
        return (prefix.astype(np.uint64) * self.multiplier[:-1]).sum(axis=1, dtype=np.uint64)


def choose_keys(highest: np.ndarray) -> Keys:
    """Packs coordinates from 0 to ``highest``, (D,), into one number."""
    bits = [int(t).bit_length() for t in highest]
    if sum(bits) > KEY_BITS:
        cells = " x ".join(f"{int(t):,}" for t in highest)
        raise ValueError(
            f"positions span {cells} cells of a lattice; allowed: at most 2^{KEY_BITS}, else a "
            f"smaller decay"
        )
    shifts = [sum(bits[j + 1 :]) for j in range(len(bits))]
    return Keys(np.array([1 << s for s in shifts], np.uint64), sum(bits))


def wrap_keys(highest: np.ndarray) -> Keys:
    """Packs coordinates from 0 to ``highest``, (D,), of which far cells may share a key.

    If not all bits fit, all coordinates but the last keep their lowest :data:`WRAPPED_BITS`. The
    distance of their points rules out pairs of far cells."""
    bits = [int(t).bit_length() for t in highest]
    if sum(bits) <= KEY_BITS:
        return choose_keys(highest)
    bits = [min(b, WRAPPED_BITS) for b in bits[:-1]] + bits[-1:]
    return Keys(np.array([1 << sum(bits[j + 1 :]) for j in range(len(bits))], np.uint64), 64)
