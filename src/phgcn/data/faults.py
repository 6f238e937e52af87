r"""Collects the faults of files, so that one answer names all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .check import GraphFileError

MOST = 20  # faults that one answer names


class Faults:
    """The faults that were found so far: of each kind the first, and how many there are."""

    def __init__(self) -> None:
        self.first: dict[str, GraphFileError] = {}
        self.counts: dict[str, int] = {}

    def add(self, kind: str, error: GraphFileError, count: int = 1) -> None:
        """Adds faults of a kind: a text for what they have in common."""
        self.first.setdefault(kind, error)
        self.counts[kind] = self.counts.get(kind, 0) + count

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Adds an error that is raised in this context, instead of raising it."""
        try:
            yield
        except GraphFileError as error:
            self.add(str(error), error)

    def raise_if_any(self) -> None:
        """Raises one error of all faults."""
        if not self.first:
            return
        lines = []
        for kind, error in self.first.items():
            more = self.counts[kind] - 1
            lines.append(f"{error}" + (f" (and {more:,} more)" if more else ""))
        if len(lines) > MOST:
            lines = [*lines[:MOST], f"and {len(lines) - MOST} more kinds of faults"]
        raise GraphFileError(" // ".join(lines), lines)
