r"""``phgcn reproduce``: the paper's experiments, one command each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from phgcn.cli import options

from . import comparisons
from .display import (
    LIST,
    Jobs,
    JobsByDevice,
    JobsDisplay,
    Note,
    default_jobs,
    finish,
    given,
    listed,
    names,
    number,
    run,
    small,
)

HELP = """Repeat the paper's experiments.

Each command writes its results as JSON, tables as Markdown and figures as PNG and SVG. A command
that was cut off continues where it was.
"""
app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@app.command("table")
def table(
    out: options.ResultsFolder = Path("results/table"),
    quick: Annotated[bool, small()] = False,
    graphs: Annotated[str | None, names("all eight, quick: texas,cornell")] = None,
    models: Annotated[str | None, names("all")] = None,
    protocols: Annotated[str | None, names("paper,geom, quick: paper")] = None,
    methods: Annotated[
        str | None, names("all four, quick: lattice,exact", "How phgcn attends.")
    ] = None,
    splits: Annotated[int | None, number("Splits.", "10, quick: 3")] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            metavar="TRIALS",
            help="Look for settings first, with so many trials for each model and graph.",
        ),
    ] = None,
    stage: Annotated[str, typer.Option(help="all, or only one of: tune, train, table.")] = "all",
    jobs: Jobs = 1,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train all models of the paper's Table 2 on the same splits, PH-GCN with every method of
    global attention.

    Published results stand beside, with paired tests. Several processes, with other graphs or
    models, can work into one folder; a last call puts all together.

    Examples:

    - `phgcn reproduce table --quick`

    - `phgcn reproduce table --tune 30 --stage tune --jobs 8`

    - `phgcn reproduce table --graphs cora,pubmed --device cuda --stage train`

    - `phgcn reproduce table --stage table`
    """
    from .. import table as experiment
    from ..table_report import QUICK, accuracy_lines

    asked = listed(graphs=graphs, models=models, protocols=protocols, methods=methods)
    asked |= given(splits=splits, trials=tune) | {"device": device}
    request = experiment.quick_request(**asked) if quick else experiment.Request(**asked)
    with JobsDisplay() as display:
        content = experiment.run(out, request, stage, jobs, display.update)
    lines = [QUICK] if quick else []
    for protocol in request.protocols:
        lines += [f"Protocol {protocol}:", *accuracy_lines(content.get("rows", []), protocol)]
    finish(content, as_json, "Test accuracy %", lines)


@app.command("motif")
def motif(
    out: options.ResultsFolder = Path("results/motif"),
    quick: Annotated[bool, small()] = False,
    trials: Annotated[int | None, number("Networks of each kind.", "10, quick: 3", min=1)] = None,
    iterations: Annotated[
        int | None, number("Batches of graphs to train on.", "300 to 1000, quick: 250", min=1)
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option(
            metavar=LIST,
            help="Run only these, e.g. 'phgcn-100-*'; results are of all that are done.",
        ),
    ] = None,
    jobs: JobsByDevice = None,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train networks to say which motif is frequent: only those with global attention can.

    Writes explore.html too, a page that shows what a network attends to. Several commands, with
    other cases or devices, can work into one folder at once.

    Examples:

    - `phgcn reproduce motif --quick`

    - `phgcn reproduce motif --out results/motif --cases 'phgcn-100-*' --device cuda --jobs 4`
    """
    from .. import motif as experiment
    from ..motif_page import write_motif_page
    from ..motif_report import table_lines

    standard = experiment.quick_plan() if quick else experiment.full_plan()
    plan = experiment.change(standard, trials=trials, iterations=iterations)
    chosen = None if cases is None else experiment.choose(plan, cases.split(","))
    content = run(experiment.Motif(out, plan, chosen, device), jobs or default_jobs(device))
    if page := write_motif_page(plan, out):
        content["files"].append(str(page))
        if not as_json:
            print(f"what a network attends to: open {page} in a browser")
    finish(content, as_json, "Which motif is frequent?", table_lines(content))


@app.command("scaling")
def scaling(
    out: options.ResultsFolder = Path("results/scaling"),
    quick: Annotated[bool, small()] = False,
    device: options.Device = "cpu",
    sizes: Annotated[str | None, names("1000,3000,10000,...", "Numbers of points.")] = None,
    clouds: Annotated[str | None, names("'spread 1,spread 10,clusters'")] = None,
    note: Note = "",
    as_json: options.Json = False,
) -> None:
    """Measure how time and memory of attention grow with the number of points.

    Exact and lattice attention to a million points on the CPU, ten million on a GPU, and other
    packages where they are installed. Results of a GPU are called scaling-gpu.

    Examples:

    - `phgcn reproduce scaling --quick`

    - `phgcn reproduce scaling --device cuda --out results/scaling`
    """
    from .. import scaling as experiment
    from ..scaling_report import table_lines

    standard = (experiment.quick if quick else experiment.full)(device)
    effort = experiment.change(standard, **listed(sizes=sizes, clouds=clouds))
    content = run(experiment.Scaling(out, effort, device, note))
    finish(content, as_json, "By the number of points", table_lines(content))


@app.command("embeddings")
def embeddings(
    out: options.ResultsFolder = Path("results/embeddings"),
    quick: Annotated[bool, small()] = False,
    splits: Annotated[int | None, number("Networks for each graph.", "10, quick: 2", min=1)] = None,
    epochs: Annotated[int | None, number("Epochs at most.", "1000, quick: 100", min=1)] = None,
    jobs: JobsByDevice = None,
    as_json: options.Json = False,
) -> None:
    """Look at the embeddings that PH-GCN learns on wisconsin and cornell.

    Do nodes of a class cluster, and do distances follow those in the graph?

    Examples:

    - `phgcn reproduce embeddings --quick`

    - `phgcn reproduce embeddings --out results/embeddings --splits 10`
    """
    from .. import embeddings as experiment
    from ..embeddings_report import table_lines

    standard = experiment.QUICK if quick else experiment.Effort()
    settings = replace(standard.settings, **given(epochs=epochs))
    effort = replace(standard, settings=settings, **given(splits=splits))
    content = run(experiment.Embeddings(out, effort), jobs or default_jobs("cpu"))
    finish(content, as_json, "What the embeddings show", table_lines(content))


for command in (
    *(comparisons.benchmark, comparisons.when, comparisons.tables),
    *(comparisons.city, comparisons.labels, comparisons.rivals),
):
    app.command()(command)
