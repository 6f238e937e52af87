r"""The filter on one GPU: how long it takes, from where on it beats the exact sum, and its memory.

Medians between CUDA events; a forward includes building the lattice.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import common
import torch
from common import DEVICE, milliseconds
from lattice import forward
from registry import measurement

from phgcn.functional import global_attention
from phgcn_lab.markdown import origin, table
from phgcn_lab.results import chosen, names

MARKS = {
    ("separable", 100_000, "spread 1"): 1.0,
    ("separable", 100_000, "spread 10"): 1.0,
    ("separable", 1_000_000, "spread 1"): 1.1,
    ("separable", 1_000_000, "spread 10"): 20.0,
    ("lattice", 100_000, "spread 1"): 3.0,
    ("lattice", 100_000, "spread 10"): 3.0,
    ("lattice", 1_000_000, "spread 1"): 1.6,
    ("lattice", 1_000_000, "spread 10"): 60.0,
    ("exact", 100_000, "spread 1"): 15.0,
}
"""Milliseconds that a forward with the build may take."""


def inputs(name: str, count: int, dim: int = 4, channels: int = 64) -> tuple:
    tensors = common.cloud(name, count, dim), common.random_features(count, channels)
    return tuple(tensor.to(DEVICE) for tensor in tensors)


def step(points: torch.Tensor, values: torch.Tensor, method: str) -> None:
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = global_attention(*leaves, decay=1.0, method=method)
    torch.autograd.grad(out, leaves, torch.ones_like(out))


def median(times: list[float], digits: int = 2) -> str:
    return f"{statistics.median(times):.{digits}f}"


# Speed


def speed_cases(sizes: tuple[int, ...]) -> Iterator[tuple[str, int, str]]:
    """The exact sum only where it takes milliseconds."""
    for method in ("separable", "lattice", "lattice-fine"):
        for count in sizes:
            for name in ("spread 1", "spread 3", "spread 10", "clusters"):
                yield method, count, name
    yield "exact", sizes[0], "spread 1"


def speed_table(measured: dict) -> list[str]:
    clouds = names(measured["rows"], "cloud")
    lines = []
    for method, count in names(measured["rows"], "method", "count"):
        found = {r["cloud"]: r for r in chosen(measured["rows"], method=method, count=count)}
        cells = [
            f"{median(found[c]['forward'], 1)} / {median(found[c]['both'], 1)}"
            if c in found
            else "-"
            for c in clouds
        ]
        lines.append([f"`{method}`", f"{count:,}", *cells])
    heading = ["method", "N", *clouds]
    return [f"{origin(measured)}, ms forward / with backward:", "", *table(heading, lines)]


@measurement(tables=speed_table, quick="small clouds; runs on the CPU too", needs_gpu=True)
def gpu_speed(options: argparse.Namespace) -> Iterator[dict]:
    """Milliseconds of every method on a GPU, forward, and forward with backward."""
    rows = []
    sizes = (500, 1000) if options.quick else (100_000, 1_000_000)
    for method, count, name in speed_cases(sizes):
        given = inputs(name, count)
        rows.append(
            {
                "method": method,
                "count": count,
                "cloud": name,
                "forward": milliseconds(partial(forward, *given, method)),
                "both": milliseconds(partial(step, *given, method), 7),
                "mark": MARKS.get((method, count, name)),
            }
        )
        yield {"rows": rows}


# Exact or lattice


def equal_at(ratios: dict[int, float]) -> float:
    """Number of points at which a growing ratio becomes 1, linear in logarithms."""
    sizes = sorted(ratios)
    low, high = next(pair for pair in pairwise(sizes) if ratios[pair[0]] < 1 <= ratios[pair[1]])
    share = -math.log(ratios[low]) / math.log(ratios[high] / ratios[low])
    return low * (high / low) ** share


def crossings(measured: dict) -> dict[int, list[float]]:
    """By dimension up to four, at how many points exact sum and lattice take equally long."""
    clouds: dict[tuple, dict[int, float]] = {}
    for r in measured["rows"]:
        clouds.setdefault((r["dim"], r["channels"], r["cloud"]), {})[r["count"]] = r["ratio"]
    found: dict[int, list[float]] = {}
    for (dim, *_), ratios in clouds.items():
        if dim <= 4:
            found.setdefault(dim, []).append(equal_at(ratios))
    return found


def crossing_summary(measured: dict) -> list[str]:
    equal = sorted(count for counts in crossings(measured).values() for count in counts)
    return [
        f"On one H200 ({origin(measured)}) they take equally long at {equal[0]:,.0f} to "
        f"{equal[-1]:,.0f} points in two and four dimensions."
    ]


def cuda_crossings(measured: dict) -> dict[str, dict]:
    """What ``auto`` reads: of a dimension that was not measured the next larger one."""
    found = {dim: int(round(max(points), -3)) for dim, points in crossings(measured).items()}
    known = {row["dim"] for row in measured["rows"]}
    return {
        str(dim): {
            "gradients": found[min(d for d in found if d >= dim)] if dim <= max(found) else None,
            "measured": dim in known,
        }
        for dim in range(1, 9)
    }


@measurement(quick="two sizes; runs on the CPU too", needs_gpu=True)
def gpu_crossing(options: argparse.Namespace) -> Iterator[dict]:
    """Training steps through the exact sum and through the lattice, by the number of points."""
    rows: list[dict] = []
    sizes = (500, 1000) if options.quick else (5000, 10_000, 20_000, 40_000, 80_000, 160_000)
    for dim, channels in ((2, 8), (4, 8), (4, 64), (6, 8)):
        for name in ("spread 1", "spread 10", "clusters"):
            about = {"dim": dim, "channels": channels, "cloud": name}
            for count in sizes:
                given = inputs(name, count, dim, channels)
                times = {m: milliseconds(partial(step, *given, m), 5) for m in ("exact", "lattice")}
                exact, lattice = (statistics.median(t) for t in times.values())
                rows.append({**about, "count": count, "ratio": exact / lattice, **times})
                yield {"rows": rows}


# Large clouds and memory


def headline(measured: dict) -> list[str]:
    times: dict[int, dict[str, float]] = {}
    for r in measured["rows"]:
        if r["method"] == "lattice":
            times.setdefault(r["count"], {})[r["cloud"]] = statistics.median(r["forward"])
    parts = []
    for count, ms in sorted(times.items()):
        listed = [f"{t:.0f} ms ({cloud})" for cloud, t in ms.items()]
        parts.append(f"{count:,} points in {' to '.join(listed)}")
    return [
        f"On one H200 ({origin(measured)}), `lattice` took {', '.join(parts)}: 64 channels, "
        f"forward."
    ]


def large_table(measured: dict) -> list[str]:
    """The largest size of each method and cloud."""
    largest = {(r["method"], r["cloud"]): r for r in measured["rows"]}  # sizes ascend
    rows = [
        [
            f"`{r['method']}`",
            r["cloud"],
            f"{r['count']:,}",
            median(r["forward"], 1),
            median(r["both"], 1),
            f"{r['peak']:.1f}",
        ]
        for r in largest.values()
    ]
    heading = ["method", "cloud", "N", "forward, ms", "with backward, ms", "peak, GB"]
    return [f"{origin(measured)}:", "", *table(heading, rows)]


@measurement(tables=large_table, quick="small clouds; runs on the CPU too", needs_gpu=True)
def gpu_large(options: argparse.Namespace) -> Iterator[dict]:
    """Time and memory of ten million points on a GPU, and what happens out of memory."""
    rows: list[dict] = []
    content: dict = {"rows": rows}
    if DEVICE.type == "cuda":
        content["memory"] = out_of_memory()
    sizes = (1000, 2000) if options.quick else (1_000_000, 10_000_000)
    for method in ("separable", "lattice"):
        for name in ("spread 1", "spread 10"):
            for count in sizes:
                given = inputs(name, count)
                most = common.peak(partial(step, *given, method), str(DEVICE)) / 1e9
                rows.append(
                    {
                        "method": method,
                        "cloud": name,
                        "count": count,
                        "forward": milliseconds(partial(forward, *given, method), 3),
                        "both": milliseconds(partial(step, *given, method), 3),
                        "peak": most,
                    }
                )
                yield content


def out_of_memory() -> dict[str, bool]:
    """Out of memory is torch's error, and the process goes on."""
    given = inputs("spread 1", 200_000)
    want = global_attention(*given, decay=1.0, method="separable")
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 30e6) / total)
    raised = False
    try:
        forward(*given, "separable")
    except torch.OutOfMemoryError:
        raised = True
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    again = torch.equal(want, global_attention(*given, decay=1.0, method="separable"))
    return {"raised": raised, "same_bits_afterwards": again}
