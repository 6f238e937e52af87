r"""Hashes that say which rank looks after a thing: what ranks have of one thing comes together on one of them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .collectives import Ranks


def hash_columns(columns: Iterable[Tensor]) -> Tensor:
    """Hashes rows of integers, given as columns (P,) of int64, to 64 bits.

    Each column is mixed in by the finalizer of SplitMix64: cells are small integers of either sign, which simpler hashes
    confuse.
    """
    code = torch.zeros(1, dtype=torch.int64)
    for column in columns:
        code = (code.to(column.device) ^ column) + _signed(0x9E3779B97F4A7C15)
        code = _fold(code, 30) * _signed(0xBF58476D1CE4E5B9)
        code = _fold(code, 27) * _signed(0x94D049BB133111EB)
        code = _fold(code, 31)
    return code


def _fold(code: Tensor, bits: int) -> Tensor:
    """Returns the exclusive or of codes and of codes shifted right; zeros are shifted in, whatever the sign."""
    shifted = (code >> bits) & (2 ** (64 - bits) - 1)
    return code.bitwise_xor(shifted)


def _signed(number: int) -> int:
    """Returns the signed integer that has the same 64 bits."""
    return number - 2**64 if number >= 2**63 else number


class Homes:
    """Sends rows to the ranks that their hashes belong to, and answers back.

    Args:
        codes (torch.Tensor): The hashes of this rank's rows, int64, (P,).
        ranks (Ranks): The processes.
    """

    def __init__(self, codes: Tensor, ranks: Ranks) -> None:
        self.ranks = ranks
        home, self.order = torch.sort((codes >> 33) % ranks.size, stable=True)
        numbers = torch.searchsorted(home, torch.arange(ranks.size + 1, device=home.device)).diff()
        self.numbers: list[int] = numbers.tolist()
        self.arriving: list[int] = ranks.gather_equal(numbers)[:, ranks.rank].tolist()

    def send(self, rows: Tensor) -> Tensor:
        """Sends rows, one for each hash; returns those that arrive."""
        return self.ranks.exchange(rows[self.order], self.numbers, self.arriving)

    def answer(self, rows: Tensor) -> Tensor:
        """Sends rows back, one for each that arrived; returns the answers to this rank's, in their order."""
        answers = self.ranks.exchange(rows, self.arriving, self.numbers)
        out = torch.empty_like(answers)
        out[self.order] = answers
        return out
