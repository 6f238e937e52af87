r"""``phgcn evaluate``, ``phgcn predict`` and ``phgcn plot``: the commands on a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from . import options
from .reading import takes_tables

_other = "Another graph with labels to score, or where the run's own is now."
OtherGraph = Annotated[str | None, Option("--graph", help=_other)]
_error = "Measure how far each method is from exact attention on its embeddings."
AttentionError = Annotated[bool, Option("--attention-error", help=_error)]
_csv = "The CSV to write, - for standard output."
Csv = Annotated[Path, Option("--out", "-o", help=_csv)]
_spreadsheet = "Put ' before ids and classes that a spreadsheet would take for formulas."
Spreadsheet = Annotated[bool, Option("--spreadsheet", help=_spreadsheet)]
Plots = Annotated[Path | None, Option("--out", "-o", help="A folder. \\[default: RUN/plots]")]
_node = "The id of the node whose attention is drawn. \\[default: a test node]"
Node = Annotated[str | None, Option(help=_node)]
Layer = Annotated[
    int | None,
    Option(help="The layer that is drawn, from 0: by default 0, and attention to labels."),
]
Format = Annotated[str, Option("--format", help="png, svg or pdf.")]


@takes_tables
def evaluate(
    run: options.RunFolder,
    graph: OtherGraph = None,
    attention_error: AttentionError = False,
    device: options.RunDevice = None,
    as_json: options.Json = False,
) -> None:
    """Compute the metrics of a run again, with a table of confusions; or score another graph.

    The features and classes of another graph are matched by their names, and all of its labelled
    nodes are scored by the model of each split.

    Examples:

    - `phgcn evaluate runs/texas`

    - `phgcn evaluate runs/mine --graph new-graph/`

    - `phgcn evaluate runs/texas --attention-error --json`
    """
    from ..train import Run, evaluate_other
    from ..train import evaluate as evaluate_run
    from .display import show_evaluation

    opened = Run.open(run, device)
    opened.result()  # raises if the run has not ended
    data = opened.data() if graph is None else opened.read(graph)
    result = evaluate_run(opened, data) if opened.is_own(data) else evaluate_other(opened, data)
    if attention_error:
        from ..train.attention_errors import attention_errors

        result["attention_error"] = attention_errors(opened, data)
    show_evaluation(result, as_json)


@takes_tables
def predict(
    run: options.RunFolder,
    graph: options.Graph,
    out: Csv = Path("predictions.csv"),
    split: options.Split = None,
    spreadsheet: Spreadsheet = False,
    device: options.RunDevice = None,
    as_json: options.Json = False,
) -> None:
    """Predict the class, the labels or the number of every node, of the same graph or a new one.

    A new graph needs the features of the run, which are matched by their names, and no labels. The
    CSV holds each node's id, its class or labels and the probability of every class, or its number.

    Examples:

    - `phgcn predict runs/texas texas -o predictions.csv`

    - `phgcn predict runs/mine new-graph/ -o new.csv --split 2`
    """
    from ..train import Run
    from ..train import predict as predict_nodes
    from .display import show_predictions

    options.check_output(out, as_json)
    show_predictions(predict_nodes(Run.open(run, device), graph, out, split, spreadsheet), as_json)


def plot(
    run: options.RunFolder,
    out: Plots = None,
    split: options.Split = None,
    node: Node = None,
    layer: Layer = None,
    kind: Format = "png",
    graph: options.MovedGraph = None,
    device: options.RunDevice = None,
    as_json: options.Json = False,
) -> None:
    """Draw learning curves, predictions beside the truth, embeddings, distances and the attention
    of a node.

    Embeddings of more than two dimensions are projected on their principal axes. Models without an
    embedding (gat, gcn, mlp) get learning curves and predictions. Of the folder of a search, made
    by `phgcn tune`, its history is drawn.

    Examples:

    - `phgcn plot runs/texas`

    - `phgcn plot tune/texas`

    - `phgcn plot runs/texas --node 17 --format svg -o figures`
    """
    from ..report import plot as plot_run
    from ..report.history import is_study, plot_study
    from ..train import Run
    from .display import show_files

    options.check_folder(out)
    if is_study(run):
        show_files(plot_study(run, out or run / "plots", kind), as_json)
        return
    opened = Run.open(run, device)
    out = out or run / "plots"
    files = plot_run(opened, lambda: opened.data(graph), out, split, node, layer, kind)
    show_files(files, as_json)
