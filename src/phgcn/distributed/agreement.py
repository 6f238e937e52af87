"""Ranks agree before they exchange anything large: an error on one rank is an error on all, never a
hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .collectives import Ranks

TEXT = 300  # bytes of an error's text that the other ranks are told


class RanksDisagree(ValueError):
    """Ranks called with arguments that do not fit together, or one of them refused its own."""


def agree(
    ranks: Ranks, check: Callable[[], Sequence[int]], names: Sequence[str]
) -> list[list[int]]:
    """Runs a check on every rank and returns the numbers of each, ``len(names)``, once all ranks
    know that none has failed. A rank whose check raises a :class:`ValueError` raises it, all others
    a :class:`RanksDisagree` that quotes it."""
    error: ValueError | None = None
    numbers: Sequence[int] = [0] * len(names)
    try:
        numbers = check()
    except ValueError as refused:
        error = refused
    said = str(error or "").encode()[:TEXT]
    row = torch.zeros(1 + len(names) + TEXT, dtype=torch.int64)
    row[0] = error is not None
    row[1 : 1 + len(names)] = torch.tensor(numbers, dtype=torch.int64)
    row[1 + len(names) : 1 + len(names) + len(said)] = torch.tensor(list(said), dtype=torch.int64)
    rows = ranks.gather_equal(row.to(_device(ranks))).tolist()
    if error is not None:
        raise error
    for rank, other in enumerate(rows):
        if other[0]:
            text = bytes(byte for byte in other[1 + len(names) :] if byte).decode(errors="replace")
            raise RanksDisagree(f"rank {rank} refused its arguments: {text}")
    return [other[1 : 1 + len(names)] for other in rows]


def require_equal(
    rows: list[list[int]], names: Sequence[str], show: Callable[[str, int], str]
) -> None:
    """Refuses numbers that differ between ranks, on all of them with the same words.

    Args:
        rows (list): The numbers of each rank; the first ``len(names)`` are compared.
        names (sequence of str): Their names.
        show (Callable): Turns a name and a number into text.
    """
    for index, name in enumerate(names):
        for rank, row in enumerate(rows):
            if row[index] != rows[0][index]:
                here, first = show(name, row[index]), show(name, rows[0][index])
                raise RanksDisagree(
                    f"{name} is {here} on rank {rank}; allowed: {first}, as on rank 0"
                )


def _device(ranks: Ranks) -> torch.device:
    """Returns the device on which small numbers are exchanged: the CPU where the group can."""
    if "cpu" in ranks.devices:
        return torch.device("cpu")
    return torch.device(ranks.devices[0], torch.cuda.current_device())
