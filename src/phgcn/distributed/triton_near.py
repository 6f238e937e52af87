r"""The near field of clouds on GPUs whose points lie on several ranks: sources arrive from all ranks in chunks of bounded size.

Each chunk is sorted into cells and summed by the kernels of one process; what it gives the targets of this rank is added up,
chunk after chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..lattice.triton.cells import CellPoints, NearLevel, sort_points
from ..lattice.triton.near import near_field, near_gradients
from ..lattice.triton.rows import Rows, new_rows
from .collectives import Ranks
from .exact import chunks

CHUNK = 2**20
"""Upper bound of the sources of all ranks that are held at a time.  Each chunk is compared with all targets of this rank, so
that few large ones are faster."""


class NearPoints(NamedTuple):
    """Points of this rank, as they take part in near fields.

    Args:
        position (torch.Tensor): (P, D).
        cloud, level (torch.Tensor): The cloud of each, and its finest level, int32, (P,).
        coordinates (torch.Tensor, optional): The order that the coordinates of each are taken in, int64, (P, D).
    """

    position: Tensor
    cloud: Tensor
    level: Tensor
    coordinates: Tensor | None

    def part(self, some: slice | Tensor) -> NearPoints:
        """Selects some points."""
        return NearPoints(*(None if t is None else t[some] for t in self))  # type: ignore[arg-type]

    def sort(self, levels: list[NearLevel]) -> list[CellPoints]:
        """Sorts the points of each level by cell."""
        return [sort_points(near, *self) for near in levels]


class NearClouds(NamedTuple):
    """What is known of each cloud: its finest level, int32, (clouds,), and the order of its coordinates, int64, (clouds, D),
    where that matters."""

    level: Tensor
    axes: Tensor | None

    def points(self, position: Tensor, cloud: Tensor) -> NearPoints:
        """Looks up level and coordinates of points; those in no cloud are of no level."""
        of_cloud = cloud.clamp(min=0).to(torch.int64)
        level = torch.where(cloud >= 0, self.level[of_cloud], -2).to(torch.int32)
        return NearPoints(position, cloud, level, None if self.axes is None else self.axes[of_cloud])


class Sources(NamedTuple):
    """What is swept over: points with a near field, their rows, and how many of them each rank has."""

    points: NearPoints
    rows: Rows
    counts: list[int]


def find_sources(points: NearPoints, rows: Rows, counts: list[int]) -> Sources:
    """Selects the points that have a near field; of the others nothing is sent."""
    some = (points.level > 0).nonzero().squeeze(1)
    return Sources(points.part(some), rows.take(some), counts)


def add_near_sums(
    targets: NearPoints, sources: Sources, clouds: NearClouds, levels: list[NearLevel], ranks: Ranks, sums: Rows
) -> None:
    """Adds the near fields of this rank's targets to sums over sources, (M, C)."""
    sorted_targets, part = targets.sort(levels), new_rows(sums.data, sums.count, sums.channels, sums.extras)
    for points, rows in _sweep(sources, clouds, ranks):
        part.data.zero_()  # targets of other levels are not written
        for near, target, source in zip(levels, sorted_targets, points.sort(levels), strict=True):
            near_field(target, source, rows, near, part)
        sums.data.add_(part.data)


def add_near_gradients(
    targets: tuple[NearPoints, Rows], sources: Sources, clouds: NearClouds, levels: list[NearLevel], ranks: Ranks,
    of_rows: Rows | None, of_points: Tensor,
) -> None:  # fmt: skip
    """Adds the gradients of this rank's targets: of their positions, (M, D), and, if asked for, the sums of the sources' rows;
    see :func:`phgcn.lattice.triton.near.near_gradients`.

    Args:
        targets (tuple): The targets, and their rows.
        sources (Sources): What the ranks have of the other side.
        clouds (NearClouds), levels (list), ranks (Ranks): As above.
        of_rows (Rows, optional): Takes sums, in addition to what it holds.
        of_points (torch.Tensor): Takes gradients, in addition to what it holds.
    """
    points, target_rows = targets
    sorted_targets, slopes = points.sort(levels), torch.empty_like(of_points)
    part = None if of_rows is None else new_rows(of_rows.data, of_rows.count, of_rows.channels, 0)
    for others, rows in _sweep(sources, clouds, ranks):
        slopes.zero_()
        if part is not None:
            part.data.zero_()
        for near, target, source in zip(levels, sorted_targets, others.sort(levels), strict=True):
            near_gradients(target, source, rows, target_rows, near, part, slopes)
        if points.coordinates is not None:
            slopes.copy_(torch.zeros_like(slopes).scatter_(1, points.coordinates, slopes))
        of_points.add_(slopes)
        if of_rows is not None and part is not None:
            of_rows.main.add_(part.main)


def _sweep(sources: Sources, clouds: NearClouds, ranks: Ranks) -> Iterator[tuple[NearPoints, Rows]]:
    """Yields the sources of all ranks with their rows, some at a time."""
    (position, cloud, _, _), rows, counts = sources
    columns = [position.size(1), rows.channels, rows.extras]
    table = torch.cat([position, rows.main.to(position.dtype), rows.extra.to(position.dtype)], dim=1)
    for given in chunks(counts, max(1, CHUNK // ranks.size)):
        mine, sizes = given[ranks.rank], [len(some) for some in given]
        arrived = torch.cat(ranks.gather(table[mine.start : mine.stop], sizes))
        of_cloud = torch.zeros(len(arrived), dtype=cloud.dtype, device=cloud.device)
        if len(clouds.level) > 1:
            of_cloud = torch.cat(ranks.gather(cloud[mine.start : mine.stop], sizes))
        there, main, extra = arrived.split(columns, dim=1)
        data = torch.cat([main.flatten(), extra.flatten()])
        yield (
            clouds.points(there.contiguous(), of_cloud),
            Rows(data, len(arrived), rows.channels, rows.extras, rows.ones),
        )
