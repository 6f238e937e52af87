r"""The interface through which the filter reaches points of its clouds that lie on other processes.

:class:`phgcn.distributed.triton_lattice.VertexMeeting` implements it.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ..scheme import Scheme
from .clouds import Clouds
from .plan import Plan
from .rows import Rows


class Meeting(Protocol):
    """How processes that share the points out among them meet at the vertices of one lattice over all points."""

    keys: list[Tensor]
    """The keys of the vertices of each lattice, those of all processes."""

    def make_plan(self, clouds: Clouds, scheme: Scheme) -> Plan:
        """Locates and indexes the points of this process among the vertices of all; see
        :func:`phgcn.lattice.triton.lattices.make_plan`."""

    def join(self, rows: Rows) -> None:
        """Adds what other processes have to sums over points, in place."""
