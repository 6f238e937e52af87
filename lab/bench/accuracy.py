r"""How close each method comes to exact attention, and how long it takes.

Small clouds are in float64; large ones in float32, with errors on some of their points against the
exact sum in float64.  The worst of several seeds counts.
"""

from __future__ import annotations

import argparse
import statistics

import common
import torch
from common import (
    cosine,
    deviation_error,
    labelled_cloud,
    position_gradient,
    random_features,
    relative_error,
    seconds,
)
from registry import measurement

import phgcn
from phgcn_lab.markdown import short, table

METHODS = ("exact", "lattice", "lattice-fine", "separable")
SHOWN = ("spread 1", "spread 3", "spread 10", "clusters")
SMALL = {
    "count": 1000,
    "dims": range(1, 7),
    "clouds": ("spread 0.5", "spread 1", "spread 3", "spread 10", "clusters"),
}
LARGE = {
    "count": 20_000,
    "dims": (1, 2, 3, 4),
    "clouds": ("spread 0.00001", "spread 0.03", "spread 1", "spread 3", "spread 10", "clusters"),
}
SEEDS = 3
SHOWN_DIMS = (2, 4)  # of the large clouds, in the documents
QUERIES = 1000
WORST = {
    "relative": max,
    "sum": max,
    "dev": max,
    "dev_structured": max,
    "cosine": min,
    "seconds": statistics.median,
}


def small_rows(dim: int, name: str, seeds: int) -> list[dict]:
    """All methods on one kind of small cloud: the worst of several seeds."""
    found: dict[str, list[dict]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        points, label = labelled_cloud(name, SMALL["count"], dim, seed, torch.float64)
        features = [
            random_features(len(points), 7, seed, torch.float64),
            common.structured_features(points, label),
        ]
        exact = [phgcn.global_attention(points, f, decay=1.0, method="exact") for f in features]
        exact.append(phgcn.permutohedral_filter(points, features[0], method="exact"))
        slope = position_gradient(points, features[0], "exact", seed)
        for method in METHODS:
            found[method].append(measure(points, features, method, exact, slope, slice(None), seed))
    return [row(method, dim, name, SMALL["count"], found[method]) for method in METHODS]


def large_rows(dim: int, name: str, count: int, seeds: int) -> list[dict]:
    """All methods on one kind of large cloud in float32: the worst of several seeds.

    The exact outputs are those of some points, in float64."""
    found: dict[str, list[dict]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        points, label = labelled_cloud(name, count, dim, seed, torch.float32)
        features = [random_features(count, seed=seed), common.structured_features(points, label)]
        random = torch.Generator().manual_seed(seed)
        sampled = torch.randperm(count, generator=random)[:QUERIES]
        wide = points.double()
        exact = [
            phgcn.global_attention(
                wide, f.double(), decay=1.0, queries=wide[sampled], method="exact"
            )
            for f in features
        ]
        inputs = wide, features[0].double()
        sums = phgcn.permutohedral_filter(*inputs, queries=wide[sampled], method="exact")
        slope = position_gradient(*inputs, "exact", seed)
        for method in METHODS:
            given = points, features, method, [*exact, sums], slope, sampled, seed
            found[method].append(measure(*given))
    return [row(method, dim, name, count, found[method]) for method in METHODS]


def measure(points, features, method: str, exact, slope, asked, seed: int) -> dict:
    """Errors and time of one method on one cloud."""

    def call() -> object:
        return phgcn.global_attention(points, features[0], decay=1.0, method=method)

    if method == "exact":
        return {"seconds": seconds(call)}
    out = [phgcn.global_attention(points, f, decay=1.0, method=method)[asked] for f in features]
    total = phgcn.permutohedral_filter(points, features[0], method=method)[asked]
    return {
        "relative": relative_error(out[0], exact[0]),
        "sum": relative_error(total, exact[2]),
        "dev": deviation_error(out[0], exact[0]),
        "dev_structured": deviation_error(out[1], exact[1]),
        "cosine": cosine(position_gradient(points, features[0], method, seed), slope),
        "seconds": seconds(call),
    }


def row(method: str, dim: int, name: str, count: int, found: list[dict]) -> dict:
    """One row of the table: the worst of each error, and the median time."""
    worst = {key: WORST[key](one[key] for one in found) for key in found[0]}
    return {
        "method": method,
        "dim": dim,
        "cloud": name,
        "count": count,
        "seeds": len(found),
        **worst,
    }


def accuracy_tables(measured: dict) -> list[str]:
    by_case = {(r["method"], r["dim"], r["cloud"], r["count"]): r for r in measured["rows"]}
    count = max(r["count"] for r in measured["rows"])
    dims = {
        n: sorted({r["dim"] for r in measured["rows"] if r["count"] == n}) for n in (1000, count)
    }
    methods, sums = METHODS[1:], ["sum"] * ("sum" in measured["rows"][-1])
    keys = " / ".join(["dev random", "dev structured", *sums, "cos"])

    def large(method: str, dim: int, cloud: str) -> str:
        r = by_case[method, dim, cloud, count]
        return " / ".join(short(r[key]) for key in ("dev", "dev_structured", *sums, "cosine"))

    def small(method: str, dim: int) -> str:
        rows = [by_case[method, dim, cloud, 1000] for cloud in SMALL["clouds"]]
        worst = [max(r[key] for r in rows) for key in ("relative", "dev", "dev_structured", *sums)]
        return " / ".join(short(v) for v in (*worst, min(r["cosine"] for r in rows)))

    clouds = LARGE["clouds"]
    rows = [
        [f"{d}", f"`{m}`", *(large(m, d, c) for c in clouds)]
        for d in dims[count]
        for m in methods
        if d in SHOWN_DIMS
    ]
    return [
        f"N = {count:,} (float32, errors on {QUERIES:,} points, worst of {SEEDS} seeds), each cell "
        f"*{keys}*:",
        "",
        *table(["D", "method", *clouds], rows),
        "",
        f"N = 1,000 (float64), worst of {SEEDS} seeds and of spreads .5, 1, 3, 10 and clusters, "
        f"each cell "
        f"*rel / {keys}*:",
        "",
        *table(
            ["D", *(f"`{m}`" for m in methods)],
            [[f"{d}", *(small(m, d) for m in methods)] for d in dims[1000]],
        ),
    ]


@measurement(
    tables=accuracy_tables,
    quick="two dimensions, one seed, fewer points",
    dims={"type": int, "nargs": "*", "help": "these dimensions only"},
)
def accuracy(options: argparse.Namespace) -> dict:
    """Errors of every method against the exact sum, and times, by cloud and dimension."""
    seeds, count = (1, 5000) if options.quick else (SEEDS, LARGE["count"])
    dims = options.dims or ((2, 4) if options.quick else SMALL["dims"])
    rows = []
    for dim in dims:
        for name in SMALL["clouds"]:
            rows += small_rows(dim, name, seeds)
        for name in LARGE["clouds"] if dim in LARGE["dims"] else ():
            rows += large_rows(dim, name, count, seeds)
    return {"rows": rows}


def headline(measured: dict) -> list[str]:
    """Errors of all methods, for the README."""
    errors = {
        (r["method"], r["cloud"]): r
        for r in measured["rows"]
        if (r["dim"], r["count"]) == (4, 20_000)
    }
    rows = [[f"`{m}`", *(short(errors[m, c]["dev"]) for c in SHOWN)] for m in METHODS[1:]]
    return table(["method", *SHOWN], rows)
