r"""Measures the error of the approximate methods on the embeddings of trained networks.

python benchmarks/trained.py            # writes benchmarks/results/trained.json, some minutes
python benchmarks/trained.py --quick    # few epochs, to see that it works
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import common

from phgcn.train import Plan, Run, find, resolve
from phgcn.train.attention_errors import attention_errors

GRAPHS = ("texas", "cora", "actor")
MODEL = "phgcn"
EPOCHS, QUICK_EPOCHS = 50, 3


def graph_rows(graph: str, epochs: int) -> list[dict[str, Any]]:
    """Trains one split of a graph with its tuned settings, and measures every layer and head."""
    source, data = find(graph)
    settings = resolve(MODEL, graph, changes=[f"epochs={epochs}"]).settings
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", Plan(source, model=MODEL, splits=1, settings=settings), data)
        run.train(data)
        return [{"graph": graph, "nodes": int(data.num_nodes), **row} for row in attention_errors(run, data)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few epochs")
    parser.add_argument("--out", default=common.RESULTS / "trained.json", help="where the JSON goes")
    options = parser.parse_args()
    epochs = QUICK_EPOCHS if options.quick else EPOCHS
    rows = [row for graph in GRAPHS for row in graph_rows(graph, epochs)]
    about = {"provenance": common.provenance(), "quick": options.quick, "model": MODEL, "epochs": epochs}
    common.write_json(options.out, {**about, "rows": rows})
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
