r"""How much time of the processor it takes to read graph files: a million edges among 100,000
nodes, and a wide node table.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from pathlib import Path

import common
import numpy as np
from pyarrow import csv, parquet
from registry import measurement

from phgcn.data import load_graph, save_graph
from phgcn_lab.markdown import table

NODES, EDGES, FEATURES = 100_000, 1_000_000, 10
WIDE_NODES, WIDE_FEATURES = 20_000, 500
ROUNDS = 3


def write_tables(folder: Path, nodes: int, edges: int, features: int) -> Path:
    """A random graph as CSV: ids and labels are texts, features have five digits."""
    random = np.random.default_rng(common.SEED)
    folder.mkdir()
    pairs = random.integers(0, nodes, (edges, 2)).tolist()
    rows = [f"user{source},user{target}" for source, target in pairs]
    (folder / "edges.csv").write_text("\n".join(["source,target", *rows]))
    header = ",".join(["id", "label", *(f"f{column}" for column in range(features))])
    values = random.random((nodes, features)).tolist()
    texts = [",".join(map("{:.5f}".format, row)) for row in values]
    rows = [f"user{node},class{node % 5},{text}" for node, text in enumerate(texts)]
    (folder / "nodes.csv").write_text("\n".join([header, *rows]))
    return folder


def as_parquet(folder: Path, target: Path) -> Path:
    target.mkdir()
    for name in ("edges", "nodes"):
        parquet.write_table(csv.read_csv(folder / f"{name}.csv"), target / f"{name}.parquet")
    return target


def as_npz(folder: Path, target: Path) -> Path:
    save_graph(load_graph(folder, directed=True), target)
    return target


def processor_seconds(path: Path) -> float:
    """The time of the processor, which other programs disturb less."""
    begin = time.process_time()
    load_graph(path)
    return time.process_time() - begin


def rows_of(measured: dict) -> list[str]:
    kinds = ("CSV", "Parquet", "npz")
    rows = []
    for case, (nodes, edges, features) in measured["nodes_edges_features"].items():
        times = [measured["processor_seconds"].get(f"{case}, {kind}") for kind in kinds]
        title = f"{nodes:,} nodes, {edges:,} edges, {features} features"
        rows.append([title, *("" if t is None else f"{t['min']:.1f} s" for t in times)])
    return table(["", *kinds], rows)


@measurement(tables=rows_of, quick="a hundredth of the graphs, one round")
def read_graphs(options: argparse.Namespace) -> dict:
    """Processor seconds to read a million edges, and a wide node table, as CSV, Parquet and npz."""
    share = 100 if options.quick else 1
    sizes = {
        "many edges": [NODES // share, EDGES // share, FEATURES],
        "many features": [WIDE_NODES // share, WIDE_NODES // share, WIDE_FEATURES],
    }
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        many, wide = (write_tables(root / title.split()[1], *size) for title, size in sizes.items())
        files = {
            "many edges, CSV": many,
            "many edges, Parquet": as_parquet(many, root / "many-parquet"),
            "many edges, npz": as_npz(many, root / "many.npz"),
            "many features, CSV": wide,
            "many features, npz": as_npz(wide, root / "wide.npz"),
        }
        jobs = {what: functools.partial(processor_seconds, path) for what, path in files.items()}
        times = common.interleaved(jobs, 1 if options.quick else ROUNDS)
    return {"nodes_edges_features": sizes, "processor_seconds": times}
