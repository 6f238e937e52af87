"""What a rank does with a cloud on the Triton backend, watched: how much it exchanges."""

import warnings
from typing import Any, NamedTuple

import torch
import triton_interpreter  # noqa: F401, patches it
from attention_cases import Case, attend_on_rank
from torch import Tensor

from phgcn.distributed import Ranks, attention, ladder


class Watched(NamedTuple):
    """What a rank found: output, mass and gradients with its keys and queries; and the bytes of the
    tensors that it put into collectives."""

    part: tuple[dict[str, Tensor], Tensor, Tensor]
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


def attend_watched(group: Any, case: Case, chunk: int = ladder.CHUNK) -> Watched:
    """Attends with the points of this rank; near-field sources come at most ``chunk`` at a time.
    Memory that is allocated is filled with NaN, so that what is read before it is written is
    seen."""
    before, CountingRanks.sent = ladder.CHUNK, 0
    ladder.CHUNK, attention.Ranks = chunk, CountingRanks
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = attend_on_rank(group, case)
    finally:
        ladder.CHUNK, attention.Ranks = before, Ranks
        torch.use_deterministic_algorithms(False)
    return Watched(part, CountingRanks.sent)
