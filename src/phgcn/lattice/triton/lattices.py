r"""The averaged lattices over all points: their plan, made by locate and index, and what the host knows of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..narrow import may_be_narrow, widest_narrow
from ..scheme import MultiScale, Scheme
from .clouds import Clouds
from .constants import Constants, constants
from .copies import flag_copies
from .index import MAX_ENTRIES, LevelCounts, Vertices, finest_vertices, index, vertex_keys
from .keys import KeyLayout, key_widths
from .levels import choose_levels
from .locate import locate
from .meeting import Meeting
from .plan import COPIES, FLAGS, WIDTHS, Corners, Plan, Simplices, has_self_term
from .rows import Rows
from .slice import Located
from .splat import PointRows, splat
from .survey import layouts, survey


def make_plan(
    clouds: Clouds, scheme: Scheme, with_slopes: bool, limit: float, values: Tensor | None
) -> tuple[Plan, list[Tensor]]:
    """Locates and indexes all points; reads from the device, once, what the host must know.

    Where keys need more words than in earlier calls, which only the device knows, all is done again, with another read.

    Args:
        clouds (Clouds): The points.
        scheme (Scheme): The lattices.
        with_slopes (bool): Whether the self term is differentiated.
        limit (float): How far from the origin a position may be; beyond it a flag is set.
        values (torch.Tensor, optional): Where these are not finite, a flag is set.

    Returns:
        The plan, and the keys of the vertices of each lattice.
    """
    count, dim = clouds.position.shape
    if count * (dim + 1) >= MAX_ENTRIES:
        raise ValueError(
            f"positions and queries have {count} points, counted for each head; allowed for a lattice on a GPU in {dim} "
            f"dimensions: fewer than {MAX_ENTRIES // (dim + 1)}"
        )
    made = _constants(scheme, clouds)
    fixed = getattr(scheme, "near_field", 0)  # the finest level, None where the data decide
    narrow = widest_narrow(dim) if isinstance(scheme, MultiScale) and may_be_narrow(scheme, dim) else 0.0
    widths = key_widths(scheme, dim, clouds.position.device)
    self_rows = (1 + dim if with_slopes else 1) if has_self_term(scheme, clouds.to_itself) else 0
    level = torch.empty(count, dtype=torch.int32, device=clouds.position.device)
    while True:
        words = list(widths.words)
        surveyed = survey(clouds, values, made, words, fixed or 0, limit, narrow)
        grids, key_layouts = made.grids.size(0), layouts(surveyed.key_layout, words)
        if isinstance(scheme, MultiScale) and fixed is None and made.levels > 1:
            choose_levels(clouds, scheme.pairs, made, surveyed, key_layouts[1])
        if self_rows > 0:
            flag_copies(clouds, surveyed.facts[grids + COPIES : grids + COPIES + 1])
        simplices: list[Simplices] = []
        corners: list[Corners] = []
        keys: list[Tensor] = []
        for number in range(made.lattices):
            corner_keys, located = locate(clouds, surveyed.kappa, made, number, key_layouts[0], self_rows, level)
            facts = surveyed.facts[grids + FLAGS + number * (made.levels + 2) :]
            ordered, vertex_key = index(corner_keys, key_layouts[0], facts, made.levels, clouds.count)
            simplices.append(located)
            corners.append(ordered)
            keys.append(vertex_key)
        host_facts: list[int] = surveyed.facts.tolist()  # the one read
        missing = host_facts[:grids]
        widths.learn([max(some, default=0) for some in (missing[:1], missing[1:2], missing[2:])])
        if max(missing) <= 0:
            on_host = torch.tensor(host_facts + words, dtype=torch.int64)
            return Plan(on_host, surveyed.facts, surveyed.key_layout, clouds.cloud, level, simplices, corners), keys


def _constants(scheme: Scheme, clouds: Clouds) -> Constants:
    return constants(scheme, clouds.position.size(1), clouds.position.dtype, clouds.position.device)


class Lattices:
    """The averaged lattices of a plan, and what the host knows of them.

    Attributes:
        flags (list): See :data:`phgcn.lattice.triton.plan.FLAGS`.
        counts (list): The number of vertices of each lattice, a :class:`LevelCounts`.
        levels (list): The finest levels that some cloud has.
        layouts (list): The layouts of the keys of all grids.
        meeting (Meeting, optional): Where other processes have points too.
    """

    def __init__(self, plan: Plan, scheme: Scheme, clouds: Clouds, meeting: Meeting | None = None) -> None:
        self.plan, self.clouds, self.constants, self.meeting = plan, clouds, _constants(scheme, clouds), meeting
        facts: list[int] = plan.host_facts.numpy().tolist()  # on the CPU: no read of the device
        self.grids, levels = plan.key_layout.size(0), self.constants.levels
        self.flags = facts[self.grids : self.grids + FLAGS]
        places = range(self.grids + FLAGS, len(facts) - WIDTHS, levels + 2)
        self.counts = [LevelCounts(facts[p : p + levels + 1], facts[p + levels + 1] > 0) for p in places]
        self.levels = self.counts[0].levels
        self.layouts = layouts(plan.key_layout, facts[-WIDTHS:])

    @property
    def only_coincident(self) -> bool:
        """Whether what is summed of all points of a cloud is for clouds whose points coincide alone."""
        return self.clouds.to_itself and self.constants.constant == 0

    def lattice(self, number: int, keys: Tensor | None = None) -> Lattice:
        """Gathers one of the averaged lattices; packs the keys of its vertices again where they are not given."""
        plan, counts, layout, clouds = self.plan, self.counts[number], self.layouts[0], self.clouds
        if keys is None:
            keys = vertex_keys(plan, number, counts.count, layout, clouds.count, self.constants.free)
        facts = plan.facts[self.grids + FLAGS + number * (self.constants.levels + 2) :]
        vertices = finest_vertices(plan, number, keys, counts, facts)
        lattice_map = self.constants.lattice_map[number]
        points = Located(clouds, plan.level, plan.simplices[number], plan.corners[number].vertex, lattice_map)
        return Lattice(points, vertices, counts, layout, self.constants, self.meeting)


class Lattice(NamedTuple):
    """One of the averaged lattices: its points, its vertices and the layout of their keys; see :class:`Lattices`."""

    points: Located
    vertices: Vertices
    counts: LevelCounts
    layout: KeyLayout
    constants: Constants
    meeting: Meeting | None = None

    def splat(self, rows: PointRows) -> Rows:
        """Splats rows of points, those of other processes too."""
        table = splat(rows, self.vertices)
        if self.meeting is not None:
            self.meeting.join(table)
        return table
