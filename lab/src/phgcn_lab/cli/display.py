r"""What the commands of the experiments share: options, progress on stderr, results on stdout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

from phgcn.cli.display import console, duration, print_json, table
from phgcn.cli.progress import Display

if TYPE_CHECKING:
    from ..experiment import Experiment
    from ..workers import Progress

LIST = "A,B,..."
Jobs = Annotated[int, typer.Option(help="How many processes.")]
JobsByDevice = Annotated[
    int | None,
    typer.Option(
        help="How many processes. \\[default: as many as cores; 1 on a GPU]",
        min=1,
        show_default=False,
    ),
]
Stage = Annotated[str, typer.Option(help="all, or report: only join what is there.")]
Note = Annotated[
    str, typer.Option(help="What a reader should know of the machine; kept with the results.")
]
LimitSeconds = Annotated[
    float | None,
    typer.Option(help="After so many seconds nothing new is begun, and what runs is cut off."),
]


def names(default: str, about: str = "") -> Any:
    text = f"{about} \\[default: {default}]".strip()
    return typer.Option(help=text, metavar=LIST, show_default=False)


def number(about: str, default: str, min: int | None = None) -> Any:
    return typer.Option(help=f"{about} \\[default: {default}]", show_default=False, min=min)


def small(what: str = "A small version that takes minutes on two cores.") -> Any:
    return typer.Option("--quick", help=what)


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def listed(**texts: str | None) -> dict[str, Any]:
    """Splits the options that were given at their commas."""
    return {name: tuple(text.split(",")) for name, text in given(**texts).items()}


def only_report(stage: str) -> bool:
    from ..experiment import check_stage

    check_stage(stage, "all", "report")
    return stage == "report"


def default_jobs(device: str) -> int:
    """Returns one process per core on the CPU, and one on a GPU, as each takes memory there."""
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(experiment: Experiment, jobs: int = 1, only_report: bool = False) -> dict[str, Any]:
    from ..experiment import execute

    with JobsDisplay() as display:
        return execute(experiment, jobs, display.update, only_report=only_report)


def finish(content: dict[str, Any], as_json: bool, title: str, lines: Sequence[str]) -> NoReturn:
    """Prints JSON, or tables with what is left, missing and failed; ends the command."""
    if as_json:
        print_json(content)
    else:
        print_tables(title, lines)
        for name in content.get("left", ()):
            print(f"not done yet: {name}")
        for name, why in content.get("missing", {}).items():
            print(f"missing: {name}: {why}" if isinstance(why, str) else f"not done yet: {name}")
        for name, why in content.get("failures", {}).items():
            print(f"failed: {name}: {why}")
        files = [", ".join(map(str, content["files"]))] if content.get("files") else []
        print("; written to ".join([duration(content["seconds"]), *files]))
    raise typer.Exit(1 if content.get("failures") else 0)


def print_tables(title: str, lines: Iterable[str]) -> None:
    plain = (line.replace("*", "").replace("`", "").lstrip("# ") for line in lines if line)
    for is_table, group in groupby(plain, key=lambda line: line.startswith("|")):
        if is_table:
            heading, _, *rows = [line[2:-2].split(" | ") for line in group]
            console().print(table(title, heading, rows))
        else:
            for line in group:
                console().print(escape(line), highlight=False, soft_wrap=True)


class JobsDisplay(Display):
    def __init__(self) -> None:
        super().__init__(total=1.0)

    def update(self, progress: Progress) -> None:
        left = "" if progress.left is None else f"about {duration(progress.left)} left"
        counted = f"{progress.done} of {progress.total} done"
        if progress.kind in ("done", "failed"):
            why = f": {progress.text}" if progress.text else ""
            self.say(f"{counted}, {progress.name} {progress.kind}{why}")
        elif progress.kind == "running" and self.due():
            others = len(progress.running) - 1
            beside = f", {others} beside" if others else ""
            self.show(progress.share, f"{counted}; {progress.name}: {progress.text}{beside}", left)
