"""Collects the faults of files, so that one answer names all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .check import GraphFileError

MOST = 20  # faults that one answer names


class Faults:
    """The faults so far: the first of each kind, and the number of all."""

    def __init__(self) -> None:
        self.first: dict[str, GraphFileError] = {}
        self.counts: dict[str, int] = {}

    def add(self, kind: str, error: GraphFileError, count: int = 1) -> None:
        """Adds faults of a ``kind``, a text for their common cause."""
        self.first.setdefault(kind, error)
        self.counts[kind] = self.counts.get(kind, 0) + count

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Collects an error in this context instead of raising it."""
        try:
            yield
        except GraphFileError as error:
            self.add(str(error), error)

    def raise_if_any(self) -> None:
        if not self.first:
            return
        lines = []
        for kind, error in self.first.items():
            more = self.counts[kind] - 1
            lines.append(f"{error}" + (f" (and {more:,} more)" if more else ""))
        if len(lines) > MOST:
            lines = [*lines[:MOST], f"and {len(lines) - MOST} more kinds of faults"]
        raise GraphFileError(" // ".join(lines), lines)
