r"""``phgcn explore``: the page of a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..text import printable
from . import options

_other = "A second run on the same graph, shown beside the first."
Other = Annotated[Path | None, Argument(metavar="RUN2", help=_other)]
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
