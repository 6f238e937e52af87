"""The ladder of some clouds together; the specification is
:mod:`phgcn.lattice.reference.ladder`."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...kernels import Kernel
from ..geometry import origin
from ..ladder import Rung, ladder_numbers, own_table
from .clouds import Clouds
from .kernels import Alone, Kernels, Near, Peers, Side
from .keys import bit_widths, of_cloud
from .lattice import Corners, Floats, count_bytes, find_corners, lay_frame, locate
from .moves import MARGIN, Step, expand, find_steps, reduce, window


class Ladders:
    """The ladders of a range of clouds, ordered by descending number of steps.

    Args:
        clouds (Clouds): The points.
        part (range): The numbers of the clouds.
        rungs (list): Their ladders.
        box (tuple): Lowest and highest coordinates of each, on all processes, float64, (B, D).
        kernel (Kernel): The kernel function.
        kernels (Kernels), peers (Peers): The backend, and the other processes.
    """

    def __init__(
        self,
        clouds: Clouds,
        part: range,
        rungs: list[Rung],
        box: tuple[Floats, Floats],
        kernel: Kernel,
        kernels: Kernels,
        peers: Peers,
    ) -> None:
        self.kernels, self.peers, self.kernel = kernels, peers, kernel
        self.key_part, self.query_part = (
            some.part(part.start, part.stop) for some in (clouds.keys, clouds.queries)
        )
        self.keys = _take(clouds.keys.side, self.key_part, part.start)
        self.queries = (
            self.keys
            if clouds.to_itself
            else _take(clouds.queries.side, self.query_part, part.start)
        )
        self.rungs, self.low, self.high = (
            [rungs[cloud] for cloud in part],
            *(edge[part.start : part.stop] for edge in box),
        )
        self.device, self.dim = self.keys.position.device, self.keys.position.size(1)
        self.numbers = [ladder_numbers(self.kernel, self.dim, rung) for rung in self.rungs]
        self.counts = [len(numbers.weight) for numbers in self.numbers]

    @property
    def to_itself(self) -> bool:
        return self.keys is self.queries

    def _table(self, rows: list[list[float]]) -> Tensor:
        return torch.tensor(rows, dtype=torch.float64, device=self.device)

    # The lattice

    @cached_property
    def frame(self):  # type: ignore[no-untyped-def]
        """The map from positions to Kuhn coordinates of level 0."""
        spacing = np.array([rung.h for rung in self.rungs])
        shift = np.stack([origin(self.dim).numpy() * 2.0 ** (count // 2) for count in self.counts])
        return lay_frame(self.low, self.high, spacing, shift)

    @cached_property
    def located(self):  # type: ignore[no-untyped-def]
        grid = window(self.frame.low, self.frame.high, self.device)
        keys = locate(self.keys, self.frame, grid)
        return keys, keys if self.to_itself else locate(self.queries, self.frame, grid)

    @cached_property
    def corners(self) -> tuple[Corners, Corners]:
        keys, queries = self.located
        dtype = self.keys.position.dtype
        of_keys = find_corners(keys, self.vertices, dtype)
        return of_keys, of_keys if self.to_itself else find_corners(queries, self.vertices, dtype)

    @cached_property
    def vertices(self) -> Tensor:
        """The sorted keys of touched vertices."""
        keys, queries = self.located
        key = keys.key.flatten()
        every = key if self.to_itself else torch.cat([key, queries.key.flatten()])
        return torch.unique(every)  # type: ignore[no-any-return]

    @cached_property
    def steps(self) -> list[Step]:
        return find_steps(self.vertices, self.frame.low, self.frame.high, self.counts, self.kernels)

    @property
    def size(self) -> int:
        return count_bytes([self.located, self.vertices, self.corners, self.steps])

    def filter(self, table: Tensor) -> Tensor:
        """Moves a table (V, W) up the ladder, sums it over processes, and moves it down."""
        weight = np.zeros((len(self.counts), max(self.counts)))
        for row, numbers in zip(weight, self.numbers, strict=True):
            row[: len(numbers.weight)] = numbers.weight
        weights = torch.from_numpy(weight).to(table)
        tables = reduce(table, self.steps, self.kernels)
        if not isinstance(self.peers, Alone):
            tables = _sum_tables(tables, self.steps, weights, self.peers)
        return expand(tables, self.steps, weights, len(table), self.kernels)

    # What the ladder does not hold

    @cached_property
    def has_far(self) -> bool:
        return any(numbers.far[0] > 0 for numbers in self.numbers)

    def features(self, side: Side) -> Tensor:
        """Computes 1, square and coordinates from the middle of the box, float64, (P, D+2)."""
        middle = torch.from_numpy((self.low + self.high) / 2).to(self.device)
        position = side.position.double() - of_cloud(middle, side.cloud)
        square = sum(position[:, k] ** 2 for k in range(self.dim))
        return torch.cat([torch.ones_like(position[:, :1]), square.unsqueeze(1), position], dim=1)  # type: ignore[union-attr]

    def far_corners(self, side: Side) -> Corners:
        """Returns features of points as corner weights in a table of features and clouds."""
        feature, clouds = self.features(side), len(self.rungs)
        vertex = side.cloud.unsqueeze(1) + clouds * torch.arange(
            feature.size(1), device=self.device
        )
        none = vertex[:0, 0]
        return Corners(vertex, feature.to(side.position.dtype), none, none)

    def far_table(self, side: Side, rows: Tensor) -> Tensor:
        """Sums rows (P, W) times features per feature and cloud, ((D+2) B, W)."""
        start = torch.searchsorted(
            side.cloud, torch.arange(len(self.rungs) + 1, device=self.device)
        )
        feature = self.features(side).to(rows.dtype)
        sums = [
            self.kernels.sum_rows(rows, None, feature[:, k].contiguous(), start)
            for k in range(feature.size(1))
        ]
        moments = self.peers.sum(torch.stack(sums))
        a, b, q = (
            column.unsqueeze(1)
            for column in self._table([list(n.far) for n in self.numbers]).to(rows.dtype).T
        )
        one, square = a * moments[0] - b * moments[1], q * moments[1] - b * moments[0]
        return torch.cat([one.unsqueeze(0), square.unsqueeze(0), 2 * b * moments[2:]]).flatten(0, 1)

    def own_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the filter's weight between each point and itself, float64, (P,), and its
        derivatives by the barycentric weights, (P, D+1), and by the square, (P,)."""
        table, cloud, weight = own_table(self.dim), self.keys.cloud, self.located[0].weight
        numbers = self._table(
            [[n.weight[1], n.own + n.at_zero, n.far[0], n.far[2]] for n in self.numbers]
        )
        first, own, a, q = of_cloud(numbers, cloud).T
        sides = range(self.dim + 1)
        reached = torch.stack(
            [sum(float(table[abs(l - m)]) * weight[:, m] for m in sides) for l in sides], dim=1
        )
        on_step = sum(weight[:, l] * reached[:, l] for l in sides)
        square = self.features(self.keys)[:, 1] if self.has_far else torch.zeros_like(own)
        return (
            first * on_step + own + a + q * square**2,
            2 * first.unsqueeze(1) * reached,
            2 * q * square,
        )

    @cached_property
    def near(self) -> Near | None:
        """The near field, if some cloud has one."""
        if all(numbers.radius == 0 for numbers in self.numbers):
            return None
        table = self._table([[numbers.radius, *numbers.near] for numbers in self.numbers])
        return Near(
            self.kernel,
            table,
            *(torch.from_numpy(edge).to(self.device) for edge in (self.low, self.high)),
        )

    def add_near(
        self,
        targets: Side,
        sources: Side,
        sums: Tensor | None,
        slopes: Tensor | None,
        rows: Tensor | None,
        products: tuple[Tensor, Tensor] | None,
    ) -> None:
        """Adds the near field of targets to sums over sources, and its gradients to slopes."""
        near = self.near
        if near is None:
            return
        chosen = [_with_near(side, near) for side in (targets, sources)]
        (target, here), (source, there) = chosen
        tables = [] if rows is None else [rows[there]]
        tables += [] if products is None else [products[1][there]]
        for others, columns in self.peers.sweep(source, *tables):
            others = target if others is source and targets is sources else others
            pair = None if products is None else (products[0][here], columns[-1])
            added = self.kernels.sum_near(
                near, target, others, None if rows is None else columns[0], pair
            )
            for into, part in ((sums, added[0]), (slopes, added[1])):
                if into is not None and part is not None:
                    into[here] += part

    # Sums and gradients

    def sum(self, rows: Tensor) -> Tensor:
        """Sums the rows of the keys, (M, W)."""
        of_keys, of_queries = self.corners
        out = of_queries.slice(self.filter(of_keys.splat(rows, self.kernels)), self.kernels)
        if self.has_far:
            out += self.far_corners(self.queries).slice(
                self.far_table(self.keys, rows), self.kernels
            )
        self.add_near(self.queries, self.keys, out, None, rows, None)
        if self.to_itself:
            out += (1 - self.own_weights()[0]).to(out.dtype).unsqueeze(1) * rows
        return out

    def gradients(self, rows: Tensor, grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the gradients of :meth:`sum` by rows and by positions of keys and queries,
        float64. The filter is symmetric: gradients go through it as values do."""
        (keys, queries), (of_keys, of_queries), width = self.located, self.corners, rows.size(1)
        table = self.filter(
            torch.cat(
                [of_keys.splat(rows, self.kernels), of_queries.splat(grads, self.kernels)], dim=1
            )
        )
        value_table, grad_table = (part.contiguous() for part in table.split(width, dim=1))
        of_rows = of_keys.slice(grad_table, self.kernels)
        key_products = of_keys.products(grad_table, rows, self.kernels)
        query_products = of_queries.products(value_table, grads, self.kernels)
        del table, value_table, grad_table
        key_slopes, query_slopes = (
            torch.zeros_like(side.position, dtype=torch.float64)
            for side in (self.keys, self.queries)
        )
        if self.to_itself:
            own, by_weight, by_square = self.own_weights()
            of_rows += (1 - own).to(rows.dtype).unsqueeze(1) * grads
            product = (rows * grads).sum(dim=1, dtype=torch.float64)
            key_products -= product.unsqueeze(1) * by_weight
            if self.has_far:
                key_slopes -= (
                    2 * (product * by_square).unsqueeze(1) * self.features(self.keys)[:, 2:]
                )
        if self.has_far:
            self._add_far_gradients(rows, grads, of_rows, key_slopes, query_slopes)
        spacing = torch.from_numpy(self.frame.spacing).to(self.device)
        key_slopes += keys.slopes(key_products, self.keys.cloud, spacing)
        query_slopes += queries.slopes(query_products, self.queries.cloud, spacing)
        if self.to_itself:
            key_slopes += query_slopes
            products = torch.cat([rows, grads], dim=1), torch.cat([grads, rows], dim=1)
            self.add_near(self.keys, self.keys, of_rows, key_slopes, grads, products)
        else:
            self.add_near(self.queries, self.keys, None, query_slopes, None, (grads, rows))
            self.add_near(self.keys, self.queries, of_rows, key_slopes, grads, (rows, grads))
        return of_rows, key_slopes, query_slopes

    def _add_far_gradients(
        self, rows: Tensor, grads: Tensor, of_rows: Tensor, key_slopes: Tensor, query_slopes: Tensor
    ) -> None:
        tables = self.far_table(self.queries, grads), self.far_table(self.keys, rows)
        sides = (self.keys, rows, key_slopes), (self.queries, grads, query_slopes)
        of_rows += self.far_corners(self.keys).slice(tables[0], self.kernels)
        for table, (side, held, slopes) in zip(tables, sides, strict=True):
            by_feature = self.far_corners(side).products(table, held, self.kernels)
            slopes += by_feature[:, 2:] + 2 * by_feature[:, 1:2] * self.features(side)[:, 2:]


def _take(side: Side, part: slice, first: int) -> Side:
    return Side(side.position[part], side.cloud[part] - first)


def _with_near(side: Side, near: Near) -> tuple[Side, Tensor]:
    """Selects the points of clouds that have a near field."""
    some = (near.table[side.cloud, 0] > 0).nonzero().squeeze(1)
    return Side(side.position[some], side.cloud[some]), some


def _sum_tables(
    tables: list[Tensor], steps: list[Step], weight: Tensor, peers: Peers
) -> list[Tensor]:
    """Sums the tables (V, W) over processes in one exchange, except rows without weight."""
    some = [
        (weight[:, number + 1][step.cloud] != 0).nonzero().squeeze(1)
        for number, step in enumerate(steps)
    ]
    group = torch.cat([torch.full_like(index, number) for number, index in enumerate(some)])
    key = torch.cat([step.key[index] for step, index in zip(steps, some, strict=True)])
    rows = torch.cat([table[index] for table, index in zip(tables, some, strict=True)])
    totals = peers.sum_by_key(group, key, rows).split([len(index) for index in some])
    return [
        table.index_copy(0, index, total)
        for table, index, total in zip(tables, some, totals, strict=True)
    ]


def key_bits(rung: Rung, count: int, diagonal: float, dim: int) -> int:
    """Returns an upper bound of the bits of a vertex's key over ``count`` steps of a cloud."""
    sizes = np.ceil(2**0.5 * diagonal / rung.h * 0.5 ** np.arange(count // 2 + 1)) + 2 * MARGIN + 4
    return int(dim * bit_widths(sizes).max())
