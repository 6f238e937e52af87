"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ..registry import DEFAULT_MODEL


def complete_model(incomplete: str) -> list[str]:
    from ..registry import model_names

    return [name for name in model_names() if name.startswith(incomplete)]


def complete_setting(context: typer.Context, incomplete: str) -> list[str]:
    """Completes ``key=`` of a setting in a shell, then its value where there are few."""
    from ..train.settings import keys, values_of

    model = context.params.get("model") or DEFAULT_MODEL
    key, sign, _ = incomplete.partition("=")
    words = [f"{name}=" for name in keys(model)]
    if sign:
        words = [f"{key}={value}" for value in values_of(key)]
    return [word for word in words if word.startswith(incomplete)]


_model = "One of the models below. \\[default: chosen by a search, or table without edges]"
Model = Annotated[str | None, Option("--model", help=_model, autocompletion=complete_model)]
_tuned = f"One of the models below. \\[default: {DEFAULT_MODEL}, or table without edges]"
TunedModel = Annotated[str | None, Option("--model", help=_tuned, autocompletion=complete_model)]
_protocol = "How nodes are split: paper, geom, balanced, official, final. \\[default: paper]"
Protocol = Annotated[str | None, Option("--protocol", help=_protocol)]
_graph = "A known name (see `phgcn graphs`), or the path of a graph."
Graph = Annotated[str, Argument(metavar="GRAPH", help=_graph)]
_run = "The folder of a run, made by `phgcn train`."
RunFolder = Annotated[Path, Argument(metavar="RUN", help=_run)]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
_config = "A TOML file of settings, instead of those in configs.toml."
Config = Annotated[Path | None, Option("--config", help=_config)]
_set = "Change one setting, e.g. heads=4. May be repeated."
Changes = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help=_set, autocompletion=complete_setting),
]
Directed = Annotated[bool, Option("--directed", help="Keep the direction of edges.")]
Device = Annotated[str, Option("--device", help="Where to compute: cpu, cuda, ...")]
_device = "Where to compute. \\[default: where the run was trained]"
RunDevice = Annotated[str | None, Option("--device", help=_device)]
_metric = (
    "accuracy, roc_auc, f1 of classes; mae, rmse, r2 of numbers; f1_micro too of labels. "
    "\\[default: by the graph]"
)
Metric = Annotated[str | None, Option("--metric", help=_metric)]
_timeout = "Seconds that a process waits for the others before it gives up."
Timeout = Annotated[float, Option("--timeout", help=_timeout)]
_division = (
    "How nodes are shared out among processes: contiguous, metis, or auto, metis where it is "
    "installed."
)
Division = Annotated[str, Option("--division", help=_division)]
_split = "Whose model. \\[default: the one with the smallest validation loss]"
Split = Annotated[int | None, Option("--split", help=_split)]
_moved = "Where the graph is now, if it has moved."
MovedGraph = Annotated[str | None, Option("--graph", help=_moved)]


def check_output(out: Path | None, as_json: bool) -> None:
    """Refuses to print both a file and JSON about it."""
    from ..files import is_standard_output

    if as_json and out is not None and is_standard_output(out):
        what = f"--json and --out {out} are given, which both print to standard output"
        raise ValueError(f"{what}; allowed: one of them")


def check_folder(out: Path | None) -> Path | None:
    """Returns the folder. Refuses standard output, pipes and devices."""
    from ..files import is_stream

    if out is not None and is_stream(out):
        allowed = "a folder, as this command writes several files"
        raise ValueError(f"out is {str(out)!r}; allowed: {allowed}")
    return out


_results = "The folder; what is there already is not done again."
ResultsFolder = Annotated[Path, Option("--out", "-o", help=_results, callback=check_folder)]
