r"""Time and memory of the embeddings that Geom-GCN needs, beside the training of PH-GCN, which needs none.

    python benchmarks/geom_cost.py                       # all graphs and embeddings: an hour
    python benchmarks/geom_cost.py --graphs texas cora

Each embedding, and each training (one split of protocol ``geom``, settings that come along), has a process of its own; memory
is the most that this process held, less what it held before it began.  Writes ``docs/results/geom-gcn/cost.json`` after
every row and continues from there.  Embeddings stay in the cache for ``phgcn train``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "geom-gcn"
GRAPHS = ("texas", "cornell", "wisconsin", "cora", "citeseer", "actor", "pubmed")
WORK = ("isomap", "poincare", "struc2vec", "phgcn")


def held() -> float:
    """The most memory this process ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def embed(graph: str, method: str) -> dict:
    """Computes an embedding."""
    from phgcn.data import load_graph
    from phgcn.reproduce.embed.cache import embedding
    from phgcn.reproduce.embed.latent import latent_pairs, undirected

    data = load_graph(graph)
    edges, before = undirected(data), held()
    found = embedding(edges, data.num_nodes, method, again=True)
    begin = time.perf_counter()
    pairs, radius = latent_pairs(found.positions, len(edges), method)
    return {"seconds": found.seconds, "neighbour_seconds": time.perf_counter() - begin, "mib": held() - before,
            "graph_pairs": len(edges), "latent_pairs": len(pairs), "radius": radius}  # fmt: skip


def train(graph: str) -> dict:
    """Trains PH-GCN on one split."""
    from phgcn.train import Plan, find, resolve
    from phgcn.train.prepare import prepare, start

    source, data = find(graph)
    plan = Plan(source, "phgcn", "geom", 1, settings=resolve("phgcn", str(data.name))[0])
    training, before = start(plan, prepare(plan, data)[0]), held()
    training.epoch()  # kernels are compiled, or read
    begin = time.perf_counter()
    while not training.done:
        training.epoch()
    return {"seconds": time.perf_counter() - begin, "mib": held() - before, "epochs": training.state.epoch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--work", nargs="+", default=WORK, choices=WORK)
    parser.add_argument("--out", type=Path, default=RESULTS / "cost.json")
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "WORK"), help="only this, here, printed as JSON")
    arguments = parser.parse_args()
    if arguments.one:
        graph, work = arguments.one
        print(json.dumps(train(graph) if work == "phgcn" else embed(graph, work)))
        return
    from phgcn.files import write_json
    from phgcn.provenance import provenance

    rows = json.loads(arguments.out.read_text())["rows"] if arguments.out.is_file() else []
    for graph in arguments.graphs:
        for work in arguments.work:
            if any((row["graph"], row["work"]) == (graph, work) for row in rows):
                continue
            one = [sys.executable, __file__, "--one", graph, work]
            command = f"python benchmarks/geom_cost.py --graphs {graph} --work {work}"
            done = subprocess.run(one, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(
                {"graph": graph, "work": work, **json.loads(done.stdout), "provenance": {**provenance(), "command": command}}
            )
            write_json(arguments.out, {"rows": sorted(rows, key=lambda r: (GRAPHS.index(r["graph"]), WORK.index(r["work"])))})
            print(f"{graph:12} {work:10} {rows[-1]['seconds']:.1f} s, {rows[-1]['mib']:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
