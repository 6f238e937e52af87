r"""Far queries: what they get of all keys alike (:mod:`phgcn.lattice.far`), added after the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..far import far_gradients, far_weight
from .bounds import cloud_bounds
from .clouds import Clouds
from .rows import Rows
from .splat import PointRows, sum_clouds


class FarQueries:
    """The queries of all clouds, and the keys' bounds and sums.

    Args:
        clouds (Clouds): The points.
        values (Rows): The rows of the keys, whose extra column is all ones.
    """

    def __init__(self, clouds: Clouds, values: Rows) -> None:
        self.clouds = clouds
        self.filtered = clouds.cloud[clouds.queries] >= 0
        self.cloud = clouds.cloud[clouds.queries].clamp(min=0).to(torch.int64)
        self.bounds = cloud_bounds(clouds, slice(0, clouds.sources))
        low, high = (bound[self.cloud] for bound in self.bounds)
        self.seen = clouds.position[clouds.queries], low, high
        sums = sum_clouds(PointRows(values), clouds)
        self.sums, self.counts = sums.main.double()[self.cloud], sums.extra.double()[self.cloud, 0]
        self.weight = torch.where(self.filtered, far_weight(*self.seen), 0.0)

    def add(self, out: Tensor, norm: Tensor) -> None:
        """Adds to output and normaliser what far queries get."""
        before, flat = norm.view(-1).double(), out.view(-1, out.size(2))
        after = before + self.weight * self.counts
        factor = torch.where(after != 0, 1 / torch.where(after != 0, after, 1.0), 0.0).unsqueeze(1)
        mixed = (flat.double() * before.unsqueeze(1) + self.weight.unsqueeze(1) * self.sums) * factor
        # Most queries are not far: their bits stay.
        flat.copy_(torch.where(self.weight.unsqueeze(1) > 0, mixed, flat.double()))
        norm.view(-1).copy_(after)

    def add_gradients(self, grads: Rows, grad_values: Tensor, grad_points: Tensor) -> None:
        """Adds the gradients of :meth:`add`; ``grads`` are those of the queries' sums."""
        clouds, dim = self.clouds, self.clouds.position.size(1)
        grad, of_norm = grads.main.double(), grads.extra[:, 0].double()
        of_cloud = self._sum(self.weight.unsqueeze(1) * grad)
        cloud = clouds.cloud[: clouds.sources].to(torch.int64)
        of_values = torch.where(cloud.unsqueeze(1) >= 0, of_cloud[cloud.clamp(min=0)], 0.0)
        grad_values.view(of_values.shape).add_(of_values.to(grad_values.dtype))
        product = (grad * self.sums).sum(dim=1) + of_norm * self.counts
        product = torch.where(self.filtered, product, 0.0)
        of_queries, *of_bounds = far_gradients(*self.seen, product)
        grad_points[clouds.queries] += of_queries.to(grad_points.dtype)
        edges = self._sum(torch.cat(of_bounds, dim=1)).split(dim, dim=1)
        for bound, of_bound in zip(self.bounds, edges, strict=True):
            self._add_at_edge(bound, of_bound, grad_points)

    def _sum(self, rows: Tensor) -> Tensor:
        """Sums rows of the queries of each cloud, in a fixed order."""
        nothing = Rows(rows.new_zeros(self.clouds.sources, rows.size(1)), self.clouds.sources, rows.size(1))
        held = PointRows(nothing, Rows(rows.contiguous(), *rows.shape), self.clouds.first_query)
        return sum_clouds(held, self.clouds, like=rows).main[:, rows.size(1) :]

    def _add_at_edge(self, bound: Tensor, of_bound: Tensor, grad_points: Tensor) -> None:
        """Adds gradients of bounds, (clouds, D), to the first key of each cloud that has them."""
        clouds = self.clouds
        cloud = clouds.cloud[: clouds.sources].to(torch.int64)
        filtered = (cloud >= 0).unsqueeze(1)
        at = cloud.clamp(min=0)
        is_edge = filtered & (clouds.position[: clouds.sources].double() == bound[at])
        number = torch.arange(clouds.sources, device=cloud.device).unsqueeze(1)
        first = torch.full(bound.shape, clouds.sources, device=cloud.device).scatter_reduce(
            0, at.unsqueeze(1).expand_as(is_edge), torch.where(is_edge, number, clouds.sources), "amin"
        )
        mine = is_edge & (first[at] == number)
        grad_points[: clouds.sources] += torch.where(mine, of_bound[at], 0.0).to(grad_points.dtype)
