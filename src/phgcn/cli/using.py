"""The commands on trained runs: ``phgcn evaluate``, ``predict``, ``plot``, ``explore``, ``export``
and ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..text import printable
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
        from ..train.prediction import attention_errors

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


_second = "A second run on the same graph, shown beside the first."
Other = Annotated[Path | None, Argument(metavar="RUN2", help=_second)]
_splits = (
    "Whose model; twice for two splits, or one of each run. "
    "\\[default: the best on validation nodes]"
)
Splits = Annotated[list[int] | None, Option("--split", help=_splits)]
_page = "The HTML file, - for standard output. \\[default: RUN/explore.html]"
Page = Annotated[Path | None, Option("--out", "-o", help=_page)]


def explore(
    run: options.RunFolder,
    other: Other = None,
    out: Page = None,
    splits: Splits = None,
    graph: options.MovedGraph = None,
    device: options.RunDevice = None,
    as_json: options.Json = False,
) -> None:
    """Write one page, to be opened in a browser, that shows what a network attends to.

    The page needs no server and no network. It holds the embedding of every layer and head, and
    computes the exact attention of a node when it is clicked. Layers without an embedding (gat,
    gcn, mlp) are shown by the model's output.

    Examples:

    - `phgcn explore runs/texas`

    - `phgcn explore runs/texas runs/texas-mlp -o both.html`

    - `phgcn explore runs/texas --split 0 --split 1 -o splits.html`
    """
    from ..explore import explore_runs
    from ..files import is_standard_output
    from ..train import Run
    from .display import print_json

    options.check_output(out, as_json)
    runs = [Run.open(folder, device) for folder in (run, other) if folder is not None]
    result = explore_runs(runs, out or run / "explore.html", splits or (), graph)
    if as_json:
        print_json(result)
    elif out is None or not is_standard_output(out):
        size = f"{result['nodes']:,} nodes, {result['bytes'] / 1e6:.1f} MB"
        print(f"{', '.join(result['sides'])} on {printable(result['graph'])}, {size}")
        print(f"written to {result['file']}: open it in a browser")


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
