r"""Far queries over ranks: what they get of all keys alike (:mod:`phgcn.lattice.far`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..lattice.far import far_gradients, far_weight
from ..lattice.levels import FLOOR
from ..lattice.numba.filter import CloudGradients
from .collectives import Ranks
from .lockstep import Array, Gather, Steps, Sum

if TYPE_CHECKING:
    from .lattice import RankCloud


class Bounds(NamedTuple):
    """The lowest and the highest coordinates of the keys of all ranks, and, for each, the first rank that has it, (D,)."""

    low: Array
    high: Array
    low_rank: Array
    high_rank: Array

    def seen(self, cloud: RankCloud) -> tuple[Tensor, Tensor, Tensor]:
        queries = cloud.points[cloud.first_query :]
        return torch.from_numpy(queries), torch.from_numpy(self.low), torch.from_numpy(self.high)


def _key_bounds(cloud: RankCloud, ranks: Ranks) -> Steps[Bounds]:
    keys = cloud.points[: cloud.first_query].astype(np.float64)
    none = np.full(cloud.dim, np.inf)
    box = np.stack([keys.min(axis=0), keys.max(axis=0)] if len(keys) > 0 else [none, -none])
    every = np.stack((yield Gather(box, [2] * ranks.size)))
    low, high = every[:, 0], every[:, 1]
    return Bounds(low.min(axis=0), high.max(axis=0), low.argmin(axis=0), high.argmax(axis=0))


def add_far(cloud: RankCloud, rows: Array, out: Array, ranks: Ranks) -> Steps[None]:
    """Adds what queries get of all keys alike: the lower bound of the denominator, and far queries more."""
    total = yield Sum(rows.sum(axis=0, dtype=np.float64))
    bounds = yield from _key_bounds(cloud, ranks)
    weight = FLOOR / cloud.counts[0] + far_weight(*bounds.seen(cloud)).numpy()
    out += (weight[:, None] * total).astype(rows.dtype)


def add_far_gradients(cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, ranks: Ranks) -> Steps[None]:
    """Adds the gradients of :func:`add_far`; by einsum, which rounds the same for any number of threads."""
    total = yield Sum(rows.sum(axis=0, dtype=np.float64))
    bounds = yield from _key_bounds(cloud, ranks)
    seen = bounds.seen(cloud)
    weight = FLOOR / cloud.counts[0] + far_weight(*seen).numpy()
    into.rows[:] += (yield Sum(np.einsum("i,ic->c", weight, grads.astype(np.float64)))).astype(rows.dtype)
    products = np.einsum("ic,c->i", grads.astype(np.float64), total)
    of_queries, of_low, of_high = (t.numpy() for t in far_gradients(*seen, torch.from_numpy(products)))
    into.queries[:] += of_queries.astype(rows.dtype)
    of_edges = yield Sum(np.stack([of_low.sum(axis=0), of_high.sum(axis=0)]))
    keys = cloud.points[: cloud.first_query]
    if len(keys) == 0:
        return
    for number, (place, rank) in enumerate(((keys.argmin(axis=0), bounds.low_rank), (keys.argmax(axis=0), bounds.high_rank))):
        mine = np.flatnonzero(rank == ranks.rank)
        np.add.at(into.keys, (place[mine], mine), of_edges[number, mine].astype(rows.dtype))
