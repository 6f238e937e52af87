"""What every stage of every backend must do: the same as its twin in the reference.

A backend inherits :class:`StageCase` and gives a subclass of :class:`Stages` that turns its own structures into those of the
reference: points in the order they are given, vertices in lexicographic order.  All in float64 on the CPU.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import pytest
import torch
from clouds import normal, relative

from phgcn.lattice.coefficients import multiscale_weights, stencil_weights
from phgcn.lattice.reference.blur import blur
from phgcn.lattice.reference.index import index
from phgcn.lattice.reference.levels import mean_pairs
from phgcn.lattice.reference.locate import kuhn_coordinates, locate, self_weight
from phgcn.lattice.reference.near import near_field
from phgcn.lattice.reference.slice import slice_rows
from phgcn.lattice.reference.splat import splat
from phgcn.lattice.scheme import MultiScale, named_scheme


class Stages(ABC):
    """One nested lattice over one cloud, built by a backend, its stages one by one.

    Args:
        points (torch.Tensor): Positions in units of 1/decay, (P, D), float64.
        scheme (MultiScale): The filter; one lattice.
        finest (int): The finest level used; levels are numbered from 0 as in the scheme.
    """

    def __init__(self, points: torch.Tensor, scheme: MultiScale, finest: int) -> None:
        self.points, self.scheme, self.finest = points, scheme, finest

    @abstractmethod
    def simplices(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns Kuhn coordinates of the corners of each point's simplex on the finest level, int64 (P, D+1, D), and
        barycentric weights, (P, D+1)."""

    @abstractmethod
    def self_weights(self) -> torch.Tensor:
        """Returns what all levels from the finest on give each point of itself, (P,)."""

    @abstractmethod
    def vertices(self, level: int) -> torch.Tensor:
        """Returns Kuhn coordinates of the touched vertices of a level, int64 (V, D), in lexicographic order."""

    @abstractmethod
    def splat(self, rows: torch.Tensor) -> torch.Tensor:
        """Splats rows of all points, (P, C), to the vertices of the finest level, (V, C)."""

    @abstractmethod
    def blur(self, level: int, table: torch.Tensor) -> torch.Tensor:
        """Blurs rows of the vertices of one level, (V, C), with the stencil of that level."""

    @abstractmethod
    def slice_rows(self, table: torch.Tensor) -> torch.Tensor:
        """Slices rows of the vertices of the finest level, (V, C), to all points, (P, C)."""

    @abstractmethod
    def slice_gradients(self, table, grad_table, rows, grads) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the derivatives of ``(slice(table) * grads).sum() + (slice(grad_table) * rows).sum()``.

        Args:
            table, grad_table (torch.Tensor): Rows of the vertices of the finest level, (V, C).
            rows, grads (torch.Tensor): Rows of all points, (P, C).

        Returns:
            The derivatives by ``rows``, (P, C), and by the positions of the points, (P, D).
        """

    @abstractmethod
    def near_field(self, queries: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
        """Sums the near field of the finest level over the points, for queries (M, D) or the points themselves: (M, C)."""

    @abstractmethod
    def near_gradients(self, queries, rows, grads) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Computes the derivatives of ``(near_field(queries, rows) * grads).sum()`` by the positions of the points, (P, D), by
        ``rows``, (P, C), and by ``queries``, (M, D)."""

    @abstractmethod
    def mean_pairs(self, queries: torch.Tensor | None, radius: float) -> float:
        """Estimates how many points a query, or a point, has within a radius."""


class ReferenceStages(Stages):
    """The twins in the reference; gradients by autograd."""

    @cached_property
    def fitted(self):
        return multiscale_weights(self.scheme, self.points.size(1))

    def located(self, level: int, points=None):
        points = self.points if points is None else points
        return locate(kuhn_coordinates(points, self.scheme.spacing, len(self.scheme.hops), 0), level)

    def simplices(self):
        return tuple(self.located(self.finest))

    def self_weights(self):
        levels = range(self.finest, len(self.scheme.hops))
        return torch.stack([self_weight(self.located(level).weight, self.fitted, level) for level in levels]).sum(dim=0)

    def vertices(self, level):
        return torch.tensor(list(index(self.located(level)).number))

    def splat(self, rows):
        simplices = self.located(self.finest)
        vertices = index(simplices)
        return splat(rows, vertices.corner, simplices.weight, len(vertices.number))

    def blur(self, level, table):
        number = index(self.located(level)).number
        return blur(table, number, *stencil_weights(self.points.size(1), self.scheme.hops[level], self.fitted.weights[level]))

    def slice_rows(self, table, points=None):
        simplices = self.located(self.finest, points)
        return slice_rows(table, index(simplices).corner, simplices.weight)

    def slice_gradients(self, table, grad_table, rows, grads):
        points, rows = self.points.clone().requires_grad_(), rows.clone().requires_grad_()
        total = (self.slice_rows(table, points) * grads).sum() + (self.slice_rows(grad_table, points) * rows).sum()
        of_points, of_rows = torch.autograd.grad(total, (points, rows))
        return of_rows, of_points

    def near_field(self, queries, rows):
        return near_field(self.points if queries is None else queries, self.points, rows, self.fitted, self.finest)

    def near_gradients(self, queries, rows, grads):
        inputs = [t.clone().requires_grad_() for t in (self.points, rows, queries) if t is not None]
        targets = inputs[0] if queries is None else inputs[2]
        out = near_field(targets, inputs[0], inputs[1], self.fitted, self.finest)
        return *torch.autograd.grad(out, inputs, grads), *([None] if queries is None else [])

    def mean_pairs(self, queries, radius):
        return mean_pairs(self.points, queries, radius)


class StageCase:
    """Each stage against its twin, on small random clouds; a backend gives its :class:`Stages`."""

    stages: type[Stages]
    dims = (1, 2, 3, 4, 5)
    count = 30
    channels = 3

    @pytest.fixture
    def pair(self, dim, finest):
        """The backend's stages and the reference's, of the same cloud."""
        points = normal(self.count, dim, seed=dim) * 2
        made = points, named_scheme("lattice", dim), finest
        return self.stages(*made), ReferenceStages(*made)

    def pytest_generate_tests(self, metafunc):
        if "pair" in metafunc.fixturenames:
            metafunc.parametrize("dim", self.dims)
            near = "near" in metafunc.function.__name__  # level 0 has no near field
            metafunc.parametrize("finest", [1] if near else [0, 1])

    def rows(self, count, seed):
        return normal(count, self.channels, seed=seed)

    def test_locate(self, pair):
        (vertex, weight), (want_vertex, want_weight) = (stages.simplices() for stages in pair)
        assert torch.equal(vertex, want_vertex)
        torch.testing.assert_close(weight, want_weight, rtol=0, atol=1e-12)

    def test_self_weights(self, pair):
        got, want = (stages.self_weights() for stages in pair)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)

    def test_index(self, pair):
        for level in range(pair[1].finest, len(pair[1].scheme.hops)):
            got, want = (stages.vertices(level) for stages in pair)
            assert torch.equal(got, want)

    def test_splat(self, pair):
        got, want = (stages.splat(self.rows(self.count, 1)) for stages in pair)
        assert relative(got, want) < 1e-12

    def test_blur(self, pair):
        for level in range(pair[1].finest, len(pair[1].scheme.hops)):
            table = self.rows(len(pair[1].vertices(level)), 2)
            got, want = (stages.blur(level, table) for stages in pair)
            assert relative(got, want) < 1e-12

    def test_slice_rows(self, pair):
        table = self.rows(len(pair[1].vertices(pair[1].finest)), 3)
        got, want = (stages.slice_rows(table) for stages in pair)
        assert relative(got, want) < 1e-12

    def test_slice_gradients(self, pair):
        table, grad_table = (self.rows(len(pair[1].vertices(pair[1].finest)), seed) for seed in (4, 5))
        rows, grads = self.rows(self.count, 6), self.rows(self.count, 7)
        for got, want in zip(*(stages.slice_gradients(table, grad_table, rows, grads) for stages in pair), strict=True):
            assert relative(got, want) < 1e-11

    @pytest.mark.parametrize("across", [False, True])
    def test_near_field(self, pair, dim, across):
        queries = normal(17, dim, seed=8) if across else None
        got, want = (stages.near_field(queries, self.rows(self.count, 9)) for stages in pair)
        assert relative(got, want) < 1e-11

    @pytest.mark.parametrize("across", [False, True])
    def test_near_gradients(self, pair, dim, across):
        queries = normal(17, dim, seed=8) if across else None
        rows, grads = self.rows(self.count, 9), self.rows(17 if across else self.count, 10)
        for got, want in zip(*(stages.near_gradients(queries, rows, grads) for stages in pair), strict=True):
            assert (got is None) == (want is None)
            assert want is None or relative(got, want) < 1e-10

    @pytest.mark.parametrize("across", [False, True])
    def test_mean_pairs(self, pair, dim, across):
        queries = normal(17, dim, seed=11) if across else None
        for radius in (0.5, 2.0, 8.0):
            got, want = (stages.mean_pairs(queries, radius) for stages in pair)
            np.testing.assert_allclose(got, want, rtol=1e-12)
