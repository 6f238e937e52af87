r"""How close each method comes to exact attention, and how long it takes.

    python benchmarks/accuracy.py            # every dimension and cloud, some minutes
    python benchmarks/accuracy.py --quick    # two dimensions, to see that it works
    python benchmarks/accuracy.py --dims 3   # one dimension

Prints a table, method x cloud x dimension -> relative error, error against the deviation from the mean for random and for
structured features, cosine of the gradient of the positions, time; writes ``benchmarks/results/accuracy.json``.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace

import common
import torch
from common import cosine, deviation_error, labelled_cloud, position_gradient, random_features, relative_error, seconds
from rich.progress import Progress
from rich.table import Table

import phgcn
from phgcn.lattice import MultiScale
from phgcn.lattice.scheme import named_scheme

METHODS = ("exact", "lattice", "lattice-fine", "separable", "lattice (no near field)", "lattice-fine (no near field)")
FINER = "MultiScale(0.35, (4, 6, 7, 6, 4), lattices=2, pairs=3000)"
"""A scheme of four dimensions that is more accurate than lattice-fine, and slower; measured on large clouds."""
SMALL = {"count": 1000, "dims": range(1, 9), "clouds": ("spread 0.5", "spread 1", "spread 3", "spread 10", "clusters")}
LARGE = {"count": 20_000, "dims": (2, 4), "clouds": ("spread 1", "spread 3", "spread 10", "clusters")}
SEEDS = 3
QUERIES = 1000
WORST = {"relative": max, "dev": max, "dev_structured": max, "cosine": min, "seconds": statistics.median}

CAPTION = (
    "dev: error against the deviation from the mean. N={small:,}: float64, worst of {seeds} seeds, median time. "
    "N={large:,}: float32, errors on {queries:,} random points, one seed. 'no near field' starts the lattice at its "
    "finest level whatever the density, and shows what the lattice alone gives."
)


def scheme_of(method: str, dim: int) -> object:
    """What to pass as ``method``."""
    if method == FINER:
        return MultiScale(0.35, (4, 6, 7, 6, 4), lattices=2, pairs=3000)
    if method.endswith(" (no near field)"):
        return replace(named_scheme(method.removesuffix(" (no near field)"), dim), near_field=0)
    return method


def small_rows(dim: int, name: str, seeds: int) -> list[dict]:
    """All methods on one kind of small cloud: the worst of several seeds."""
    found: dict[str, list[dict]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        points, label = labelled_cloud(name, SMALL["count"], dim, seed, torch.float64)
        features = [random_features(len(points), 7, seed, torch.float64), common.structured_features(points, label)]
        exact = [phgcn.global_attention(points, f, decay=1.0, method="exact") for f in features]
        slope = position_gradient(points, features[0], "exact", seed)
        for method in METHODS:
            found[method].append(measure(points, features, method, exact, slope, slice(None), seed))
    return [row(method, dim, name, SMALL["count"], found[method]) for method in METHODS]


def large_rows(dim: int, name: str, count: int) -> list[dict]:
    """All methods on one large cloud; the exact outputs are those of some of its points."""
    points, label = labelled_cloud(name, count, dim, common.SEED, torch.float32)
    features = [random_features(count), common.structured_features(points, label)]
    asked = torch.randperm(count, generator=torch.Generator().manual_seed(common.SEED))[:QUERIES]
    exact = [phgcn.global_attention(points, f, decay=1.0, queries=points[asked], method="exact") for f in features]
    slope = position_gradient(points, features[0], "exact")
    return [
        row(method, dim, name, count, [measure(points, features, method, exact, slope, asked, common.SEED)])
        for method in (*METHODS, *((FINER,) if dim == 4 else ()))
    ]


def measure(points, features, method: str, exact, slope, asked, seed: int) -> dict:
    """Errors and time of one method on one cloud."""
    scheme = scheme_of(method, points.size(1))

    def call() -> object:
        return phgcn.global_attention(points, features[0], decay=1.0, method=scheme)

    if method == "exact":
        return {"seconds": seconds(call)}
    out = [phgcn.global_attention(points, f, decay=1.0, method=scheme)[asked] for f in features]
    return {
        "relative": relative_error(out[0], exact[0]),
        "dev": deviation_error(out[0], exact[0]),
        "dev_structured": deviation_error(out[1], exact[1]),
        "cosine": cosine(position_gradient(points, features[0], scheme, seed), slope),
        "seconds": seconds(call),
    }


def row(method: str, dim: int, name: str, count: int, found: list[dict]) -> dict:
    """One row of the table: the worst of each error, and the median time."""
    worst = {key: WORST[key](one[key] for one in found) for key in found[0]}
    return {"method": method, "dim": dim, "cloud": name, "count": count, "seeds": len(found), **worst}


def table_of(rows: list[dict], seeds: int, count: int) -> Table:
    caption = CAPTION.format(small=SMALL["count"], seeds=seeds, large=count, queries=QUERIES)
    table = Table(title="Error against exact attention", caption=caption)
    for heading in ("D", "N", "cloud", "method"):
        table.add_column(heading, no_wrap=True)
    for heading in ("relative", "dev", "dev structured", "gradient cosine", "ms"):
        table.add_column(heading, justify="right")
    for number, r in enumerate(rows):
        errors = [f"{r[key]:.4f}" if key in r else "" for key in ("relative", "dev", "dev_structured", "cosine")]
        end = number + 1 == len(rows) or rows[number + 1]["cloud"] != r["cloud"]
        where = (str(r["dim"]), f"{r['count']:,}", r["cloud"]) if r["method"] == METHODS[0] else ("", "", "")
        table.add_row(*where, r["method"], *errors, f"{1000 * r['seconds']:.1f}", end_section=end)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two dimensions, one seed, fewer points")
    parser.add_argument("--dims", type=int, nargs="*", help="these dimensions only")
    parser.add_argument("--out", default=common.RESULTS / "accuracy.json", help="where the JSON goes")
    options = parser.parse_args()
    seeds, count = (1, 5000) if options.quick else (SEEDS, LARGE["count"])
    dims = options.dims or ((2, 4) if options.quick else SMALL["dims"])
    large_dims = [dim for dim in LARGE["dims"] if dim in dims]
    cases = [(small_rows, dim, name, seeds) for dim in dims for name in SMALL["clouds"]]
    cases += [(large_rows, dim, name, count) for dim in large_dims for name in LARGE["clouds"]]
    rows = []
    with Progress() as progress:
        task = progress.add_task("measuring", total=len(cases))
        for make, dim, name, argument in cases:
            progress.update(task, description=f"D={dim} {name} (the first compiles kernels)" if not rows else f"D={dim} {name}")
            rows += make(dim, name, argument)
            progress.advance(task)
    common.wide_console().print(table_of(rows, seeds, count))
    common.write_json(options.out, {"provenance": common.provenance(), "quick": options.quick, "rows": rows})
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
