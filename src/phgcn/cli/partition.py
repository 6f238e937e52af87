"""``phgcn partition``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from . import options
from .reading import Reading, reads_graph

_parts = "How many parts: as many as there will be processes."
Parts = Annotated[int, Option("--parts", help=_parts)]
_folder = "The folder of the parts."
Folder = Annotated[Path, Option("--out", help=_folder, callback=options.check_folder)]


@reads_graph
def partition(
    graph: options.Graph,
    parts: Parts,
    out: Folder,
    division: options.Division = "auto",
    directed: options.Directed = False,
    as_json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Divide a graph into parts, one for each process of a training.

    Each part is memory-mapped by one process, so that none ever holds the whole graph. Train with
    as many processes as there are parts, or with one.

    Examples:

    - `phgcn partition my-graph/ --parts 8 --out parts`

    - `torchrun --nproc-per-node=8 -m phgcn train parts --out runs/my-graph`
    """
    from ..data.summary import is_uneven
    from ..distributed.part_files import write_parts
    from ..distributed.partition import divide_graph
    from ..train import find
    from ..train.candidates import share_filled
    from ..train.graph import describe
    from .display import console, print_json, print_line, table

    data = find(graph, directed, reading.task, reading.columns())[1]
    nodes = int(data.num_nodes)
    if not 1 <= parts <= max(nodes, 1):
        raise ValueError(f"parts is {parts}; allowed: 1 to {nodes}, the number of nodes")
    divided = divide_graph(data.edge_index, nodes, parts, division)
    description = {**describe(data), "directed": directed, "filled": share_filled(data.x)}
    description["uneven"] = is_uneven(data)
    manifest = write_parts(out, data, description, divided, parts)
    sizes = divided.owner.bincount(minlength=parts).tolist()
    if as_json:
        about = {key: manifest[key] for key in ("parts", "division", "cut", "graph")}
        print_json({**about, "nodes": sizes, "folder": str(out)})
        return
    rows = [(f"{number}", f"{size:,}") for number, size in enumerate(sizes)]
    shown = console()
    shown.print(table(f"{data.name} in {parts} parts, {divided.method}", ("part", "nodes"), rows))
    print_line(shown, f"{100 * divided.cut:.1f} % of the edges are cut; written to {out}")
