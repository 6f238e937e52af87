r"""How long graph files take to read: a million edges among 100,000 nodes with 10 features, and a wide node table.

    python benchmarks/graph_files.py              # half a minute
    python benchmarks/graph_files.py --quick      # a hundredth of that, to see that it works

Prints a table; writes ``benchmarks/results/graph_files.json``.  Parquet is measured if pyarrow is there.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from pathlib import Path

import common
import numpy as np
from rich.table import Table

from phgcn.data import load_graph, save_graph

NODES, EDGES, FEATURES = 100_000, 1_000_000, 10
WIDE_NODES, WIDE_FEATURES = 20_000, 500
ROUNDS = 3


def write_tables(folder: Path, nodes: int, edges: int, features: int) -> Path:
    """A random graph as CSV: ids are texts, labels too, features have five digits."""
    random = np.random.default_rng(common.SEED)
    folder.mkdir()
    pairs = random.integers(0, nodes, (edges, 2)).tolist()
    rows = [f"user{source},user{target}" for source, target in pairs]
    (folder / "edges.csv").write_text("\n".join(["source,target", *rows]))
    header = ",".join(["id", "label", *(f"f{column}" for column in range(features))])
    values = random.random((nodes, features)).tolist()
    rows = [f"user{node},class{node % 5}," + ",".join(map("{:.5f}".format, row)) for node, row in enumerate(values)]
    (folder / "nodes.csv").write_text("\n".join([header, *rows]))
    return folder


def as_parquet(folder: Path, target: Path) -> Path | None:
    """The same tables as Parquet; nothing without pyarrow."""
    try:
        from pyarrow import csv, parquet
    except ImportError:
        return None
    target.mkdir()
    for name in ("edges", "nodes"):
        parquet.write_table(csv.read_csv(folder / f"{name}.csv"), target / f"{name}.parquet")
    return target


def as_npz(folder: Path, target: Path) -> Path:
    save_graph(load_graph(folder, directed=True), target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    share = 100 if quick else 1
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        many = write_tables(root / "many", NODES // share, EDGES // share, FEATURES)
        wide = write_tables(root / "wide", WIDE_NODES // share, WIDE_NODES // share, WIDE_FEATURES)
        files = {
            "many edges, CSV": many,
            "many edges, Parquet": as_parquet(many, root / "many-parquet"),
            "many edges, npz": as_npz(many, root / "many.npz"),
            "many features, CSV": wide,
            "many features, npz": as_npz(wide, root / "wide.npz"),
        }
        jobs = {what: functools.partial(load_graph, path) for what, path in files.items() if path}
        times = common.interleaved(jobs, 1 if quick else ROUNDS)
    table = Table("file", "seconds")
    for what, time in times.items():
        table.add_row(what, f"{time['median']:.2f}")
    common.wide_console().print(table)
    if not quick:
        sizes = {"many edges": [NODES, EDGES, FEATURES], "many features": [WIDE_NODES, WIDE_NODES, WIDE_FEATURES]}
        content = {"provenance": common.provenance(), "nodes_edges_features": sizes, "seconds": times}
        common.write_json(common.RESULTS / "graph_files.json", content)


if __name__ == "__main__":
    main()
