"""Collectives and their gradients, on a rank."""

from typing import Any

import torch
from torch import Tensor

from phgcn.distributed import Ranks, exchange_rows, gather_rows, sum_gradients, sum_over_ranks
from phgcn.distributed.collectives import gather_for_shared_loss

COUNTS = [3, 0, 2, 4]


def rows_of(rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(COUNTS[rank], 2, generator=generator, dtype=torch.float64).requires_grad_()


def weights_of(rank: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(100 + rank), dtype=torch.float64
    )


def sums(group: Any) -> tuple[Tensor, Tensor]:
    ranks = Ranks(group)
    x = weights_of(50 + ranks.rank, (3,)).requires_grad_()
    out = sum_over_ranks(x, ranks)
    (out * weights_of(ranks.rank, (3,))).sum().backward()
    return out.detach(), x.grad


def gathers(group: Any) -> tuple[Tensor, Tensor, Tensor]:
    ranks, x = Ranks(group), rows_of(Ranks(group).rank)
    out = gather_rows(x, ranks, COUNTS[: ranks.size])
    (out * weights_of(ranks.rank, tuple(out.shape))).sum().backward()
    grad, x.grad = x.grad, None
    shared = gather_for_shared_loss(x, ranks, COUNTS[: ranks.size])
    (shared * weights_of(0, tuple(shared.shape))).sum().backward()  # the same loss on every rank
    return out.detach(), grad, x.grad


def wanted_rows(rank: int, other: int) -> list[int]:
    """Which rows a rank sends to another."""
    return [row for row in range(COUNTS[rank]) if (row + rank + other) % 2 == 0]


def exchanges(group: Any) -> tuple[Tensor, Tensor]:
    ranks, x = Ranks(group), rows_of(Ranks(group).rank)
    send = [wanted_rows(ranks.rank, other) for other in range(ranks.size)]
    receive = [len(wanted_rows(other, ranks.rank)) for other in range(ranks.size)]
    index = torch.tensor([row for rows in send for row in rows], dtype=torch.int64)
    out = exchange_rows(x, index, [len(rows) for rows in send], receive, ranks)
    (out * weights_of(ranks.rank, tuple(out.shape))).sum().backward()
    return out.detach(), x.grad


def parameter_sums(group: Any) -> tuple[Tensor, Tensor, bool]:
    ranks = Ranks(group)
    used, rarely, never = (
        torch.zeros(2, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    (used.sum() * (ranks.rank + 1)).backward()
    if ranks.rank == 1:
        rarely.sum().backward()
    sum_gradients([used, rarely, never], ranks)
    return used.grad, rarely.grad, never.grad is None
