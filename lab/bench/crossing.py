r"""From how many points on the lattice is worth it: what ``method="auto"`` goes by.

Exact sum and lattice run on the same clouds in interleaved rounds, forward only and with gradients,
for several spreads.  The *crossing* of a dimension is the number of points from which on the lattice
is faster on every cloud, in more than four dimensions three times as fast.  Ratios between two sizes
are interpolated, and beyond the largest continued, as powers of the number of points.  Above a
million points it counts as never.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import math
import statistics
from functools import partial

import common
import torch
from gpu_filter import cuda_crossings
from registry import measurement

import phgcn
from phgcn.crossings import FILE, Crossing
from phgcn.files import write_json
from phgcn_lab.markdown import table
from phgcn_lab.results import chosen

CLOUDS = ("spread 0.3", "spread 1", "spread 3", "clusters")
CHANNELS = 16
METHODS = ("exact", "lattice")
FEW, MANY = (500, 1000, 1500, 2000, 3000, 4000), (3000, 6000, 12_000)
SIZES = {1: FEW, 2: FEW, 3: FEW, 4: FEW, 5: MANY, 6: MANY, 7: MANY[1:], 8: MANY[1:]}
WORTH = {dim: 1.0 if dim <= 4 else 3.0 for dim in SIZES}
"""How many times as fast the lattice must be."""

NEVER = 1e6


def forward(points: torch.Tensor, values: torch.Tensor, method: str) -> None:
    """A forward of what needs no gradient, as in evaluation."""
    phgcn.global_attention(points, values, decay=1.0, method=method)


def training_step(points: torch.Tensor, values: torch.Tensor, method: str) -> None:
    """A forward and a backward to positions and values."""
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = phgcn.global_attention(*leaves, decay=1.0, method=method)
    torch.autograd.grad(out, leaves, torch.ones_like(out))


PASSES = {"forward": forward, "gradients": training_step}
"""What is measured, by its name in the table of crossings."""


def crossing_point(sizes: tuple[int, ...], ratios: list[float]) -> float:
    """Where exact / lattice passes 1 for good: the least size if it is always above, infinity if it
    falls.
    """
    last = max((k for k, ratio in enumerate(ratios) if ratio < 1), default=-1)
    if last == -1:
        return float(sizes[0])
    low = min(last, len(sizes) - 2)
    logs = [math.log(x) for x in (sizes[low], sizes[low + 1], ratios[low], ratios[low + 1])]
    slope = (logs[3] - logs[2]) / (logs[1] - logs[0])
    return math.exp(logs[0] - logs[2] / slope) if slope > 0 else math.inf


def measure(dim: int, cloud: str, sizes: tuple[int, ...], rounds: int) -> list[dict]:
    """Returns a row for each pass."""
    jobs = {}
    for count in sizes:
        given = common.cloud(cloud, count, dim), common.random_features(count, CHANNELS)
        for kind, run in PASSES.items():
            for method in METHODS:
                jobs[f"{kind} {method} {count}"] = partial(run, *given, method)
    times = common.interleaved(jobs, rounds)
    error = float(phgcn.attention_error(*given, decay=1.0, method="lattice").deviation)
    rows = []
    for kind in PASSES:
        seconds = {m: [times[f"{kind} {m} {n}"]["min"] for n in sizes] for m in METHODS}
        ratios = [e / l for e, l in zip(seconds["exact"], seconds["lattice"], strict=True)]
        passed = crossing_point(sizes, [x / WORTH[dim] for x in ratios])
        found = {"sizes": sizes, "seconds": seconds, "ratios": ratios, "crossing": passed}
        rows.append({"dim": dim, "cloud": cloud, "run": kind, **found, "error": error})
    return rows


def summarise(rows: list[dict]) -> dict[str, dict]:
    """What ``auto`` reads, by dimension."""
    by_dim = {}
    for dim in sorted({row["dim"] for row in rows}):
        trained = chosen(rows, dim=dim, run="gradients")
        largest = trained[0]["sizes"][-1]
        exact, lattice = (
            statistics.median(row["seconds"][m][-1] for row in trained) for m in METHODS
        )
        by_dim[str(dim)] = {
            **{kind: last_crossing(chosen(rows, dim=dim, run=kind)) for kind in PASSES},
            "exact_ns": float(f"{exact / largest**2 * 1e9:.2g}"),
            "lattice_us": float(f"{lattice / largest * 1e6:.2g}"),
            "error": float(f"{statistics.median(row['error'] for row in trained):.2g}"),
        }
    return by_dim


def last_crossing(rows: list[dict]) -> int | None:
    """The largest crossing of some clouds; none where it is never reached."""
    points = max(row["crossing"] for row in rows)
    return None if points > NEVER else int(round(points, -2))


def crossing_summary(measured: dict) -> list[str]:
    summary = measured["summary"]
    points = [Crossing(**row).points for row in summary.values()]
    limits = ["always" if count is None else f"{count:,}" for count in points]
    errors = [f"{row['error']:.3f}" for row in summary.values()]
    return table(["D", *summary], [["exact up to N =", *limits], ["error of `lattice`", *errors]])


def crossing_table(measured: dict) -> list[str]:
    rows = []
    for r in measured["rows"]:
        ratios = [f"{n:,}: {x:.2f}" for n, x in zip(r["sizes"], r["ratios"], strict=True)]
        kind = "forward" if r["run"] == "forward" else "with gradients"
        cells = [f"{r['dim']}", r["cloud"], kind, ", ".join(ratios), f"{r['crossing']:,.0f}"]
        rows.append([*cells, f"{r['error']:.3f}"])
    heading = ["D", "cloud", "pass", "exact / lattice at N", "crossing", "error of `lattice`"]
    return table(heading, rows)


@measurement(
    tables=crossing_table,
    quick="two sizes and rounds; the crossing means little then",
    dims={"type": int, "nargs": "+", "default": list(SIZES), "help": "these dimensions only"},
    rounds={"type": int, "default": 5, "help": "how often each job runs (default: 5)"},
    write={"action": "store_true", "help": "write the table that auto reads"},
)
def crossing(options: argparse.Namespace) -> dict:
    """Number of points from which on the lattice is faster than the exact sum, by dimension."""
    rounds = 2 if options.quick else options.rounds
    rows = []
    if options.kept is not None and options.kept.exists():
        before = json.loads(options.kept.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in before if row["dim"] not in options.dims]
    for dim in options.dims:
        sizes = SIZES[dim][-2:] if options.quick else SIZES[dim]
        for cloud in CLOUDS:
            rows += measure(dim, cloud, sizes, rounds)
    rows.sort(key=lambda row: row["dim"])
    summary = summarise(rows)
    if options.write:
        known = json.loads(FILE.read_text(encoding="utf-8"))
        known["cpu"] |= summary
        on_gpu = common.RESULTS / "gpu_crossing.json"
        known["cuda"] = cuda_crossings(json.loads(on_gpu.read_text(encoding="utf-8")))
        write_json(FILE, known)
    return {"rounds": rounds, "summary": summary, "rows": rows}
