r"""The ladder beside the multi-scale lattice, on the same points: error, gradient and time.

    python benchmarks/ladder.py            # some minutes; writes benchmarks/results/ladder.json
    python benchmarks/ladder.py --quick    # few clouds, to see that it works

Clouds are those of ``accuracy.py`` with 20,000 points in D = 1 to 4, whose errors are of 1,000 random points, and those of
``hostile.py`` with 2,000 points in D = 2 to 4.  Errors are against the deviation of the exact output from its mean.  Times are
those of a forward and backward pass of 17 channels, medians over rounds in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time

import common
import hostile
import torch
from common import cosine, deviation_error, position_gradient, random_features
from ladder_tables import HEADS, summary
from rich.progress import track
from rich.table import Table

import phgcn
from phgcn.lattice import Ladder

METHODS = {"lattice": "lattice", "ladder": Ladder(), "ladder, fine": Ladder(pairs=200, reach=2.4, fineness=0.35)}
LARGE = [(dim, f"spread {s:g}") for dim in (1, 2, 3, 4) for s in (1e-5, 1e-3, 0.1, 1, 3, 10, 30)]
LARGE += [(dim, "clusters") for dim in (2, 3, 4)] + [(4, "spread 2")]
COUNT, QUERIES, ROUNDS, CHANNELS = 20_000, 1000, 5, 17


def measure_large(dim: int, name: str) -> list[dict]:
    """Errors and times on one large cloud."""
    points, values = common.cloud(name, COUNT, dim), random_features(COUNT)
    asked = torch.randperm(COUNT, generator=torch.Generator().manual_seed(common.SEED))[:QUERIES]
    doubles = points.double(), values.double()
    exact = phgcn.global_attention(*doubles, decay=1.0, queries=doubles[0][asked], method="exact")
    slope = position_gradient(points, values, "exact")
    times = measure_times(points)
    rows = []
    for method, scheme in METHODS.items():
        out = phgcn.global_attention(points, values, decay=1.0, method=scheme)[asked]
        found = {
            "error": deviation_error(out.double(), exact),
            "cosine": cosine(position_gradient(points, values, scheme), slope),
        }
        rows.append({"dim": dim, "cloud": name, "count": COUNT, "method": method, **found, "seconds": times[method]})
    return rows


def measure_times(points: torch.Tensor) -> dict[str, float]:
    values, times = random_features(len(points), CHANNELS), {method: [] for method in METHODS}
    for turn in range(ROUNDS + 1):
        for method, scheme in METHODS.items():
            leaves = points.clone().requires_grad_(), values.clone().requires_grad_()
            begin = time.perf_counter()
            phgcn.global_attention(*leaves, decay=1.0, method=scheme).sum().backward()
            if turn > 0:
                times[method].append(time.perf_counter() - begin)
    return {method: statistics.median(found) for method, found in times.items()}


def measure_hostile(dim: int, name: str) -> list[dict]:
    """Errors on one cloud of ``hostile.py``."""
    points = hostile.CLOUDS[name](hostile.COUNT, dim, torch.Generator().manual_seed(common.SEED + dim))
    values = random_features(len(points), 4, dtype=torch.float64)
    exact = phgcn.global_attention(points, values, decay=1.0, method="exact")
    slope = position_gradient(points, values, "exact")
    rows = []
    for method, scheme in METHODS.items():
        out = phgcn.global_attention(points, values, decay=1.0, method=scheme)
        found = {"error": deviation_error(out, exact), "cosine": cosine(position_gradient(points, values, scheme), slope)}
        rows.append({"dim": dim, "cloud": name, "count": hostile.COUNT, "method": method, **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few clouds")
    parser.add_argument("--out", default=common.RESULTS / "ladder.json", help="where the JSON goes")
    options = parser.parse_args()
    cases = [(measure_large, *case) for case in LARGE]
    cases += [(measure_hostile, dim, name) for dim in (2, 3, 4) for name in hostile.CLOUDS]
    rows: list[dict] = []
    for measure, dim, name in track(cases[:: 30 if options.quick else 1], "measuring"):
        rows += measure(dim, name)
    common.write_json(options.out, {"provenance": common.provenance(), "quick": options.quick, "rows": rows})
    shown = Table(*HEADS)
    for line in summary(rows):
        shown.add_row(*line)
    common.wide_console().print(shown)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
