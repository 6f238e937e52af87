r"""``phgcn reproduce tables``: tables without edges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .display import JobsDisplay

LIST = "A,B,..."


def reproduce_tables(
    out: options.ResultsFolder = Path("results/tables"),
    tables: Annotated[
        str | None,
        typer.Option(help="\\[default: california,diamonds,smooth,boxes,map]", metavar=LIST, show_default=False),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="\\[default: mean,nearest,hist-boosting,catboost,lightgbm,network,labels,labels-map,both]",
            metavar=LIST,
            show_default=False,
        ),
    ] = None,
    splits: Annotated[int, typer.Option(help="Random splits of each table: 64 % train, 16 % validate, 20 % test.")] = 5,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of our networks, for a quick version. \\[default: 300]", show_default=False)
    ] = None,
    stage: Annotated[str, typer.Option(help="all, or report: only join what is there.")] = "all",
    jobs: Annotated[int, typer.Option(help="How many processes.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Compare attention to labels on tables with boosted trees, nearest rows, and the same network without attention.

    Two tables are files below $PHGCN_DATA/tables, the others are generated. CatBoost and LightGBM need `phgcn[tables]`. Writes
    tables.json and tables.md. A command that was cut off continues.

    Examples:

    - `phgcn reproduce tables --tables smooth --splits 1 --epochs 20`

    - `phgcn reproduce tables --tables california --models network,labels`
    """
    from ..tables import run as experiment

    if stage not in ("all", "report"):
        raise ValueError(f"stage is {stage!r}; allowed: all, report")
    asked: dict[str, Any] = {"splits": splits, "epochs": epochs}
    asked |= {key: tuple(value.split(",")) for key, value in (("tables", tables), ("models", models)) if value is not None}
    request = experiment.Request(**asked)
    with JobsDisplay() as display:
        content = experiment.run(out, request, jobs, display.update, only_report=stage == "report")
    if as_json:
        print_json(content)
    else:
        rows = [(row["table"], row["model"], f"{row['test']:.4g}", f"{len(row['splits'])}") for row in content["rows"]]
        console().print(table("Tables without edges", ("table", "model", "RMSE, test", "splits"), rows, numbers_from=2))
        for name, why in content["failures"].items():
            print(f"failed: {name}: {why}")
        print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")
    raise typer.Exit(1 if content["failures"] else 0)
