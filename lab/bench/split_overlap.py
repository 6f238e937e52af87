r"""Counts how many test nodes of later splits were validation nodes of the splits that settings
were chosen on.

``phgcn reproduce table`` tunes settings once, on the first splits of the protocol ``paper``, for
all ten splits of both protocols. ``phgcn reproduce benchmark`` searches on the first splits of the
protocol that it reports.
"""

from __future__ import annotations

import argparse
import json
import statistics

import common
import torch
from registry import measurement

from phgcn.data import Split, load_graph, public_masks, splits
from phgcn_lab.benchmark.spaces import CHOOSING_SPLITS, GRAPHS
from phgcn_lab.markdown import pivot
from phgcn_lab.results import chosen, names

SPLITS = 10
RESULTS = common.RESULTS.parents[2] / "docs" / "results"


def tuned_splits() -> dict[str, int]:
    """How many splits the settings of each graph were tuned on, as the searches say."""
    studies = json.loads((RESULTS / "tuning.json").read_text())
    return {study["graph"]: study["splits"] for study in studies if study["protocol"] == "paper"}


def draw(graph: str, protocol: str) -> list[Split]:
    data = load_graph(graph)
    masks = None if protocol == "paper" else public_masks(data)
    return list(splits(data.y, protocol, count=SPLITS, seed=0, masks=masks))


def row(graph: str, chosen_on: str, tested: str, tuned: int) -> dict:
    """Measures the share of the test nodes of each later split of one protocol that are validation
    nodes of the first ``tuned`` splits of another.
    """
    first, later = draw(graph, chosen_on)[:tuned], draw(graph, tested)
    seen = torch.stack([split.val for split in first]).any(dim=0)
    later = later[tuned:] if chosen_on == tested else later
    shares = [float((split.test & seen).sum() / split.test.sum()) for split in later]
    about = {"graph": graph, "chosen_on": chosen_on, "protocol": tested, "tuned_splits": tuned}
    spread = {"mean": statistics.mean(shares), "least": min(shares), "most": max(shares)}
    return {**about, "later_splits": len(shares), **spread}


def rows_of(measured: dict) -> list[str]:
    """Mean shares of test nodes by graph, in one row per protocol."""
    titles = {"paper": "test nodes of later splits", "geom": "of the splits of `geom`"}
    shown = chosen(measured["rows"], chosen_on="paper")
    cells = {(titles[row["protocol"]], row["graph"]): f"{100 * row['mean']:.0f} %" for row in shown}
    return pivot("validated before", names(shown, "graph"), cells)


def searched(measured: dict) -> list[str]:
    """Says the shares of the search of GlobalGNN and its rivals in one sentence."""
    means = [row["mean"] for row in measured["rows"] if row["chosen_on"] != "paper"]
    return [
        f"Of the test nodes of the other seven splits {100 * min(means):.0f} to "
        f"{100 * max(means):.0f} % validated in the search, by graph."
    ]


@measurement(tables=rows_of)
def split_overlap(options: argparse.Namespace) -> dict:
    """Test nodes of later splits that were validation nodes where settings were chosen."""
    tuned = tuned_splits().items()
    rows = [
        row(graph, "paper", protocol, count)
        for graph, count in tuned
        for protocol in ("paper", "geom")
    ]
    for graph, setup in GRAPHS.items():
        rows.append(row(graph, setup.protocol, setup.protocol, len(CHOOSING_SPLITS)))
    return {"rows": rows}
