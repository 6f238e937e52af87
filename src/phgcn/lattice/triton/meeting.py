r"""The interface through which the filter reaches points of its clouds that lie on other processes.

:class:`phgcn.distributed.triton_lattice.VertexMeeting` implements it.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ..scheme import Scheme
from .cells import NearLevel
from .clouds import Clouds
from .copies import Copies
from .plan import Plan
from .rows import Rows


class Meeting(Protocol):
    """How processes that share the points out among them meet at the vertices of one lattice over all points."""

    clouds: Clouds
    """The points of this process; clouds are numbered alike on all of them."""

    filtered: list[bool]
    """Which graphs are filtered."""

    keys: list[Tensor]
    """The keys of the vertices of each lattice, those of all processes."""

    copies: Copies | None
    """Which points lie in the same place, on any process; found by :meth:`make_plan`, :obj:`None` if there are none."""

    def make_plan(self, clouds: Clouds, scheme: Scheme) -> Plan:
        """Locates and indexes the points of this process among the vertices of all; see
        :func:`phgcn.lattice.triton.lattices.make_plan`."""

    def join(self, rows: Rows) -> None:
        """Adds what other processes have to sums over points, in place."""

    def sum_near_fields(self, levels: list[NearLevel], point_level: Tensor, values: Rows, sums: Rows) -> None:
        """Sums the near fields of the queries over the sources of all processes.

        Args:
            levels (list): The levels that have a near field.
            point_level (torch.Tensor): The finest level of each point of this process, int32.
            values (Rows): The rows of its sources.
            sums (Rows): Takes the sums of its queries.
        """

    def near_gradients(
        self, levels: list[NearLevel], point_level: Tensor, values: Rows, grads: Rows, of_values: Rows, of_points: Tensor
    ) -> None:
        """Computes the gradients of :meth:`sum_near_fields`.

        Args:
            levels, point_level, values: As above.
            grads (Rows): The gradients of the sums of the queries of this process.
            of_values (Rows), of_points (torch.Tensor): Take the gradients of its sources' rows and of its points' positions.
        """
