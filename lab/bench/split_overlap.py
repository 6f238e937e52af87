r"""Counts how many test nodes of later splits were validation nodes of the splits that settings
were tuned on.

Settings are tuned once, on the validation nodes of the first splits of the protocol ``paper``, and
serve all ten splits of both protocols.
"""

from __future__ import annotations

import argparse
import json
import statistics

import common
import torch
from registry import measurement

from phgcn.data import load_graph, public_masks, splits
from phgcn_lab.markdown import table
from phgcn_lab.results import chosen, names

SPLITS = 10
RESULTS = common.RESULTS.parents[2] / "docs" / "results"


def tuned_splits() -> dict[str, int]:
    """How many splits the settings of each graph were tuned on, as the searches say."""
    studies = json.loads((RESULTS / "tuning.json").read_text())
    return {study["graph"]: study["splits"] for study in studies if study["protocol"] == "paper"}


def shares(graph: str, tuned: int, protocol: str) -> list[float]:
    """For each split: the share of its test nodes that are validation nodes of the first ``tuned``
    splits of ``paper``.
    """
    data = load_graph(graph)
    masks = public_masks(data) if protocol == "geom" else None
    tuning = [split.val for split in splits(data.y, "paper", count=tuned, seed=0)]
    seen = torch.stack(tuning).any(dim=0)
    tested = [split.test for split in splits(data.y, protocol, count=SPLITS, seed=0, masks=masks)]
    later = tested[tuned:] if protocol == "paper" else tested
    return [float((test & seen).sum() / test.sum()) for test in later]


def rows_of(measured: dict) -> list[str]:
    """Mean shares of test nodes by graph, in one row per protocol."""
    graphs = names(measured["rows"], "graph")
    titles = {"paper": "test nodes of later splits", "geom": "of the splits of `geom`"}
    lines = []
    for protocol, title in titles.items():
        shares_of = {
            row["graph"]: row["mean"] for row in chosen(measured["rows"], protocol=protocol)
        }
        lines.append([title, *(f"{100 * shares_of[graph]:.0f} %" for graph in graphs)])
    return table(["validated before", *graphs], lines)


@measurement(tables=rows_of)
def split_overlap(options: argparse.Namespace) -> dict:
    """Test nodes of later splits that were validation nodes of the splits settings were tuned
    on."""
    rows = []
    for graph, tuned in tuned_splits().items():
        for protocol in ("paper", "geom"):
            found = shares(graph, tuned, protocol)
            about = {"graph": graph, "protocol": protocol, "tuned_splits": tuned}
            spread = {"mean": statistics.mean(found), "least": min(found), "most": max(found)}
            rows.append({**about, "later_splits": len(found), **spread})
    return {"rows": rows}
