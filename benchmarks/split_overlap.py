r"""Counts how many test nodes of later splits were validation nodes of the splits that settings were tuned on.

python benchmarks/split_overlap.py    # writes benchmarks/results/split_overlap.json; needs the graphs

Settings are tuned once, on the validation nodes of the first splits of the protocol ``paper``, and serve all ten splits of both
protocols.  What those nodes decided is then tested on splits in which some of them are test nodes.
"""

from __future__ import annotations

import json
import statistics

import common
import torch

from phgcn.data import load_graph, public_masks, splits

SPLITS = 10
RESULTS = common.RESULTS.parent.parent / "docs" / "results"


def tuned_splits() -> dict[str, int]:
    """How many splits the settings of each graph of the table were tuned on, as the searches themselves say."""
    studies = json.loads((RESULTS / "tuning.json").read_text())
    return {study["graph"]: study["splits"] for study in studies if study["protocol"] == "paper"}


def shares(graph: str, tuned: int, protocol: str) -> list[float]:
    """For each split: the share of its test nodes that are validation nodes of the first ``tuned`` splits of ``paper``."""
    data = load_graph(graph)
    masks = public_masks(data) if protocol == "geom" else None
    tuning = [split.val for split in splits(data.y, "paper", count=tuned, seed=0)]
    seen = torch.stack(tuning).any(dim=0)
    tested = [split.test for split in splits(data.y, protocol, count=SPLITS, seed=0, masks=masks)]
    later = tested[tuned:] if protocol == "paper" else tested
    return [float((test & seen).sum() / test.sum()) for test in later]


def main() -> None:
    rows = []
    for graph, tuned in tuned_splits().items():
        for protocol in ("paper", "geom"):
            found = shares(graph, tuned, protocol)
            about = {"graph": graph, "protocol": protocol, "tuned_splits": tuned, "later_splits": len(found)}
            rows.append({**about, "mean": statistics.mean(found), "least": min(found), "most": max(found)})
            print(rows[-1])
    common.write_json(common.RESULTS / "split_overlap.json", {"provenance": common.provenance(), "rows": rows})


if __name__ == "__main__":
    main()
