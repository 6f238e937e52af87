r"""The near field over ranks: sources are gathered from all ranks in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch

from ..lattice.coefficients import multiscale_weights
from ..lattice.numba.cells import NearField, find_cells
from ..lattice.numba.clouds import CloudGradients
from ..lattice.numba.locate import with_extent
from ..lattice.numba.near import near_field
from ..lattice.scheme import MultiScale
from .collectives import Ranks
from .exact import chunks
from .layout import RankCloud
from .lockstep import Array

CHUNK = 2**18
"""Upper bound of the sources, of all ranks and clouds, that are held at a time: each chunk is compared with all cells of this
rank's targets, so that few large ones are faster."""


def add_near_fields(
    clouds: Sequence[RankCloud], rows: Array, summed: Array, sources: Array, ranks: Ranks, scheme: MultiScale
) -> None:
    """Adds the near fields of clouds to summed rows (H, M, W).

    Args:
        clouds (sequence of RankCloud): The clouds.
        rows (np.ndarray): The rows of this rank's keys, (H, N, W).
        summed (np.ndarray): Where the near field is added.
        sources (np.ndarray): How many keys each rank has of each graph, (P, G).
        ranks (Ranks): The processes.
        scheme (MultiScale): The lattices.
    """
    near = [cloud for cloud in clouds if _has_near_field(cloud)]
    tables = [[cloud.keys, rows[cloud.head, cloud.key_slice]] for cloud in near]
    for cloud, (position, row) in _sweep(near, tables, sources, ranks):
        targets, out = cloud.queries, summed[cloud.head, cloud.query_slice]
        if len(targets) > 0:
            cells = _cells(targets, position, cloud, scheme)
            near_field(cells, cells.source.take(row), out)


def add_near_gradients(
    clouds: Sequence[tuple[RankCloud, Array, Array, CloudGradients]],
    keys: Array,
    queries: Array,
    ranks: Ranks,
    scheme: MultiScale,
) -> None:
    """Adds the gradients of near fields.

    Args:
        clouds (sequence): Clouds, the rows of their keys, the gradients of their queries, and where gradients are added.
        keys, queries (np.ndarray): How many each rank has of each graph, (P, G).
        ranks (Ranks): The processes.
        scheme (MultiScale): The lattices.
    """
    near = [some for some in clouds if _has_near_field(some[0])]
    given = {id(cloud): (rows, grads, into) for cloud, rows, grads, into in near}
    to_itself = bool(near) and near[0][0].to_itself
    tables = [[cloud.keys, rows, *([grads] if to_itself else [])] for cloud, rows, grads, _ in near]
    for cloud, (position, *sources) in _sweep([cloud for cloud, *_ in near], tables, keys, ranks):
        rows, grads, into = given[id(cloud)]
        targets = cloud.queries
        if len(targets) == 0:
            continue
        cells = _cells(targets, position, cloud, scheme)
        of_sources = cells.source.take(*sources)
        if to_itself:
            of_grads, of_targets = cells.source.take(sources[1]), cells.target.take(grads, rows)
            del position, sources  # as large as their sorted copies
            near_field(cells, of_grads, into.rows, of_targets, of_sources, into.keys)
        else:
            near_field(cells, target_rows=cells.target.take(grads), source_rows=of_sources, grad=into.queries)
    if to_itself:
        return
    tables = [[cloud.queries, grads] for cloud, _, grads, _ in near]
    for cloud, (position, grad_row) in _sweep([cloud for cloud, *_ in near], tables, queries, ranks):
        rows, _, into = given[id(cloud)]
        if len(rows) > 0:
            cells = _cells(cloud.keys, position, cloud, scheme)
            of_grads = cells.source.take(grad_row)
            near_field(cells, of_grads, into.rows, cells.target.take(rows), of_grads, into.keys)


def _has_near_field(cloud: RankCloud) -> bool:
    return cloud.finest > 0 and not cloud.is_one_point


def _cells(targets: Array, sources: Array, cloud: RankCloud, scheme: MultiScale) -> NearField:
    """Sorts targets of this rank and sources of all ranks into cells."""
    points = np.concatenate([sources, targets])
    fitted = multiscale_weights(scheme, cloud.dim)
    return find_cells(with_extent(points), len(sources), fitted, cloud.finest)


def _sweep(
    clouds: Sequence[RankCloud], tables: Sequence[list[Array]], counts: Array, ranks: Ranks
) -> Iterator[tuple[RankCloud, list[Array]]]:
    """Yields the sources of each cloud that the ranks hold, some at a time, as the tables that each rank has of them.

    Each rank lays its tables side by side, and the clouds one after the other; chunks are cut from that.  What was packed and
    what arrived is freed before the last cloud is yielded: its copies are as large.
    """
    if not clouds:
        return
    sizes = np.stack([counts[:, cloud.graph] for cloud in clouds], axis=1)  # (P, clouds)
    first = np.concatenate([np.zeros((ranks.size, 1), np.int64), np.cumsum(sizes, axis=1)], axis=1)
    widths = np.cumsum([0] + [table.shape[1] for table in tables[0]])
    for given in chunks(first[:, -1].tolist(), max(1, CHUNK // ranks.size)):
        mine = given[ranks.rank]
        packed = [_rows_of(table, mine, begin) for table, begin in zip(tables, first[ranks.rank], strict=False)]
        arrived = ranks.gather(torch.from_numpy(np.concatenate(packed)), [len(rows) for rows in given])
        packed.clear()
        for number, cloud in enumerate(clouds):
            places = [
                slice(max(begin - rows.start, 0), max(end - rows.start, 0))
                for rows, begin, end in zip(given, first[:, number], first[:, number + 1], strict=True)
            ]
            joined = [
                np.concatenate([part.numpy()[place, a:b] for part, place in zip(arrived, places, strict=True)])
                for a, b in pairwise(widths)
            ]
            if number == len(clouds) - 1:
                arrived.clear()
            if len(joined[0]) > 0:
                yield cloud, [joined.pop(0) for _ in tables[0]]  # held by nobody else


def _rows_of(table: list[Array], wanted: range, begin: int) -> Array:
    """Returns, of the tables of a cloud that begins at ``begin``, the rows in a range, side by side."""
    low, high = (min(max(edge - begin, 0), len(table[0])) for edge in (wanted.start, wanted.stop))
    return np.concatenate([part[low:high] for part in table], axis=1)
