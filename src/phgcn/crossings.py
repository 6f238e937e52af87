"""The number of points from which on ``method="auto"`` takes a lattice.

``lab/bench crossing`` measures ``crossings.json``: per kind of device and dimension, the number of
points up to which the exact sum is as fast. Training and evaluation must take the same method, so
the larger crossing of both counts. The table so far holds crossings of training steps only. A
lattice in more than four dimensions must be three times as fast. Heads and channels change both
times alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from .runtime.graphs import ALL_PAIRS

FILE = Path(__file__).with_name("crossings.json")


class Crossing(NamedTuple):
    """The measurement in one dimension on one kind of device, by the exponential kernel. Numbers
    are :obj:`None` where nothing was measured.

    Args:
        gradients (int, optional): Points up to which the exact sum is as fast, forward and
            backward; :obj:`None` for any number.
        forward (int, optional): The same of the forward pass only; 0 where it was not measured.
        exact_ns (float, optional): Nanoseconds of the exact sum per pair and head, forward and
            backward.
        lattice_us (float, optional): Microseconds of the lattice per point and head.
        error (float, optional): The lattice's error in deviations of the exact output from its
            mean.
        measured (bool): Whether this very dimension was measured.
    """

    gradients: int | None
    forward: int | None = 0
    exact_ns: float | None = None
    lattice_us: float | None = None
    error: float | None = None
    measured: bool = True

    @property
    def points(self) -> int | None:
        """The size of the largest graph with an exact sum; :obj:`None` for any size."""
        if self.gradients is None or self.forward is None:
            return None
        return max(self.gradients, self.forward)

    def seconds(self, n: int) -> tuple[float | None, float | None]:
        """Estimates the times of the exact sum and the lattice of ``n`` points."""
        if self.exact_ns is None or self.lattice_us is None:
            return None, None
        return self.exact_ns * n * n * 1e-9, self.lattice_us * n * 1e-6


# by type of device and dimension
CROSSINGS: dict[str, dict[int, Crossing]] = {
    device: {int(dim): Crossing(**measured) for dim, measured in by_dim.items()}
    for device, by_dim in json.loads(FILE.read_text(encoding="utf-8")).items()
}

# up to how many pairs of a graph ``"auto"`` takes the exact sum, by type of device and dimension
EXACT_PAIRS: dict[str, dict[int, int]] = {
    device: {dim: ALL_PAIRS if c.points is None else c.points**2 for dim, c in by_dim.items()}
    for device, by_dim in CROSSINGS.items()
}


def exact_limit(dim: int, device_type: str) -> int:
    """Returns the largest number of pairs of a graph for which ``"auto"`` is exact."""
    return EXACT_PAIRS.get(device_type, EXACT_PAIRS["cpu"]).get(dim, ALL_PAIRS)
