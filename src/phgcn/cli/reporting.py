"""``phgcn export`` and ``phgcn compare``: contents of trained models, and their scores side by
side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from . import options

_file = "The file: .csv, .parquet or .npz; - prints CSV."
File = Annotated[Path, Option("--out", "-o", help=_file)]
_embeddings = "Positions of every node, per layer and head."
Embeddings = Annotated[bool, Option("--embeddings", help=_embeddings)]
_attention = "What nodes attend to: neighbours, and the strongest of all nodes."
Attention = Annotated[bool, Option("--attention", help=_attention)]
Predictions = Annotated[bool, Option("--predictions", help="What `phgcn predict` writes.")]
Top = Annotated[int, Option(help="Targets of global attention per node and head.")]
_nodes = "The id of a node whose attention is written. May be repeated. \\[default: all]"
Nodes = Annotated[list[str] | None, Option(help=_nodes)]
_runs = "Folders of finished runs on one graph."
Runs = Annotated[list[Path], Argument(metavar="RUN...", help=_runs)]
_picture = "Also draw it: a .png, .svg or .pdf file; - prints PNG."
Picture = Annotated[Path | None, Option("--out", "-o", help=_picture)]


def export(
    run: options.RunFolder,
    out: File,
    embeddings: Embeddings = False,
    attention: Attention = False,
    predictions: Predictions = False,
    top: Top = 10,
    node: Nodes = None,
    split: options.Split = None,
    graph: options.MovedGraph = None,
    device: options.RunDevice = None,
    as_json: options.Json = False,
) -> None:
    """Write embeddings, attention and predictions of a trained model to a file.

    As CSV or Parquet one table each: with several parts, `-o out.csv` becomes `out-embeddings.csv`
    and so on. An npz file holds all parts as arrays. Global attention to all nodes is computed
    exactly, in time that grows with the square of their number; `--node` asks for some.

    Examples:

    - `phgcn export runs/texas --embeddings -o embeddings.csv`

    - `phgcn export runs/texas --attention --node 17 --top 5 -o attention.csv`

    - `phgcn export runs/texas --embeddings --attention --predictions -o texas.npz`
    """
    from ..report.export import Export
    from ..report.export import export as write
    from ..train import Run
    from .display import show_files

    wanted = {"embeddings": embeddings, "attention": attention, "predictions": predictions}
    parts = [name for name, given in wanted.items() if given]
    if not parts:
        allowed = "--embeddings, --attention, --predictions"
        raise ValueError(f"there is nothing to export; allowed: {allowed}")
    options.check_output(out, as_json)
    opened = Run.open(run, device)
    show_files(write(Export(opened, opened.data(graph), split, top, node), parts, out), as_json)


def compare(runs: Runs, out: Picture = None, as_json: options.Json = False) -> None:
    """Compare finished runs on one graph, the best first.

    Runs with the same protocol, seed and number of splits are compared split by split: how large
    the difference from the best one is, and how often they are better.

    Examples:

    - `phgcn compare runs/texas runs/texas-mlp`

    - `phgcn compare runs/texas* -o comparison.png`
    """
    from ..report.compare import compare as compare_runs
    from ..report.compare import plot_comparison
    from ..train import Run
    from .display import show_comparison

    options.check_output(out, as_json)
    compared = compare_runs([Run.open(folder) for folder in runs])
    if out is not None:
        compared["file"] = str(plot_comparison(compared, out))
    show_comparison(compared, as_json)
