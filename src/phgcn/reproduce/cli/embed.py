r"""``phgcn embed``."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli import options


def embed(
    graph: options.Graph,
    method: Annotated[str, typer.Option("--method", help="isomap, poincare or struc2vec.")],
    seed: Annotated[int, typer.Option(help="What random numbers follow from.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Compute it even if it is there already.")] = False,
    as_json: options.Json = False,
) -> None:
    """Place the nodes of a graph in a plane, for Geom-GCN.

    `phgcn train --model geom-gcn-i` (-p, -s) does this by itself; here it can be done before, and looked at. Positions are
    kept in the user's cache. Needs `pip install 'phgcn[reproduce]'`.

    Examples:

    - `phgcn embed texas --method isomap`

    - `phgcn embed my-graph/ --method struc2vec --seed 1 --json`
    """
    from ...cli.display import console, duration, print_json, table
    from ...data import load_graph
    from ..embed.cache import embedding
    from ..embed.latent import latent_pairs, undirected

    data = load_graph(graph)
    edges, count = undirected(data), int(data.num_nodes)
    embedded = embedding(edges, count, method, seed, again)
    pairs, radius = latent_pairs(embedded.positions, len(edges), method)
    result = {
        "graph": str(data.name), "method": method, "seed": seed, "file": str(embedded.path), "seconds": embedded.seconds,
        "nodes": count, "without_position": int((embedded.positions != embedded.positions).any(axis=1).sum()),
        "graph_pairs": len(edges), "latent_pairs": len(pairs), "radius": radius,
    }  # fmt: skip
    if as_json:
        print_json(result)
        return
    rows = [(key.replace("_", " "), value) for key, value in result.items() if key not in ("file", "seconds")]
    console().print(table(f"{method} of {data.name}", ("", "value"), rows))
    print(f"computed in {duration(embedded.seconds)}; positions in {embedded.path}")
