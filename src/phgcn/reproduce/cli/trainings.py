r"""``phgcn reproduce tables`` and ``phgcn reproduce city``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...cli import options
from ...cli.display import console, duration, print_json, table
from .display import JobsDisplay

if TYPE_CHECKING:
    from ..trainings import Experiment, Job

LIST = "A,B,..."
Epochs = Annotated[
    int | None, typer.Option(help="Epochs of our networks, for a quick version. \\[default: 300]", show_default=False)
]
Stage = Annotated[str, typer.Option(help="all, or report: only join what is there.")]
Jobs = Annotated[int, typer.Option(help="How many processes.")]


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
    splits: Annotated[int, typer.Option(help="Random splits of each table.")] = 5,
    epochs: Epochs = None,
    stage: Stage = "all",
    jobs: Jobs = 1,
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

    asked = _listed(tables=tables, models=models)
    _run(experiment.EXPERIMENT, experiment.tasks(splits=splits, epochs=epochs, **asked), stage, out, jobs, as_json)


def reproduce_city(
    out: options.ResultsFolder = Path("results/city"),
    models: Annotated[str | None, typer.Option(help="\\[default: all]", metavar=LIST, show_default=False)] = None,
    splits: Annotated[int, typer.Option(help="Of ten splits: 10 % of nodes train, 10 % validate, 80 % test.")] = 5,
    epochs: Epochs = None,
    stage: Stage = "all",
    jobs: Jobs = 1,
    as_json: options.Json = False,
) -> None:
    """Compare attention on the map with local networks and label propagation, on streets with few labels.

    The street network is $PHGCN_DATA/city/huangpu.npz. Models: label-propagation, correct-and-smooth, sage-2 to sage-16,
    sgformer, map (attention on coordinates), both-2 to both-16. Writes city.json and city.md. A command that was cut off
    continues.

    Examples:

    - `phgcn reproduce city --models map,sage-16 --splits 2`
    """
    from ..city import run as experiment

    asked = _listed(models=models)
    _run(experiment.EXPERIMENT, experiment.tasks(splits=splits, epochs=epochs, **asked), stage, out, jobs, as_json)


def _listed(**texts: str | None) -> dict[str, Any]:
    return {name: tuple(text.split(",")) for name, text in texts.items() if text is not None}


def _run(experiment: Experiment, tasks: list[Job], stage: str, out: Path, jobs: int, as_json: bool) -> None:
    """Runs an experiment, and prints its results."""
    from ..trainings import run

    if stage not in ("all", "report"):
        raise ValueError(f"stage is {stage!r}; allowed: all, report")
    with JobsDisplay() as display:
        content = run(experiment, out, tasks if stage == "all" else [], jobs, display.update)
    if as_json:
        print_json(content)
    else:
        rows = [(row["data"], row["model"], f"{row['test']:.4g}", f"{len(row['splits'])}") for row in content["rows"]]
        console().print(table(experiment.name, ("data", "model", f"{experiment.metric}, test", "splits"), rows, numbers_from=2))
        for name, why in content["failures"].items():
            print(f"failed: {name}: {why}")
        print(f"{duration(content['seconds'])}; written to {', '.join(content['files'])}")
    raise typer.Exit(1 if content["failures"] else 0)
