r"""``phgcn evaluate``, ``phgcn predict`` and ``phgcn plot``: the commands on a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options


def evaluate(
    run: options.RunFolder,
    graph: options.MovedGraph = None,
    attention_error: Annotated[
        bool, typer.Option("--attention-error", help="Measure how far each method is from exact attention on its embeddings.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Compute the metrics of a run again, with a table of confusions.

    Examples:

    - `phgcn evaluate runs/texas`

    - `phgcn evaluate runs/texas --attention-error --json`
    """
    from ..train import Run
    from ..train import evaluate as evaluate_run
    from .display import show_evaluation

    opened = Run.open(run)
    opened.result()  # raises if the run has not ended
    data = opened.data(graph)
    result = evaluate_run(opened, data)
    if attention_error:
        from ..train.attention_errors import attention_errors

        result["attention_error"] = attention_errors(opened, data)
    show_evaluation(result, as_json)


def predict(
    run: options.RunFolder,
    graph: options.Graph,
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV to write.")] = Path("predictions.csv"),
    split: options.Split = None,
    spreadsheet: Annotated[
        bool, typer.Option("--spreadsheet", help="Put ' before ids and classes that a spreadsheet would take for formulas.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Predict the class of every node, of the same graph or a new one.

    A new graph needs the same features; its nodes need no labels. The CSV holds each node's id, its class and the
    probability of every class.

    Examples:

    - `phgcn predict runs/texas texas -o predictions.csv`

    - `phgcn predict runs/mine new-graph/ -o new.csv --split 2`
    """
    from ..train import Run
    from ..train import predict as predict_nodes
    from .display import show_predictions

    show_predictions(predict_nodes(Run.open(run), graph, out, split, spreadsheet), as_json)


def plot(
    run: options.RunFolder,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A folder. \\[default: RUN/plots]")] = None,
    split: options.Split = None,
    node: Annotated[
        str | None, typer.Option(help="The id of the node whose attention is drawn. \\[default: a test node]")
    ] = None,
    layer: Annotated[int, typer.Option(help="The layer whose embeddings are drawn, from 0.")] = 0,
    kind: Annotated[str, typer.Option("--format", help="png, svg or pdf.")] = "png",
    graph: options.MovedGraph = None,
    as_json: options.Json = False,
) -> None:
    """Draw learning curves, predictions beside the truth, embeddings, distances and the attention of a node.

    Embeddings of more than two dimensions are projected on their principal axes. Models without an embedding (gat, gcn,
    mlp) get learning curves and predictions. Of the folder of a search, made by `phgcn tune`, its history is drawn.

    Examples:

    - `phgcn plot runs/texas`

    - `phgcn plot tune/texas`

    - `phgcn plot runs/texas --node 17 --format svg -o figures`
    """
    from ..report import plot as plot_run
    from ..report.history import is_study, plot_study
    from ..train import Run
    from .display import show_files

    if is_study(run):
        show_files(plot_study(run, out or run / "plots", kind), as_json)
        return
    opened = Run.open(run)
    files = plot_run(opened, lambda: opened.data(graph), out or run / "plots", split, node, layer, kind)
    show_files(files, as_json)
