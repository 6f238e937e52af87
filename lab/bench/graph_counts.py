r"""Counts the known graphs: the columns of the paper's Table 1, in the files and as published."""

from __future__ import annotations

import argparse

import common
from registry import measurement

import phgcn.data
from phgcn_lab.markdown import origin, table
from phgcn_lab.results import page as results_page


def counts_of(measured: dict) -> list[str]:
    rows = []
    for r in measured["rows"]:
        counted = r["counted"] or dict.fromkeys(r["published"], "-")
        cells = [f"{counted[key]} / {r['published'][key]}" for key in r["published"]]
        rows.append([r["graph"], *cells, r["edge_count"], r["masks"] or "none", r["metric"]])
    columns = measured["rows"][0]["published"]
    return table(["graph", *columns, "edges counted as", "public masks", "metric"], rows)


def page(measured: dict) -> str:
    lines = [
        "Each cell: counted in the file / published. `-`: the file was not on the machine that "
        "counted. How edges are counted differs by source; each graph is counted as its "
        "publication did ([data.md](../data.md)).",
        "",
        *counts_of(measured),
        "",
        f"`python lab/bench graphs`, {origin(measured)}",
    ]
    return results_page("The graphs: the paper's Table 1", lines)


@measurement(tables=counts_of, folder=common.ROOT / "docs" / "results")
def graphs(options: argparse.Namespace) -> dict:
    """Nodes, edges, features and classes of the known graphs beside the published counts."""
    rows = []
    for row in phgcn.data.table():
        about = {"graph": row.name, "edge_count": row.edge_count, "masks": row.masks}
        counted = None if row.found is None else row.found._asdict()
        counts = {"counted": counted, "published": row.published._asdict()}
        rows.append({**about, "metric": row.metric, **counts})
    return {"rows": rows}
