r"""Keys: one number for each vertex of a lattice, or cell of a grid, linear in its coordinates.

The key of v + d is the key of v plus that of d, and the last coordinate counts single steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

KEY_BITS = 63
WRAPPED_BITS = 11
MARGIN = 2
"""Free cells around all points and their stencils, so that no key borrows from another coordinate's bits."""


class Keys(NamedTuple):
    r"""How coordinates make a key.

    Args:
        multiplier (np.ndarray): What each coordinate counts, uint64 of shape :math:`(D,)`.
        bits (int): The bits to sort by.
        hashed (bool): Whether keys are hashes, which wrap around and may collide.
    """

    multiplier: np.ndarray
    bits: int
    hashed: bool

    @property
    def shift(self) -> np.ndarray:
        """The bit at which each coordinate begins, uint64 (D,), in keys that are no hashes."""
        return np.array([int(m).bit_length() - 1 for m in self.multiplier], np.uint64)

    def of_prefix(self, prefix: np.ndarray) -> np.ndarray:
        """Computes the keys of offsets whose last coordinate is 0, from the others, (R, D-1)."""
        return (prefix.astype(np.uint64) * self.multiplier[:-1]).sum(axis=1, dtype=np.uint64)


def choose_keys(highest: np.ndarray) -> Keys:
    """Packs coordinates from 0 to ``highest``, (D,), into one number if they fit, else hashes them."""
    bits = [int(t).bit_length() for t in highest]
    if sum(bits) <= KEY_BITS:
        shifts = [sum(bits[j + 1 :]) for j in range(len(bits))]
        return Keys(np.array([1 << s for s in shifts], np.uint64), sum(bits), False)
    odd = np.random.default_rng(len(bits)).integers(0, 2**63, len(bits), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    odd[-1] = 1
    return Keys(odd, 64, True)


def wrap_keys(highest: np.ndarray) -> Keys:
    """Packs coordinates from 0 to ``highest``, (D,); cells that are very far apart may get the same key.

    Where not all bits fit, all coordinates but the last keep their lowest :data:`WRAPPED_BITS`.  Two cells with the same key
    are then either equal or so far apart that the distance of their points rules the pair out: unlike hashes, no check is
    needed.
    """
    bits = [int(t).bit_length() for t in highest]
    if sum(bits) <= KEY_BITS:
        return choose_keys(highest)
    bits = [min(b, WRAPPED_BITS) for b in bits[:-1]] + bits[-1:]
    return Keys(np.array([1 << sum(bits[j + 1 :]) for j in range(len(bits))], np.uint64), 64, True)
