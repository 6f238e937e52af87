r"""From how many points on the lattice is faster than the exact sum: what ``method="auto"`` goes by.

    python benchmarks/crossing.py            # five minutes
    python benchmarks/crossing.py --quick    # few sizes and rounds, to see that it works

Both run on the same clouds in interleaved rounds, forward and backward, for several spreads, dimensions and widths.  The
*crossing* is the number of points at which their times, interpolated between sizes on a logarithmic scale, are equal.
Prints it for each cloud, and by how much a switch at ``phgcn.functional.EXACT_PAIRS`` is slower than the better of the two;
writes ``benchmarks/results/crossing.json``.
"""

from __future__ import annotations

import argparse
import math
import statistics
from functools import partial

import common
import torch
from rich.table import Table

import phgcn
from phgcn.functional import EXACT_PAIRS

SIZES = (500, 1000, 1500, 2000, 3000, 4000)
CLOUDS = ("spread 1", "spread 3", "spread 10", "clusters")
SHAPES = ((1, 8), (2, 8), (4, 8), (4, 64), (6, 8), (8, 8))
"""Dimension and channels."""


def training_step(points: torch.Tensor, values: torch.Tensor, method: str) -> None:
    """A forward and a backward to positions and values."""
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = phgcn.global_attention(*leaves, decay=1.0, method=method)
    torch.autograd.grad(out, leaves, torch.ones_like(out))


def crossing(sizes: tuple[int, ...], ratios: list[float]) -> float:
    """Where exact / lattice passes 1 for good; the least size if the lattice is faster throughout, infinity if never."""
    last = max((k for k, ratio in enumerate(ratios) if ratio < 1), default=-1)
    if last == -1:
        return float(sizes[0])
    if last == len(sizes) - 1:
        return math.inf
    low, high = math.log(ratios[last]), math.log(ratios[last + 1])
    share = -low / (high - low)
    return math.exp((1 - share) * math.log(sizes[last]) + share * math.log(sizes[last + 1]))


def loss(sizes: tuple[int, ...], ratios: list[float], limit: float) -> float:
    """The greatest factor by which a switch at ``limit`` points is slower than the better of the two."""
    return max(ratio if size <= limit else 1 / ratio for size, ratio in zip(sizes, ratios, strict=True))


def measure(sizes: tuple[int, ...], rounds: int) -> list[dict]:
    console, rows = common.wide_console(), []
    with console.status("compiling kernels") as status:
        for dim, channels in SHAPES:
            for cloud in CLOUDS:
                jobs = {}
                for count in sizes:
                    given = common.cloud(cloud, count, dim), common.random_features(count, channels)
                    for method in ("exact", "lattice"):
                        jobs[f"{method} {count}"] = partial(training_step, *given, method)
                times = common.interleaved(jobs, rounds, lambda text, d=dim, n=cloud: status.update(f"D={d}, {n}: {text}"))
                ratios = [times[f"exact {n}"]["median"] / times[f"lattice {n}"]["median"] for n in sizes]
                rows.append({"dim": dim, "channels": channels, "cloud": cloud, "ratios": ratios, "times": times})
                rows[-1] |= {"crossing": crossing(sizes, ratios)}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds; the crossing means nothing then")
    parser.add_argument("--rounds", type=int, default=None, help="how often each job runs (default: 5, quick: 2)")
    parser.add_argument("--out", default=common.RESULTS / "crossing.json", help="where the JSON goes")
    options = parser.parse_args()
    sizes = SIZES[1::3] if options.quick else SIZES
    rounds = options.rounds or (2 if options.quick else 5)
    rows = measure(sizes, rounds)
    now = math.sqrt(EXACT_PAIRS["cpu"])
    for row in rows:
        row["loss"] = loss(sizes, row["ratios"], now)
    typical = statistics.median(row["crossing"] for row in rows)

    console = common.wide_console()
    table = Table(title="exact / lattice, forward and backward, float32")
    for heading in ("D", "channels", "cloud", *(f"N={n:,}" for n in sizes), "crossing", f"loss at {now:,.0f}"):
        table.add_column(heading, justify="left" if heading == "cloud" else "right")
    for row in rows:
        numbers = [f"{ratio:.2f}" for ratio in row["ratios"]] + [f"{row['crossing']:,.0f}", f"{row['loss']:.2f}x"]
        table.add_row(str(row["dim"]), str(row["channels"]), row["cloud"], *numbers)
    console.print(table)
    content = {"provenance": common.provenance(), "quick": options.quick, "rounds": rounds, "sizes": sizes}
    common.write_json(options.out, {**content, "exact_pairs": EXACT_PAIRS["cpu"], "median_crossing": typical, "rows": rows})
    console.print(f"median crossing: {typical:,.0f} points; auto switches at {now:,.0f}; written to {options.out}")


if __name__ == "__main__":
    main()
