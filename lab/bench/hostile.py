r"""Attacks the filter with clouds of many kinds: error and gradient against the exact sum.

Parts: ``errors``, in each dimension the error against the deviation from the mean over all clouds,
and the cosine of the gradient of the positions; ``spreads``, the same of Gaussians of many spreads,
by ``lattice``; ``cores``, errors and times of large clouds with a core or of several widths;
``far``, errors and gradients of queries far from all keys.  A part that is not run stays as it is
in the JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import common
import torch
from common import cosine, deviation_error, position_gradient, random_features
from registry import measurement
from torch import Tensor

import phgcn
from phgcn_lab.markdown import origin, table

COUNT = 2000
DIMS = range(1, 9)
METHODS = ("lattice", "lattice-fine")
SPREADS = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
PARTS = ("errors", "spreads", "cores", "far")
MANY_SPREADS = torch.logspace(-5, math.log10(30), 14).tolist()
"""Spreads of Gaussians in up to four dimensions, whose points and values are of single
precision."""
MANY_COUNT = 20_000
CORES = 20_000
"""Points of clouds with a core, whose errors and times are compared with those of a Gaussian of as
many points.
"""

SLOW = 5.0
"""A call that takes more seconds is not repeated."""

FAR = [(dim, spread) for dim in (2, 3, 4, 6, 8) for spread in (0.3, 1.0, 2.0)]
"""Dimension, and spread of the keys, for far queries."""


def gaussian(spread: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: (
        spread * torch.randn(count, dim, generator=random, dtype=torch.float64)
    )


def uniform(side: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: (
        side * torch.rand(count, dim, generator=random, dtype=torch.float64)
    )


def sphere(radius: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        points = torch.randn(count, dim, generator=random, dtype=torch.float64)
        return radius * points / points.norm(dim=1, keepdim=True)

    return make


def clusters(
    number: int, width: float, spread: float
) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        centres = gaussian(spread)(number, dim, random)
        return centres[torch.randint(number, (count,), generator=random)] + gaussian(width)(
            count, dim, random
        )

    return make


def with_shell(width: float, radius: float) -> Callable[[int, int, torch.Generator], Tensor]:
    """A cluster that holds most points, and a shell around it."""
    return lambda count, dim, random: torch.cat(
        [
            gaussian(width)(count - count // 10, dim, random),
            sphere(radius)(count // 10, dim, random),
        ]
    )


def with_outside(
    width: float, number: int, spread: float
) -> Callable[[int, int, torch.Generator], Tensor]:
    """A core that holds all points but ``number``, which are of a wide Gaussian."""
    return lambda count, dim, random: torch.cat(
        [gaussian(width)(count - number, dim, random), gaussian(spread)(number, dim, random)]
    )


def line(length: float, width: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        points = gaussian(width)(count, dim, random)
        points[:, 0] += length * torch.rand(count, generator=random, dtype=torch.float64)
        return points

    return make


def heavy_tail(scale: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        radius = (
            torch.rand(count, 1, generator=random, dtype=torch.float64).clamp_min(1e-3).pow(-0.5)
        )
        return scale * radius * gaussian(1.0)(count, dim, random)

    return make


def copies(each: int, spread: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: gaussian(spread)(-(-count // each), dim, random).repeat(
        each, 1
    )[:count]


def grid(step: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: step * gaussian(2.0)(count, dim, random).round()


CLOUDS: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    **{f"Gaussian of spread {s:g}": gaussian(s) for s in SPREADS},
    **{f"cube of side {s:g}": uniform(s) for s in (0.01, 0.3, 1.0, 3.0, 10.0, 30.0)},
    **{f"sphere of radius {r:g}": sphere(r) for r in (0.01, 0.3, 1.0, 3.0, 6.0, 12.0)},
    **{
        f"6 clusters of width {w:g}, spread {s:g}": clusters(6, w, s)
        for w in (0.03, 0.3, 1.0)
        for s in (1.0, 3.0, 10.0, 30.0)
    },
    **{
        f"40 clusters of width {w:g}, spread {s:g}": clusters(40, w, s)
        for w in (0.1, 0.5)
        for s in (3.0, 10.0)
    },
    **{
        f"cluster of width {w:g} with a shell at {r:g}": with_shell(w, r)
        for w in (0.2, 0.5, 1.0)
        for r in (4.0, 8.0, 12.0, 20.0)
    },
    **{
        f"line of length {n:g}, width {w:g}": line(n, w)
        for n in (1.0, 10.0, 100.0)
        for w in (0.01, 0.3)
    },
    **{f"heavy tail of scale {s:g}": heavy_tail(s) for s in (0.03, 0.3, 1.0, 3.0)},
    **{f"{n} copies, spread {s:g}": copies(n, s) for n in (2, 10, 100) for s in (0.1, 1.0, 10.0)},
    **{f"grid of step {s:g}": grid(s) for s in (0.1, 1.0, 4.0)},
}

CORED = {name: make for name, make in CLOUDS.items() if "cluster" in name or "tail" in name} | {
    f"core of width 0.01, {n:,} points of spread {s:g} outside": with_outside(0.01, n, s)
    for n in (50, 500, 5000)
    for s in (3.0, 30.0)
}
"""Clouds of several widths: cores, clusters, shells and heavy tails."""


def measure(name: str, dim: int, device: str) -> Iterator[dict]:
    """Errors of all methods on one cloud; on a GPU also how far it is from the CPU."""
    points = CLOUDS[name](COUNT, dim, torch.Generator().manual_seed(common.SEED + dim))
    values = random_features(len(points), 4, dtype=torch.float64)
    exact = phgcn.global_attention(points, values, decay=1.0, method="exact")
    slope = position_gradient(points, values, "exact")
    moved = [t.to(device) for t in (points, values)]
    for method in METHODS:
        out = phgcn.global_attention(*moved, decay=1.0, method=method)
        found = {
            "cloud": name,
            "dim": dim,
            "method": method,
            "deviation": deviation_error(out.cpu(), exact),
            "cosine": cosine(_gradient(*moved, method).cpu(), slope),
        }
        if device != "cpu":
            here = phgcn.global_attention(points, values, decay=1.0, method=method)
            found["from_cpu"] = float((out.cpu() - here).norm() / here.norm())
        yield found


def many_spreads(dim: int, count: int, spreads: Sequence[float], device: str) -> Iterator[dict]:
    """Errors of ``lattice`` on Gaussian clouds, each with points of its own."""
    for number, spread in enumerate(spreads):
        random = torch.Generator().manual_seed(common.SEED + number)
        points = gaussian(spread)(count, dim, random).float().to(device)
        values = random_features(count, 4).to(device)
        wide = points.double().cpu(), values.double().cpu()
        exact = phgcn.global_attention(*wide, decay=1.0, method="exact")
        out = phgcn.global_attention(points, values, decay=1.0, method="lattice").cpu()
        slope = _gradient(points, values, "lattice").cpu()
        yield {
            "dim": dim,
            "count": count,
            "spread": spread,
            "deviation": deviation_error(out, exact),
            "cosine": cosine(slope, position_gradient(*wide, "exact")),
        }


def _gradient(points: Tensor, values: Tensor, method: str) -> Tensor:
    leaf = points.detach().clone().requires_grad_()
    grad = random_features(len(points), values.size(1), common.SEED + 17, values.dtype).to(
        values.device
    )
    phgcn.global_attention(leaf, values, decay=1.0, method=method).backward(grad)
    return leaf.grad


def core(name: str, dim: int, device: str) -> dict:
    """Error of ``lattice`` on a large cloud with a core, and its time over that of a Gaussian of as
    many points.
    """
    points = (
        CORED[name](CORES, dim, torch.Generator().manual_seed(common.SEED + dim)).float().to(device)
    )
    plain = common.cloud("spread 1", CORES, dim).to(device)
    values = random_features(CORES, 16).to(device)
    asked = torch.randperm(CORES, generator=torch.Generator().manual_seed(common.SEED))[:1000]
    exact = phgcn.global_attention(points, values, decay=1.0, queries=points[asked], method="exact")
    out = phgcn.global_attention(points, values, decay=1.0, method="lattice")[asked]
    seconds = {"cloud": math.inf, "plain": math.inf}
    for number in range(3):
        for key, keys in (("cloud", points), ("plain", plain)):
            if number > 0 and seconds[key] > SLOW:
                continue
            begin = time.process_time()
            _gradient(keys, values, "lattice")
            seconds[key] = min(seconds[key], time.process_time() - begin)
    return {
        "cloud": name,
        "dim": dim,
        "deviation": deviation_error(out, exact),
        "times": seconds["cloud"] / seconds["plain"],
    }


def far_queries(dim: int, spread: float, count: int, device: str) -> dict:
    """Queries far from a cluster of keys with values that vary over it: the error, and the largest
    gradient over the exact.
    """
    random = torch.Generator().manual_seed(common.SEED)
    keys = gaussian(spread)(5000, dim, random).float().to(device)
    distance = 4 + 21 * torch.rand(count, 1, generator=random, dtype=torch.float64)
    asked = (sphere(1.0)(count, dim, random) * distance).float().to(device)
    return {
        "dim": dim,
        "spread": spread,
        "queries": count,
        **query_errors(keys, torch.sin(keys / spread), asked),
    }


def query_errors(keys: Tensor, values: Tensor, asked: Tensor) -> dict:
    """Of each method the error, the largest gradient over the exact one, and the cosine of the
    gradient with that.
    """
    outs, gradients = {}, {}
    for method in ("exact", *METHODS):
        queries = asked.clone().requires_grad_()
        out = phgcn.global_attention(keys, values, decay=1.0, queries=queries, method=method)
        (gradients[method],) = torch.autograd.grad(out.sum(), queries)
        outs[method] = out.detach()
    largest = {method: float(grad.norm(dim=1).max()) for method, grad in gradients.items()}
    return {
        method: {
            "deviation": deviation_error(outs[method], outs["exact"]),
            "gradient": largest[method] / largest["exact"],
            "cosine": cosine(gradients[method], gradients["exact"]),
        }
        for method in METHODS
    }


def errors(dim: int, quick: bool, device: str) -> list[dict]:
    """Errors of all methods on all clouds of one dimension."""
    begin = time.perf_counter()
    rows = [
        row for name in list(CLOUDS)[:: 12 if quick else 1] for row in measure(name, dim, device)
    ]
    summaries = (f"{method} {hostile_summary(rows, method, dim)}" for method in METHODS)
    print(f"D={dim}, {time.perf_counter() - begin:.0f} s:", *summaries, flush=True)
    return rows


def all_errors(dims: Sequence[int], quick: bool, device: str, jobs: int) -> Iterator[list[dict]]:
    """Errors in several dimensions, one after the other, ``jobs`` at a time, each in a process of
    its own.
    """
    if jobs == 1:
        yield from (errors(dim, quick, device) for dim in dims)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(errors, dims, repeat(quick), repeat(device))


def run_part(part: str, quick: bool, device: str) -> list[dict]:
    """Measures one part, of those that are not errors."""
    if part == "spreads":
        count, spreads = (500, MANY_SPREADS[::5]) if quick else (MANY_COUNT, MANY_SPREADS)
        return [r for dim in (1, 2, 3, 4) for r in many_spreads(dim, count, spreads, device)]
    if part == "cores":
        names = list(CORED)[:: 12 if quick else 1]
        return [core(name, dim, device) for dim in (1, 2, 3, 4) for name in names]
    wanted = FAR[:1] if quick else FAR
    return [far_queries(dim, spread, 500 if quick else 20_000, device) for dim, spread in wanted]


# Tables


KEYS = ("deviation", "cosine")


def hostile_summary(rows: list[dict], method: str, dim: int) -> str:
    """Error over all clouds, median, 99th percentile and worst, and the median and worst cosine.

    What is not a number, as where attention is a plain average, is no error.
    """
    some = [r for r in rows if (r["method"], r["dim"]) == (method, dim)]
    if not some:
        return "not run"
    errors, cosines = (
        sorted(r[key] for r in some if r[key] is not None and math.isfinite(r[key])) for key in KEYS
    )
    p99 = errors[math.ceil(0.99 * len(errors)) - 1]
    error = f"{statistics.median(errors):.3f} / {p99:.2f} / {errors[-1]:.2f}"
    return f"{error}, {statistics.median(cosines):.3f} / {cosines[0]:.2f}"


def hostile_table(after: dict) -> list[str]:
    """Errors over hostile clouds by dimension, of many spreads, and of cores."""
    found = after["errors"]["rows"]
    heads = [f"`{m}`" for m in METHODS]
    dims = sorted({r["dim"] for r in found})
    errors = [[str(d), *(hostile_summary(found, m, d) for m in METHODS)] for d in dims]
    count = after["spreads"]["rows"][0]["count"]
    narrow = [f"{dim}" for dim in sorted({r["dim"] for r in after["spreads"]["rows"]})]
    spreads = []
    for name, key, worst in (("error", "deviation", max), ("cosine", "cosine", min)):
        for kind, take in ((f"median {name}", statistics.median), (f"worst {name}", worst)):
            of = [[r[key] for r in after["spreads"]["rows"] if f"{r['dim']}" == d] for d in narrow]
            spreads.append([kind, *(f"{take(some):.3f}" for some in of)])
    cores = []
    for dim in sorted({r["dim"] for r in after["cores"]["rows"]}):
        own = [r for r in after["cores"]["rows"] if r["dim"] == dim]
        of = ([r[key] for r in own] for key in ("deviation", "times"))
        cells = [f"{statistics.median(some):.3g} / {max(some):.3g}" for some in of]
        slow = sum(r["times"] > 4 for r in own)
        cores.append([f"{dim}", f"{len(own)}", *cells, f"{slow}"])
    return [
        f"{origin(after['errors'])}. Error against the deviation, *median / 99th percentile / "
        f"worst*, and *median / worst* "
        "cosine of the gradient:",
        "",
        *table(["D", *heads], errors),
        "",
        f"Gaussians of {len(MANY_SPREADS)} spreads from 1e-5 to 30, {count:,} points in "
        "float32, by `lattice`:",
        "",
        *table(["D", *narrow], spreads),
        "",
        "Clouds of 20,000 points with a core, or of several widths, by `lattice`: error against "
        "the deviation, and processor "
        "time, forward and backward, over that of a Gaussian of spread 1, both *median / worst*:",
        "",
        *table(["D", "clouds", "error", "time", "above 4"], cores),
    ]


SMALL = 0.03
"""Errors below this are small beside those that the ladder was to mend."""


def gate_table(after: dict, before: dict) -> list[str]:
    """On how many hostile clouds `lattice` is as good as the lattice before."""
    then = {(r["dim"], r["cloud"]): r for r in before["errors"]["rows"] if r["method"] == "lattice"}
    now = [r for r in after["errors"]["rows"] if r["method"] == "lattice"]
    rows = []
    for dim in sorted({r["dim"] for r in now}):
        own = [(r, then[dim, r["cloud"]]) for r in now if r["dim"] == dim]
        as_accurate = sum(new["deviation"] <= old["deviation"] for new, old in own)
        or_small = sum(new["deviation"] <= max(old["deviation"], SMALL) for new, old in own)
        worst = max((new for new, _ in own), key=lambda r: r["deviation"])
        cosines = sum(new["cosine"] >= old["cosine"] for new, old in own)
        medians = (statistics.median(r["cosine"] for r in some) for some in zip(*own, strict=True))
        rows.append(
            [
                f"{dim}",
                f"{as_accurate} of {len(own)}",
                f"{or_small}",
                f"{max(old['deviation'] for _, old in own):.3f}",
                f"{worst['deviation']:.3f}, {worst['cloud']}",
                f"{cosines}",
                "{1:.3f} / {0:.3f}".format(*medians),
            ]
        )
    heads = ["D", "as accurate", f"as accurate, or below {SMALL}", "worst before", "worst"]
    lines = table([*heads, "cosine as high", "median cosine before / after"], rows)
    far = _far_table(after["far"], before["far"]) if "far" in after else []
    return [
        f"Before: {origin(before['errors'])}. Now: {origin(after['errors'])}.",
        "",
        *lines,
        *far,
    ]


def _far_table(after: dict, before: dict) -> list[str]:
    then, rows = {(r["dim"], r["spread"]): r for r in before["rows"]}, []
    for r in after["rows"]:
        both = [p for m in METHODS for p in (then[r["dim"], r["spread"]][m], r[m])]
        cells = [f"{p['deviation']:.2f}, {p['gradient']:,.1f}" for p in both]
        rows.append([str(r["dim"]), f"{r['spread']:g}", *cells])
    heads = [f"`{m}`{when}" for m in METHODS for when in (", before", "")]
    return [
        "",
        "Queries at distances from 4 to 25 from 5,000 keys, with values that vary over these: "
        "error against the deviation, and "
        "the largest gradient over the exact one:",
        "",
        *table(["D", "spread of the keys", *heads], rows),
    ]


@measurement(
    quick="two dimensions, one cloud in twelve, small sizes",
    only={"choices": PARTS, "nargs": "*", "help": "these parts only"},
    dims={"type": int, "nargs": "*", "choices": DIMS, "help": "errors in these dimensions only"},
    jobs={"type": int, "default": 1, "help": "dimensions that are measured at the same time"},
    device={"default": "cpu", "help": "where the filter runs"},
)
def hostile(options: argparse.Namespace) -> Iterator[dict]:
    """Errors and gradients of lattices on clouds made to break them."""
    content: dict = {"device": options.device, "count": COUNT}
    if options.only and options.kept is not None and options.kept.exists():
        before = json.loads(options.kept.read_text(encoding="utf-8"))
        content |= {part: before[part] for part in PARTS if part in before}
    dims = options.dims or ((2, 4) if options.quick else DIMS)
    for part in options.only or PARTS:
        content[part] = {"provenance": common.provenance(), "rows": []}
        if part == "errors":
            for rows in all_errors(dims, options.quick, options.device, options.jobs):
                content[part]["rows"] += rows
                yield content
        else:
            content[part]["rows"] = run_part(part, options.quick, options.device)
            print(*content[part]["rows"], sep="\n", flush=True)
        yield content
