r"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def complete_model(incomplete: str) -> list[str]:
    """Completes the name of a model in a shell."""
    from ..registry import model_names

    return [name for name in model_names() if name.startswith(incomplete)]


def complete_setting(context: typer.Context, incomplete: str) -> list[str]:
    """Completes ``key=`` of a setting in a shell, then its value where there are few."""
    from ..registry import DEFAULT_MODEL
    from ..train.settings import keys, values_of

    model = context.params.get("model") or DEFAULT_MODEL
    key, sign, _ = incomplete.partition("=")
    words = [f"{key}={value}" for value in values_of(key)] if sign else [f"{name}=" for name in keys(model)]
    return [word for word in words if word.startswith(incomplete)]


Graph = Annotated[str, typer.Argument(metavar="GRAPH", help="A known name (see `phgcn graphs`), or the path of a graph.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, made by `phgcn train`.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Config = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings, instead of those in configs.toml.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one setting, e.g. heads=4. May be repeated.",
        autocompletion=complete_setting,
    ),
]
Directed = Annotated[bool, typer.Option("--directed", help="Keep the direction of edges.")]
Device = Annotated[str, typer.Option("--device", help="Where to compute: cpu, cuda, ...")]
RunDevice = Annotated[
    str | None, typer.Option("--device", help="Where to compute. \\[default: where the run was trained]", show_default=False)
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="accuracy, roc_auc, f1 of classes; mae, rmse, r2 of numbers; f1_micro too of labels. \\[default: by the graph]",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds that a process waits for the others before it gives up.")]
Division = Annotated[
    str,
    typer.Option(
        "--division", help="How nodes are shared out among processes: contiguous, metis, or auto, metis where it is installed."
    ),
]
Split = Annotated[
    int | None, typer.Option("--split", help="Whose model. \\[default: the one with the smallest validation loss]")
]
MovedGraph = Annotated[str | None, typer.Option("--graph", help="Where the graph is now, if it has moved.")]


def check_output(out: Path | None, as_json: bool) -> None:
    """Refuses to print both a file and JSON about it."""
    from ..files import is_standard_output

    if as_json and out is not None and is_standard_output(out):
        raise ValueError(f"--json and --out {out} are given, which both print to standard output; allowed: one of them")


def check_folder(out: Path | None) -> Path | None:
    """Refuses standard output, pipes and devices in the place of a folder; returns the folder."""
    from ..files import is_stream

    if out is not None and is_stream(out):
        raise ValueError(f"out is {str(out)!r}; allowed: a folder, as this command writes several files")
    return out


ResultsFolder = Annotated[
    Path,
    typer.Option("--out", "-o", help="The folder; what is there already is not done again.", callback=check_folder),
]
