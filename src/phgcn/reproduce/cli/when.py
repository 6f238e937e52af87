r"""``phgcn reproduce when``: when global attention helps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .display import JobsDisplay

LIST = "A,B,..."


def reproduce_when(
    out: options.ResultsFolder = Path("results/when"),
    benchmark: Annotated[
        Path, typer.Option(metavar="FILE", help="The results of phgcn reproduce benchmark, for settings.")
    ] = Path("results/benchmark/benchmark.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="3 epochs, 2 splits, 2 networks of 3 steps: the form, not the results.")
    ] = False,
    graphs: Annotated[
        str | None, typer.Option(help="\\[default: cora,citeseer,wisconsin]", metavar=LIST, show_default=False)
    ] = None,
    parts: Annotated[
        str | None, typer.Option(help="\\[default: edges,labels,motif,tree,ring]", metavar=LIST, show_default=False)
    ] = None,
    networks: Annotated[int, typer.Option(help="Networks of each generated task.")] = 5,
    steps: Annotated[
        int | None, typer.Option(help="Batches that these are trained on. \\[default: 600 to 1500]", show_default=False)
    ] = None,
    limit_seconds: Annotated[
        float | None, typer.Option(help="After so many seconds nothing new is begun, and what runs is cut off.")
    ] = None,
    stage: Annotated[str, typer.Option(help="all, or report: only join what is there.")] = "all",
    jobs: Annotated[int, typer.Option(help="How many processes.")] = 1,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Compare GlobalGNN with itself without its global path, where edges or labels are few, and where far nodes matter.

    Settings are those of the benchmark, for both. Writes when.json, when.md and the figure when as PNG and SVG. A command that
    was cut off continues.

    Examples:

    - `phgcn reproduce when --quick --parts ring`

    - `phgcn reproduce when --device cuda --jobs 14 --limit-seconds 560`
    """
    from ..when import run as experiment

    if stage not in ("all", "report"):
        raise ValueError(f"stage is {stage!r}; allowed: all, report")
    asked: dict[str, Any] = {"networks": networks, "steps": steps, "device": device}
    asked |= {key: tuple(value.split(",")) for key, value in (("graphs", graphs), ("parts", parts)) if value is not None}
    if limit_seconds is not None:
        asked["limit_seconds"] = limit_seconds
    if quick:
        asked |= {"epochs": 3, "splits": 2, "networks": min(networks, 2), "steps": min(steps or 3, 3)}
    request = experiment.Request(benchmark, **asked)
    with JobsDisplay() as display:
        content = experiment.run(out, request, jobs, display.update, only_report=stage == "report")
    if as_json:
        print_json(content)
    else:
        _show(content)
    raise typer.Exit(1 if content["failures"] else 0)


def _show(content: dict[str, Any]) -> None:
    from ..when.report import PARTS, subject

    rows = [
        (PARTS[row["part"]], subject(row), row["text"], f"{row['on_mean']:.1f}", f"{row['off_mean']:.1f}",
         f"{row['difference']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})")
        for row in content["rows"]
    ]  # fmt: skip
    heading = ("", "", "", "head on", "head off", "difference")
    console().print(table("When does global attention help?", heading, rows, numbers_from=3))
    for name, why in content["failures"].items():
        print(f"failed: {name}: {why}")
    print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")
