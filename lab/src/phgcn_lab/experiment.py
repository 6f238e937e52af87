r"""What every experiment with many trainings has: cells that do not know of each other, and a
report of what is there.

A cell leaves one file, which is its journal: what its results depend on, and a list of results,
written after every one.  A command that was cut off continues, and several processes or machines
can work into one folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from phgcn.files import read_json, write_json

from .workers import Progress, Report, Task, run_all

NEVER = float("inf")


class TimeUp(Exception):
    """The deadline has passed."""


class Experiment(Protocol):
    """A frozen dataclass in its module: processes get it by pickling its method :meth:`run`."""

    def cells(self) -> Sequence[Task]:
        """Lists what is to be done, in order."""

    def run(self, cell: Any, report: Report) -> None:
        """Does what is missing of a cell, and writes its journal."""

    def report(self) -> dict[str, Any]:
        """Writes the results of what is there; returns what the JSON holds."""


def execute(
    experiment: Experiment,
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    only_report: bool = False,
) -> dict[str, Any]:
    """Runs the cells in so many processes, then the report.

    Returns what the JSON holds; ``failures``, what went wrong by cell; and ``seconds``.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    begin = time.perf_counter()
    cells = () if only_report else experiment.cells()
    failures = run_all(cells, experiment.run, jobs, on_progress)
    return {**experiment.report(), "failures": failures, "seconds": time.perf_counter() - begin}


def journal(
    path: Path, about: Mapping[str, Any], results: str, *, refuse: bool = False
) -> dict[str, Any]:
    """Reads the journal of a cell, or begins one.

    Results depend on ``about``. A file of other settings is begun anew, or refused.
    """
    begun: dict[str, Any] = {**about, results: []}
    if not path.is_file():
        return begun
    content: dict[str, Any] = read_json(path)
    for key, value in about.items():
        if (kept := content.get(key)) != value:
            if not refuse:
                return begun
            if isinstance(value, dict) and isinstance(kept, dict):  # name only what differs
                others = [name for name in value if kept.get(name) != value[name]]
                kept, value = ({name: part.get(name) for name in others} for part in (kept, value))
            made = f"{path} was made with {key} {kept!r}, not {value!r}"
            raise ValueError(f"{made}; choose another --out")
    return content


def fill(
    path: Path,
    content: dict[str, Any],
    results: str,
    missing: Iterable[Any],
    make: Callable[[Any], dict[str, Any]],
    deadline: float,
    report: Report,
) -> None:
    """Makes the results that a journal lacks, until the deadline; writes it after every one."""
    left = list(missing)
    for index, item in enumerate(left):
        if time.time() >= deadline:
            return
        try:
            content[results].append(make(item))
        except TimeUp:
            return
        write_json(path, content)
        report(f"{index + 1} of {len(left)}", (index + 1) / len(left))


def check_names(**names: tuple[Sequence[str], Sequence[str]]) -> None:
    """Checks the names of each argument; there must be some."""
    for name, (values, allowed) in names.items():
        for value in values or [""]:
            if value not in allowed:
                raise ValueError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")


def check_stage(stage: str, *allowed: str) -> None:
    if stage not in allowed:
        raise ValueError(f"stage is {stage!r}; allowed: {', '.join(allowed)}")


def check_positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise ValueError(f"{name} is {number}; allowed: positive numbers")


def whole_numbers(name: str, texts: Sequence[str]) -> tuple[int, ...]:
    if not all(text.isdecimal() and int(text) > 0 for text in texts):
        raise ValueError(f"{name} is {','.join(texts)!r}; allowed: positive whole numbers")
    return tuple(map(int, texts))


def deadline_in(limit_seconds: float | None) -> float:
    check_positive(limit_seconds=limit_seconds)
    return NEVER if limit_seconds is None else time.time() + limit_seconds
