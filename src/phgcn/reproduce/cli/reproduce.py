r"""``phgcn reproduce``: the paper's experiments, one command each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .benchmark import reproduce_benchmark
from .display import JobsDisplay, ShareDisplay
from .rivals import reproduce_rivals
from .table import reproduce_table
from .trainings import reproduce_city, reproduce_tables
from .when import reproduce_when

app = typer.Typer(help="Repeat the paper's experiments.", no_args_is_help=True, rich_markup_mode="markdown")
app.command("table")(reproduce_table)
app.command("benchmark")(reproduce_benchmark)
app.command("when")(reproduce_when)
app.command("tables")(reproduce_tables)
app.command("city")(reproduce_city)
app.command("rivals")(reproduce_rivals)

Quick = Annotated[bool, typer.Option("--quick", help="A small version that takes minutes on two cores.")]


Jobs = Annotated[
    int | None,
    typer.Option(help="How many processes. \\[default: as many as cores; 1 on a GPU]", min=1, show_default=False),
]


@app.command("motif")
def motif(
    out: options.ResultsFolder = Path("results/motif"),
    quick: Quick = False,
    trials: Annotated[int | None, typer.Option(help="Networks of each kind. \\[default: 10, quick: 3]", min=1)] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Batches of graphs to train on. \\[default: 300 to 1000, quick: 250]", min=1)
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Run only these, e.g. 'phgcn-100-*'; results are of all that are done."),
    ] = None,
    jobs: Jobs = None,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train networks to say which motif is frequent: only those with global attention can.

    Writes motif.json, motif.md, the figures motif and motif-graphs as PNG and SVG, and explore.html, a page that shows what a
    network attends to. Results do not depend on the number of
    processes. Several commands, with other cases or devices, can work into one folder at once.

    Examples:

    - `phgcn reproduce motif --quick`

    - `phgcn reproduce motif --out results/motif --cases 'phgcn-100-*' --device cuda --jobs 4`
    """
    from .. import motif as experiment
    from ..motif_page import write_motif_page
    from ..motif_report import HEADINGS, KINDS, rows

    standard = experiment.quick_plan() if quick else experiment.full_plan()
    plan = experiment.change(standard, trials=trials, iterations=iterations)
    chosen = None if cases is None else experiment.choose(plan, cases.split(","))
    with JobsDisplay() as display:
        content = experiment.run(plan, out, display.update, only=chosen, jobs=jobs or default_jobs(device), device=device)
    names = ["motif.json", "motif.md", *(f"{name}.{kind}" for name in ("motif", "motif-graphs") for kind in KINDS)]
    files = [str(out / name) for name in names] if content["curves"] else []
    page = write_motif_page(plan, out)
    files += [str(page)] if page else []
    if as_json:
        print_json({"files": files, **content})
    else:
        console().print(table("Which motif is frequent?", HEADINGS, rows(content)))
        _say_rest(content, files)
        if page:
            print(f"what a network attends to: open {page} in a browser")
    raise typer.Exit(1 if content["failures"] else 0)


@app.command("scaling")
def scaling(
    out: options.ResultsFolder = Path("results/scaling"),
    quick: Quick = False,
    device: options.Device = "cpu",
    sizes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Numbers of points, ascending. \\[default: 1000,3000,10000,...]")
    ] = None,
    clouds: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="\\[default: 'spread 1,spread 10,clusters']", show_default=False)
    ] = None,
    note: Annotated[str, typer.Option(help="What a reader should know of the machine; kept with the results.")] = "",
    as_json: options.Json = False,
) -> None:
    """Measure how time and memory of attention grow with the number of points.

    Exact and lattice attention to a million points on the CPU, ten million on a GPU, and other packages where they are
    installed. Writes scaling.json, scaling.md, scaling.png and scaling.svg, called scaling-gpu on a GPU.

    Examples:

    - `phgcn reproduce scaling --quick`

    - `phgcn reproduce scaling --device cuda --out results/scaling`
    """
    from .. import scaling as experiment
    from ..scaling_report import WHAT, headings, table_rows

    standard = (experiment.quick if quick else experiment.full)(device)
    effort = experiment.change(standard, sizes and sizes.split(","), clouds and clouds.split(","))
    with ShareDisplay() as display:
        content = experiment.run(effort, out, display.update, device=device, note=note)
    if as_json:
        print_json(content)
        return
    for what, title in WHAT.items():
        unit = "MB" if what == "bytes" else "ms"
        console().print(table(f"{title}, {unit}", headings(content), table_rows(content, what), numbers_from=2))
    for name, why in content["missing"].items():
        print(f"{name} did not run: {why}")
    print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")


@app.command("embeddings")
def embeddings(
    out: options.ResultsFolder = Path("results/embeddings"),
    quick: Quick = False,
    splits: Annotated[int | None, typer.Option(help="Networks for each graph. \\[default: 10, quick: 2]", min=1)] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs at most. \\[default: 1000, quick: 100]", min=1)] = None,
    jobs: Jobs = None,
    as_json: options.Json = False,
) -> None:
    """Look at the embeddings that PH-GCN learns on wisconsin and cornell.

    Do nodes of a class cluster, and do distances follow those in the graph? Writes embeddings.json, embeddings.md,
    embeddings.png and embeddings.svg.

    Examples:

    - `phgcn reproduce embeddings --quick`

    - `phgcn reproduce embeddings --out results/embeddings --splits 10`
    """
    from .. import embeddings as experiment
    from ..embeddings_report import HEADINGS, rows

    settings = replace(experiment.SETTINGS, epochs=epochs or (100 if quick else experiment.SETTINGS.epochs))
    effort = experiment.Effort(splits or (2 if quick else 10), 20 if quick else 100, settings)
    with JobsDisplay() as display:
        content = experiment.run(out, effort, display.update, jobs=jobs or default_jobs("cpu"))
    if as_json:
        print_json(content)
        return
    console().print(table("What the embeddings show", HEADINGS, rows(content)))
    print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")


def _say_rest(content: dict[str, Any], files: list[str]) -> None:
    """Prints what is missing or failed, how long it took, and what was written."""
    for name in content["missing"]:
        print(f"not done yet: {name}")
    for name, why in content["failures"].items():
        print(f"failed: {name}: {why}")
    print("; written to ".join([duration(content["seconds"]), *([", ".join(files)] if files else [])]))


def default_jobs(device: str) -> int:
    """Returns the number of processes: one per core on the CPU; one on a GPU, as each takes memory there."""
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
