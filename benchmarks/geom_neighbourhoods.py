r"""Our neighbourhoods in latent space beside those that Geom-GCN's authors published.

    python benchmarks/geom_neighbourhoods.py                     # embeds what is not in the cache: an hour
    python benchmarks/geom_neighbourhoods.py --graphs texas --methods isomap

For each graph and embedding: how many pairs there are, how many of the published ones ours has, and how many it would have by
chance; the degrees, and their correlation over nodes; and how often a neighbour in the graph lies in the same quadrant.  A
plane can be turned and mirrored: agreement is that of the best of the eight ways to name quadrants, which by chance is a
little above a quarter.  Writes ``docs/results/geom-gcn/neighbourhoods.json`` after every row and continues from there.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

from phgcn.data import load_graph
from phgcn.files import write_json
from phgcn.provenance import provenance
from phgcn.reproduce.embed import METHODS, Neighbourhood
from phgcn.reproduce.embed.latent import computed
from phgcn.reproduce.embed.published import published

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "geom-gcn"
GRAPHS = ("texas", "cornell", "wisconsin", "cora", "citeseer", "actor", "pubmed")


def compare(ours: Neighbourhood, theirs: Neighbourhood, count: int) -> dict:
    """What the two have in common."""
    own, other = latent_keys(ours, count), latent_keys(theirs, count)
    shared = np.intersect1d(own, other)
    degrees = [np.bincount(keys // count, minlength=count) for keys in (own, other)]
    return {
        "nodes": count,
        "graph_pairs": int((~theirs.latent).sum()),
        "latent_pairs": len(own),
        "latent_pairs_published": len(other),
        "shared": len(shared),
        "share_of_published": len(shared) / max(len(other), 1),
        "by_chance": len(own) / (count * (count - 1)),
        "jaccard": len(shared) / max(len(own) + len(other) - len(shared), 1),
        "nodes_with_neighbours": int((degrees[0] > 0).sum()),
        "nodes_with_neighbours_published": int((degrees[1] > 0).sum()),
        "largest_degree": int(degrees[0].max()),
        "largest_degree_published": int(degrees[1].max()),
        "degree_correlation": float(np.corrcoef(*degrees)[0, 1]),
        "relation_agreement": agreement(ours, theirs, count, latent=False),
        "relation_agreement_latent": agreement(ours, theirs, count, latent=True) if len(shared) else None,
    }


def latent_keys(neighbourhood: Neighbourhood, count: int) -> np.ndarray:
    """A number for each pair in latent space."""
    return np.unique(neighbourhood.pairs[neighbourhood.latent].astype(np.int64) @ [count, 1])


def agreement(ours: Neighbourhood, theirs: Neighbourhood, count: int, latent: bool) -> float:
    """The share of common pairs in the same quadrant, by the best way to name them."""
    found = []
    for neighbourhood in (ours, theirs):
        chosen = neighbourhood.latent == latent
        found.append((neighbourhood.pairs[chosen].astype(np.int64) @ [count, 1], neighbourhood.quadrant[chosen]))
    _, first, second = np.intersect1d(found[0][0], found[1][0], return_indices=True)
    own, other = found[0][1][first], found[1][1][second]
    left, below = own % 2, own // 2
    ways = product((0, 1), (0, 1), ((left, below), (below, left)))
    return max(float(((a ^ across) + 2 * (b ^ down) == other).mean()) for across, down, (a, b) in ways)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--out", type=Path, default=RESULTS / "neighbourhoods.json")
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text())["rows"] if arguments.out.is_file() else []
    for name in arguments.graphs:
        data = load_graph(name)
        for method in arguments.methods:
            if any((row["graph"], row["method"]) == (name, method) for row in rows):
                continue
            command = f"python benchmarks/geom_neighbourhoods.py --graphs {name} --methods {method}"
            found = compare(computed(data, method), published(data, method), int(data.num_nodes))
            rows.append({"graph": name, "method": method, **found, "provenance": {**provenance(), "command": command}})
            rows.sort(key=lambda row: (GRAPHS.index(row["graph"]), METHODS.index(row["method"])))
            write_json(arguments.out, {"rows": rows})
            print(f"{name:10} {method:10} {found['share_of_published']:.3f} of the published pairs (chance "
                  f"{found['by_chance']:.4f}), relations {found['relation_agreement']:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
