r"""Measures the error of the approximate methods on the embeddings of trained networks."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from registry import measurement

from phgcn.train import Plan, Run, find, resolve
from phgcn.train.prediction import attention_errors
from phgcn_lab.markdown import origin, table
from phgcn_lab.results import chosen, names

GRAPHS = ("texas", "cora", "actor")
MODEL = "phgcn"
EPOCHS, QUICK_EPOCHS = 50, 3
METHODS = ("lattice", "lattice-fine", "separable")


def graph_rows(graph: str, epochs: int) -> list[dict[str, Any]]:
    """Trains one split of a graph with its tuned settings, and measures every layer and head."""
    source, data = find(graph)
    settings = resolve(MODEL, graph, changes=[f"epochs={epochs}"]).settings
    plan = Plan(source, model=MODEL, splits=1, settings=settings)
    about = {"graph": graph, "nodes": int(data.num_nodes)}
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", plan, data)
        run.train(data)
        return [{**about, **row} for row in attention_errors(run, data)]


def errors_of(trained: dict) -> list[str]:
    """The largest error and the smallest cosine of the gradient, by graph and layer."""
    lines = []
    for graph, layer in names(trained["rows"], "graph", "layer"):
        rows = chosen(trained["rows"], graph=graph, layer=layer)
        spreads = sorted(row["spread"] for row in rows)
        errors = [max(row[m]["deviation"] for row in rows) for m in METHODS]
        cosines = [min(row[m]["gradient_cosine"] for row in rows) for m in METHODS]
        cells = [f"{e:.3f} / {c:.3f}" for e, c in zip(errors, cosines, strict=True)]
        about = [graph, str(layer), str(len(rows)), f"{spreads[0]:.2f} - {spreads[-1]:.2f}"]
        lines.append([*about, *cells])
    heading = ["graph", "layer", "heads", "spread", *(f"`{m}`" for m in METHODS)]
    where = f"`{trained['model']}`, {trained['epochs']} epochs, {origin(trained)}:"
    return [where, "", *table(heading, lines)]


@measurement(tables=errors_of, quick="few epochs")
def trained(options: argparse.Namespace) -> dict:
    """Error of the approximate methods on the embeddings of trained networks."""
    epochs = QUICK_EPOCHS if options.quick else EPOCHS
    rows = [row for graph in GRAPHS for row in graph_rows(graph, epochs)]
    return {"model": MODEL, "epochs": epochs, "rows": rows}
