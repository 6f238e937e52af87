"""The settings of a filter call, the protocol of a backend, and the lattices kept for a backward
pass.

The number of a cloud's vertices depends on the data, but the shapes of an op's outputs must not. So
lattices are kept here as long as a *ticket* lives, a small tensor on the CPU that the op returns. A
copy of a ticket has another address: the backward pass then builds the lattices again."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..kernels import EXPONENTIAL, Kernel
from ..runtime.points import Gradients, OutputGradients, Points
from .scheme import Scheme

# lower bound of the softmax denominator in cross-attention, times the mean of all values in the
# numerator: a query far from all keys gets their mean instead of 0 / 0
FLOOR = 1e-8


class FilterCall(NamedTuple):
    """The settings of a filter call. Graphs of up to ``more_than`` pairs get an output of 0. Only a
    ladder reads the kernel."""

    scheme: Scheme
    normalise: bool
    more_than: int = -1
    kernel: Kernel = EXPONENTIAL


def no_ticket() -> Tensor:
    """Returns the empty ticket of a forward pass that keeps nothing."""
    return torch.empty(0, dtype=torch.int64)


class FilterBackend(Protocol):
    """A backend: ``phgcn.lattice.<name>.filter``."""

    def forward(
        self, points: Points, call: FilterCall, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns output (M, H, C), normaliser (M, H) and a ticket. With ``keep``, the ticket finds
        the lattices again, else it is empty."""
        ...

    def backward(
        self, upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall
    ) -> Gradients:
        """Returns the gradients. Builds the lattices again if the ticket is empty."""
        ...


# Upper bounds of the bytes that are kept. The first counts tables and moves on the CPU, where the
# simplices of points are always kept. The second counts everything on a GPU.
LIMIT, GPU_LIMIT = 2**28, 2**32


class Kept(list[Any]):
    """The kept lattices of a call, one per cloud, and their ``size`` in bytes."""

    size = 0

    def has_room(self, size: int, limit: int) -> bool:
        """Adds ``size`` bytes and returns True if all tickets then hold at most ``limit``."""
        if size + sum(kept.size for kept in list(_kept.values())) > limit:
            return False
        self.size += size
        return True


_kept: dict[int, Kept] = {}  # by the address of the ticket


def new_ticket() -> tuple[Tensor, Kept]:
    """Returns a ticket, int64, (1,), and its lattices, kept until the ticket is freed."""
    memory, kept = np.zeros(1, np.int64), Kept()
    _kept[memory.ctypes.data] = kept
    weakref.finalize(memory, _kept.pop, memory.ctypes.data, None).atexit = False
    return torch.from_numpy(memory), kept


def find(ticket: Tensor) -> Kept | None:
    """Returns the lattices of a ticket, or :obj:`None` if it is empty or a copy."""
    return _kept.get(ticket.data_ptr()) if len(ticket) > 0 else None
