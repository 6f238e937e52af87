"""The choice of a method by its error over several ranks; all ranks choose the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..accuracy import (
    Attend,
    cosines,
    detach_call,
    deviations,
    exact_outputs,
    method_outputs,
    slope_products,
)
from ..calls import AttentionCall
from ..tolerance import CallPoints
from .collectives import Ranks


class RankPoints(CallPoints):
    """The points of a call on all ranks, numbered rank by rank.

    Args:
        call (AttentionCall): The call of this rank.
        counts (list): Each rank's number of keys and queries.
        ranks (Ranks): The processes.
        attend (Callable): Computes the output of a call over them.
    """

    def __init__(
        self, call: AttentionCall, counts: list[tuple[int, int]], ranks: Ranks, attend: Attend
    ) -> None:
        super().__init__(call)
        self.all_counts, self.ranks, self.attend = counts, ranks, attend

    @property
    def counts(self) -> tuple[int, int]:
        keys, queries = (sum(numbers) for numbers in zip(*self.all_counts, strict=True))
        return keys, queries

    def take(self, keys: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        here = super().take(self._mine(keys, 0), self._mine(queries, 1))
        return self._in_order(here[0], keys, 0), self._in_order(here[1], queries, 1)

    def errors(self, samples: int, seed: int) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(self.counts[1], generator=generator)[:samples].sort().values
        with torch.inference_mode(False), torch.enable_grad():
            cloud = detach_call(self.call)
            grad = torch.randn(
                len(drawn), *cloud.values.shape[1:], generator=generator, dtype=torch.float64
            )
            device, (begin, end) = cloud.values.device, self._bounds(1)
            points = self._mine(drawn, 1).to(device)
            grad = grad[(drawn >= begin) & (drawn < end)].to(device)
            exact, exact_slope = exact_outputs(cloud, points, grad, self.attend)
            every_exact = torch.cat(self.ranks.gather(exact))
            for lattice in self.lattices:
                out, slope = method_outputs(
                    cloud._replace(lattice=lattice), points, grad, self.attend
                )
                deviation = deviations(torch.cat(self.ranks.gather(out)), every_exact)
                cosine = cosines(self.ranks.sum(slope_products(slope, exact_slope)))
                yield torch.stack([deviation.max(), cosine.min()])

    def agreed(self, numbers: Tensor) -> Tensor:
        return self.ranks.broadcast(numbers.contiguous())

    def _bounds(self, which: int) -> tuple[int, int]:
        """Returns first and end of this rank's keys (0) or queries (1)."""
        before = sum(row[which] for row in self.all_counts[: self.ranks.rank])
        return before, before + self.all_counts[self.ranks.rank][which]

    def _mine(self, numbers: Tensor, which: int) -> Tensor:
        """Returns this rank's rows among the points of these numbers, in their order."""
        begin, end = self._bounds(which)
        return numbers[(numbers >= begin) & (numbers < end)] - begin

    def _in_order(self, here: Tensor, numbers: Tensor, which: int) -> Tensor:
        """Gathers the rows of :meth:`_mine` from all ranks, in the order of the numbers."""
        ends = torch.tensor([row[which] for row in self.all_counts], device=numbers.device).cumsum(
            0
        )
        order = torch.argsort(torch.searchsorted(ends, numbers, right=True), stable=True)
        rows = torch.cat(self.ranks.gather(here.detach()))
        return torch.empty_like(rows).index_copy_(0, order, rows)
