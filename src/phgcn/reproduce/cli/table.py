r"""``phgcn reproduce table``: the paper's table of accuracies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .display import JobsDisplay

if TYPE_CHECKING:
    from ..table import Request

LIST = "A,B,..."


def reproduce_table(
    out: options.ResultsFolder = Path("results/table"),
    quick: Annotated[bool, typer.Option("--quick", help="A small version that takes minutes on two cores.")] = False,
    graphs: Annotated[
        str | None, typer.Option(help="\\[default: all eight, quick: texas,cornell]", metavar=LIST, show_default=False)
    ] = None,
    models: Annotated[str | None, typer.Option(help="\\[default: all]", metavar=LIST, show_default=False)] = None,
    protocols: Annotated[
        str | None, typer.Option(help="\\[default: paper,geom, quick: paper]", metavar=LIST, show_default=False)
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="How phgcn attends. \\[default: all four, quick: lattice,exact]", metavar=LIST, show_default=False),
    ] = None,
    splits: Annotated[int | None, typer.Option(help="\\[default: 10, quick: 3]", show_default=False)] = None,
    tune: Annotated[
        int | None,
        typer.Option(metavar="TRIALS", help="Look for settings first, with so many trials for each model and graph."),
    ] = None,
    stage: Annotated[str, typer.Option(help="all, or only one of: tune, train, table.")] = "all",
    jobs: Annotated[int, typer.Option(help="How many processes.")] = 1,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train all models of the paper's Table 2 on the same splits, PH-GCN with every method of global attention.

    Writes table.json, table.md and the figure table.png and table.svg, with published results beside and paired tests.
    Several processes, with other graphs or models, can work into one folder; a last call puts all together.

    Examples:

    - `phgcn reproduce table --quick`

    - `phgcn reproduce table --tune 30 --stage tune --jobs 8`

    - `phgcn reproduce table --graphs cora,pubmed --device cuda --stage train`

    - `phgcn reproduce table --stage table`
    """
    from .. import table as experiment

    standard = experiment.quick_request() if quick else experiment.Request()
    names = {"graphs": graphs, "models": models, "protocols": protocols, "methods": methods}
    asked: dict[str, Any] = {key: tuple(value.split(",")) for key, value in names.items() if value is not None}
    if splits is not None:
        asked["splits"] = splits
    request = replace(standard, **asked, trials=tune, device=device)
    with JobsDisplay() as display:
        content = experiment.run(out, request, stage, jobs, display.update)
    if as_json:
        print_json(content)
    else:
        _show(content, request)
    raise typer.Exit(1 if content["failures"] else 0)


def _show(content: dict[str, Any], request: Request) -> None:
    from ...registry import find_model
    from ..table_report import chosen, main_rows

    out, rows = console(), main_rows(content.get("rows", []))
    for protocol in request.protocols:
        of_protocol = chosen(rows, protocol=protocol)
        if not of_protocol:
            continue
        lines = []
        for model in request.models:
            cells = {row["graph"]: f"{row['mean']:.1f} ± {row['std']:.1f}" for row in chosen(of_protocol, model=model)}
            lines.append((find_model(model).title, *(cells.get(graph, "missing") for graph in request.graphs)))
        title = f"Test accuracy %, protocol {protocol}" + (", quick: few epochs" if request.quick else "")
        out.print(table(title, ("model", *request.graphs), lines))
    for what in ("missing", "failures"):
        for name, why in content.get(what, {}).items():
            print(f"{'missing' if what == 'missing' else 'failed'}: {name}: {why}")
    print("; written to ".join([duration(content["seconds"]), *([", ".join(content["files"])] if "files" in content else [])]))
