"""What a rank does with a cloud on the Triton backend, watched: which levels ranks agree on, and how much they exchange."""

import warnings
from typing import Any, NamedTuple

import torch
from attention_cases import Case, attend_on_rank
from torch import Tensor

from phgcn.distributed import Ranks, attention, triton_lattice, triton_near


class Watched(NamedTuple):
    """What a rank found: output, mass and gradients with its keys and queries; of what kinds the clouds of all ranks are; and
    the bytes of the tensors that it put into collectives."""

    part: tuple[dict[str, Tensor], Tensor, Tensor]
    kinds: set[str]
    bytes: int


class CountingRanks(Ranks):
    """Counts the bytes of the tensors that this rank has for others; not those of a few numbers."""

    sent = 0

    def _count(self, tensor: Tensor) -> None:
        CountingRanks.sent += tensor.numel() * tensor.element_size()

    def fill(self, parts: Any) -> None:
        self._count(parts[self.rank])
        super().fill(parts)

    def sum_in_place(self, tensor: Tensor) -> Tensor:
        self._count(tensor)
        return super().sum_in_place(tensor)

    def exchange(self, rows: Tensor, send: Any, receive: Any) -> Tensor:
        self._count(rows)
        return super().exchange(rows, send, receive)


def kind(finest: int, step: int) -> str:
    """Of what kind a cloud is, by its finest level and its step."""
    return "one place" if finest < 0 else "sparse" if finest > 0 else "narrow" if step > 0 else "dense"


def attend_watched(group: Any, case: Case, chunk: int = triton_near.CHUNK) -> Watched:
    """Attends with the points of this rank; near-field sources come at most ``chunk`` at a time.  Memory that is allocated is
    filled with NaN, so that what is read before it is written is seen."""
    seen = []

    def agree(*given: Any) -> Any:
        levels = agree_on_levels(*given)
        clouds = zip(levels.finest.tolist(), levels.step.tolist(), given[0].totals.tolist(), strict=True)
        seen.append({kind(finest, step) for finest, step, points in clouds if points > 0})
        return levels

    agree_on_levels, before, CountingRanks.sent = triton_lattice.agree_on_levels, triton_near.CHUNK, 0
    triton_lattice.agree_on_levels, triton_near.CHUNK, attention.Ranks = agree, chunk, CountingRanks
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = attend_on_rank(group, case)
    finally:
        triton_lattice.agree_on_levels, triton_near.CHUNK, attention.Ranks = agree_on_levels, before, Ranks
        torch.use_deterministic_algorithms(False)
    return Watched(part, set().union(*seen), CountingRanks.sent)
