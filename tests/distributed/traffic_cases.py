"""What a rank exchanges in a forward and a backward pass of global attention, and what
``docs/distributed.md`` says of it.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

import phgcn
from phgcn.distributed import Ranks, attention
from phgcn.lattice import Ladder


class WatchedRanks(Ranks):
    """Lists the collectives of this rank: their names, and how many bytes it sends by them."""

    calls: ClassVar[list[tuple[str, float]]] = []

    def gather_equal(self, tensor: Tensor) -> Tensor:
        self.calls.append(("gather_equal", (self.size - 1) * tensor.nbytes))
        return super().gather_equal(tensor)

    def fill(self, parts: Any) -> None:
        tensors = [[part] if isinstance(part, Tensor) else part for part in parts]
        if any(tensor.numel() > 0 for part in tensors for tensor in part):
            self.calls.append(
                ("fill", (self.size - 1) * sum(tensor.nbytes for tensor in tensors[self.rank]))
            )
        super().fill(parts)

    def sum_in_place(self, tensor: Tensor) -> Tensor:
        # a reduce-scatter and an all-gather
        self.calls.append(("sum", 2 * tensor.nbytes * (self.size - 1) / self.size))
        return super().sum_in_place(tensor)

    def max(self, tensor: Tensor) -> Tensor:
        self.calls.append(("max", 2 * tensor.nbytes * (self.size - 1) / self.size))
        return super().max(tensor)

    def exchange(self, rows: Tensor, send: Any, receive: Any) -> Tensor:
        self.calls.append(("exchange", rows.nbytes * (1 - send[self.rank] / max(1, len(rows)))))
        return super().exchange(rows, send, receive)


def attend_by_ladder(group: Any, spread: float, count: int) -> tuple[list, list]:
    """Attends by a ladder with the points of this rank, of ``count``; returns the collectives of
    the forward and of the backward pass."""
    ranks, generator = Ranks(group), torch.Generator().manual_seed(5)
    points = spread * torch.randn(count, 3, generator=generator)
    values = torch.randn(count, 8, generator=generator)
    here = slice(ranks.rank * count // ranks.size, (ranks.rank + 1) * count // ranks.size)
    leaves = [t[here].clone().requires_grad_() for t in (points, values)]
    WatchedRanks.calls, attention.Ranks = [], WatchedRanks
    try:
        out = phgcn.global_attention(*leaves, decay=1.0, method=Ladder(), group=group)
        forward, WatchedRanks.calls = WatchedRanks.calls, []
        out.sum().backward()
    finally:
        attention.Ranks = Ranks
    return forward, WatchedRanks.calls
