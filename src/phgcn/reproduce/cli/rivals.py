r"""``phgcn reproduce rivals``: other ways to sum the kernel, beside this library's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .display import ShareDisplay

LIST = "A,B,..."


def reproduce_rivals(
    out: options.ResultsFolder = Path("results/rivals"),
    quick: Annotated[bool, typer.Option("--quick", help="2,000 points in four dimensions, one round: about a minute.")] = False,
    device: options.Device = "cpu",
    sizes: Annotated[
        str | None, typer.Option(metavar=LIST, help="\\[default: 20000,200000; on a GPU to 10000000]", show_default=False)
    ] = None,
    dims: Annotated[str | None, typer.Option(metavar=LIST, help="\\[default: 4,2,8,3,6]", show_default=False)] = None,
    clouds: Annotated[
        str | None,
        typer.Option(
            metavar=LIST,
            help="\\[default: dense,sparse,clusters,shell,heavy tail,copies,cora,actor,pubmed]",
            show_default=False,
        ),
    ] = None,
    limit_seconds: Annotated[float | None, typer.Option(help="After so many seconds no cloud is begun.")] = None,
    stage: Annotated[str, typer.Option(help="all, or report: only join what is there.")] = "all",
    note: Annotated[str, typer.Option(help="What a reader should know of the machine; kept with the results.")] = "",
    as_json: options.Json = False,
) -> None:
    """Compare ways to sum the kernel of attention: error, time and memory of each, swept over its settings.

    This library's methods beside pykeops, scikit-learn's trees, pyNFFT3, slicing, LSH, random features, Nyström and
    pydensecrf2, those that are installed. Writes rivals.json, rivals.md and the figures rivals and rivals-all as PNG and SVG,
    called rivals-gpu on a GPU. A command that was cut off continues.

    Examples:

    - `phgcn reproduce rivals --quick`

    - `phgcn reproduce rivals --device cuda --dims 2,4 --limit-seconds 100`
    """
    from ..rivals import run as experiment
    from ..rivals.report import BOUNDS, fastest, label, milliseconds, places, select

    if stage not in ("all", "report"):
        raise ValueError(f"stage is {stage!r}; allowed: all, report")
    standard = (experiment.quick if quick else experiment.full)(device)
    effort = experiment.change(standard, *(text and text.split(",") for text in (sizes, dims, clouds)))
    limit = float("inf") if limit_seconds is None else limit_seconds
    if stage == "report":
        content = experiment.write_report(effort, out, device, note)
    else:
        with ShareDisplay() as display:
            content = experiment.run(effort, out, display.update, device=device, note=note, seconds=limit)
    if as_json:
        print_json(content)
        return
    rows = []
    for place in places(content):
        chosen = [fastest(select(content, *place), bound) for bound in BOUNDS]
        texts = [
            f"{label(row)}, {milliseconds(row['forward']['seconds'])} ms".replace("`", "") if row else "none" for row in chosen
        ]
        rows.append((place[0], str(place[1]), f"{place[2]:,}", *texts))
    heading = ("cloud", "D", "N", *(f"error ≤ {bound:g}" for bound in BOUNDS))
    console().print(table("The fastest at an error", heading, rows, numbers_from=len(heading)))
    for name, why in content["missing"].items():
        print(f"{name} did not run: {why}")
    for name in content["left"]:
        print(f"not done yet: {name}")
    print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")
