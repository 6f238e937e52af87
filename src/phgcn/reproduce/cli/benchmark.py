r"""``phgcn reproduce benchmark``: GlobalGNN and its rivals on ten graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .display import JobsDisplay

LIST = "A,B,..."


def reproduce_benchmark(
    out: options.ResultsFolder = Path("results/benchmark"),
    quick: Annotated[bool, typer.Option("--quick", help="2 trials, 3 epochs, 3 splits: the form, not the results.")] = False,
    graphs: Annotated[str | None, typer.Option(help="\\[default: all ten]", metavar=LIST, show_default=False)] = None,
    models: Annotated[str | None, typer.Option(help="\\[default: all]", metavar=LIST, show_default=False)] = None,
    stage: Annotated[str, typer.Option(help="all, or only one of: search, train, report.")] = "all",
    trials: Annotated[int, typer.Option(help="Trials of each search, the same for all models.")] = 30,
    seconds: Annotated[float, typer.Option(help="Seconds of each search, times the effort of the graph.")] = 60.0,
    limit_seconds: Annotated[
        float | None, typer.Option(help="After so many seconds nothing new is begun, and what runs is cut off.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="How many processes.")] = 1,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Search for settings of GlobalGNN and its rivals with equal effort, and train all on ten splits of ten graphs.

    Settings are chosen by the validation metric on splits 0 to 2. Writes benchmark.json, benchmark-search.json (every trial)
    and benchmark.md. A command that was cut off continues; several on one GPU share it best through NVIDIA's MPS.

    Examples:

    - `phgcn reproduce benchmark --quick --graphs texas --models global-gnn,strong-mlp`

    - `phgcn reproduce benchmark --device cuda --jobs 14 --trials 30 --seconds 45 --limit-seconds 560`

    - `phgcn reproduce benchmark --stage report`
    """
    from ..benchmark import run as experiment

    asked: dict[str, Any] = {"trials": trials, "seconds": seconds, "device": device}
    asked |= {key: tuple(value.split(",")) for key, value in (("graphs", graphs), ("models", models)) if value is not None}
    if limit_seconds is not None:
        asked["limit_seconds"] = limit_seconds
    request = experiment.Request(**asked)
    request = experiment.quick_request(request) if quick else request
    with JobsDisplay() as display:
        content = experiment.run(out, request, stage, jobs, display.update)
    if as_json:
        print_json(content)
    else:
        _show(content)
    raise typer.Exit(1 if content["failures"] else 0)


def _show(content: dict[str, Any]) -> None:
    rows = [
        (row["graph"], row["title"], f"{row['mean']:.1f} ± {row['std']:.1f}",
         "-" if row["unseen_mean"] is None else f"{row['unseen_mean']:.1f}", len(row["per_split"]), row["search_trials"],
         f"{1000 * row['seconds_per_epoch']:.1f}")
        for row in content["rows"]
    ]  # fmt: skip
    heading = ("graph", "model", "test %", "unseen splits", "splits", "trials", "ms per epoch")
    console().print(table("GlobalGNN and its rivals", heading, rows, numbers_from=2))
    for name, why in content["failures"].items():
        print(f"failed: {name}: {why}")
    print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")
