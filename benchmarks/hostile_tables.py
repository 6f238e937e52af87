r"""The tables of hostile clouds, from the JSON of ``benchmarks/hostile.py``."""

from __future__ import annotations

import math
import statistics

from markdown_lines import table

KEYS = ("deviation", "cosine")


def hostile_summary(rows: list[dict], method: str, dim: int) -> str:
    """Error over all clouds, median, 99th percentile and worst, and the median and worst cosine.

    What is not a number, as where attention is a plain average, is no error.
    """
    some = [r for r in rows if (r["method"], r["dim"]) == (method, dim)]
    if not some:
        return "not run"
    errors, cosines = (sorted(r[key] for r in some if r[key] is not None and math.isfinite(r[key])) for key in KEYS)
    p99 = errors[math.ceil(0.99 * len(errors)) - 1]
    return (
        f"{statistics.median(errors):.3f} / {p99:.2f} / {errors[-1]:.2f}, {statistics.median(cosines):.3f} / {cosines[0]:.2f}"
    )


def hostile_table(after: dict, before: dict) -> list[str]:
    """Errors over hostile clouds by dimension, shares of far clusters, gradients of far queries, and how time grows."""
    methods, parts = ("lattice", "lattice-fine"), (before["errors"]["rows"], after["errors"]["rows"])
    heads = [f"`{m}`{when}" for m in methods for when in (", before", "")]
    dims = sorted({r["dim"] for r in after["errors"]["rows"]})
    errors = [[str(d), *(hostile_summary(rows, m, d) for m in methods for rows in parts)] for d in dims]
    shares = ("share", "off", "most_above")
    earlier = {(r["dim"], r["distance"], r["method"]): r for r in before["tails"]["rows"]}
    tails = [
        [str(r["dim"]), f"{r['distance']:g}", f"`{r['method']}`", f"{r['exact']:.3f}"]
        + [" / ".join(f"{row[key]:.3f}" for key in shares) for row in (earlier[r["dim"], r["distance"], r["method"]], r)]
        for r in after["tails"]["rows"]
    ]
    spreads = [
        [str(d), f"{n:,}", *(_spread_summary(content["spreads"]["rows"], d, n) for content in (before, after))]
        for d, n in sorted({(r["dim"], r["count"]) for r in after["spreads"]["rows"]})
    ]
    then = {(r["dim"], r["spread"]): r for r in before["far"]["rows"]}
    far = [
        [str(r["dim"]), f"{r['spread']:g}"]
        + [
            f"{part['deviation']:.2f}, {part['gradient']:,.1f}"
            for m in methods
            for part in (then[r["dim"], r["spread"]][m], r[m])
        ]
        for r in after["far"]["rows"]
    ]
    previous = {r["dim"]: r for r in before["between"]["rows"]}
    between = [
        [str(r["dim"])]
        + [
            f"{part['deviation']:.2f}, {part['gradient']:,.1f}, {part['cosine']:.2f}"
            for m in methods
            for part in (previous[r["dim"]][m], r[m])
        ]
        for r in after["between"]["rows"]
    ]
    old = {r["cloud"]: r for r in before["growth"]["rows"]}
    growth = [
        [r["cloud"], *(f"{g['per_doubling']:.1f} ({g['seconds'][-1]:.2f} s)" for g in (old[r["cloud"]], r))]
        for r in after["growth"]["rows"]
    ]
    return [
        "Error against the deviation, *median / 99th percentile / worst*, and *median / worst* cosine of the gradient:",
        "",
        *table(["D", *heads], errors),
        "",
        "Gaussians by `lattice`, *mean / worst* error and worst cosine: in four dimensions 40 spreads from 1e-4 to 30, in more "
        "8 from 1e-4 to 0.5:",
        "",
        *table(["D", "points", "before", "now"], spreads),
        "",
        "The share that 100 lone points at a distance put on a cluster of width 0.2 that holds nearly all of "
        f"{after['tails']['rows'][0]['count']:,} points, *in the mean / root mean square error / the most that one of them is "
        "above its exact share*:",
        "",
        *table(["D", "distance", "method", "exact", "before", "now"], tails),
        "",
        "Queries at distances from 4 to 25 from 5,000 keys, with values that vary over these: error against the deviation, and "
        "the largest gradient over the exact one:",
        "",
        *table(["D", "spread of the keys", *heads], far),
        "",
        "Queries anywhere in a cube of side 24 that has clusters of 4,000, 800 and 200 keys in two corners and in the middle: "
        "error against the deviation, the largest gradient over the exact one, and the cosine of the gradient with that:",
        "",
        *table(["D", *heads], between),
        "",
        f"Time per doubling of the points, largest, and CPU seconds of {after['growth']['rows'][0]['sizes'][-1]:,} points:",
        "",
        *table(["cloud", "before", "now"], growth),
    ]


def _spread_summary(rows: list[dict], dim: int, count: int) -> str:
    some = [r for r in rows if (r["dim"], r["count"]) == (dim, count)]
    errors = [r["deviation"] for r in some]
    return f"{statistics.mean(errors):.3f} / {max(errors):.3f}, {min(r['cosine'] for r in some):.3f}"


def hostile_gpu_table(measured: dict) -> list[str]:
    """How far the GPU is from the CPU on hostile clouds, by dimension, and how its time grows."""
    rows = measured["errors"]["rows"]
    dims = sorted({r["dim"] for r in rows})
    largest = [f"{max(r['from_cpu'] for r in rows if r['dim'] == d):.0e}" for d in dims]
    growth = [
        [r["cloud"], *(f"{1000 * seconds:.1f}" for seconds in r["seconds"]), f"{r['per_doubling']:.1f}"]
        for r in measured["growth"]["rows"]
    ]
    sizes = [f"{size:,}" for size in measured["growth"]["rows"][0]["sizes"]]
    return [
        "The GPU on the same clouds: the largest difference of its outputs from the CPU's, over the norm of these, float64:",
        "",
        *table(["D", *map(str, dims)], [["from the CPU", *largest]]),
        "",
        f"Its milliseconds by the number of points, and the largest ratio of one to the one before "
        f"({measured['growth']['provenance']['device']}, commit {measured['growth']['provenance']['commit'][:7]}):",
        "",
        *table(["cloud", *sizes, "per doubling"], growth),
    ]
