r"""Attacks the filter with clouds of many kinds: error, gradient and time against the exact sum.

    python benchmarks/hostile.py                     # all parts, D = 1 to 8, some minutes
    python benchmarks/hostile.py --only growth       # one part; the others in the file stay as they are
    python benchmarks/hostile.py --quick             # few clouds, to see that it works
    python benchmarks/hostile.py --device cuda       # also how far the GPU is from the CPU
    python benchmarks/hostile.py --dims 2 4 --jobs 2 # errors in these dimensions, each in a process of its own
    python benchmarks/hostile.py --out before.json   # e.g. of an earlier state, with its own src in PYTHONPATH

Parts: ``errors``, for each dimension the error against the deviation from the mean over all clouds, and the cosine of the
gradient of the positions; ``spreads``, the same of Gaussians of many spreads, by ``lattice``; ``tails``, the share that lone
points put on a heavy cluster far away; ``far``, errors and gradients of queries far from all keys; ``between``, of queries
anywhere between clusters of keys; ``growth``, the time of clouds that grow, and of twice the points over that of the points.
Writes ``benchmarks/results/hostile.json``, on a GPU ``hostile_gpu.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, repeat
from pathlib import Path

import common
import torch
from common import cosine, deviation_error, position_gradient, random_features
from hostile_tables import hostile_summary
from torch import Tensor

import phgcn

COUNT = 2000
DIMS = range(1, 9)
METHODS = ("lattice", "lattice-fine")
SPREADS = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
TIMED = (20_000, 40_000, 80_000)
PARTS = ("errors", "spreads", "tails", "far", "between", "growth")
MANY_SPREADS = {4: torch.logspace(-4, math.log10(30), 40).tolist()} | {
    dim: torch.logspace(-4, math.log10(0.5), 8).tolist() for dim in (5, 6, 7, 8)
}
"""By dimension, spreads of Gaussians: in four all, in more those of narrow clouds."""
TAILS = [(dim, distance) for dim in (2, 3, 4, 6, 8) for distance in (8.0, 10.0, 12.0)] + [(3, 20.0)]
"""Dimension, and distance of lone points from a cluster of width 0.2 that holds nearly all."""

FAR = [(dim, spread) for dim in (2, 3, 4, 6, 8) for spread in (0.3, 1.0, 2.0)]
"""Dimension, and spread of the keys, for far queries."""

BETWEEN = (2, 3, 4, 6, 8)
"""Dimensions of queries between clusters."""


def gaussian(spread: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: spread * torch.randn(count, dim, generator=random, dtype=torch.float64)


def uniform(side: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: side * torch.rand(count, dim, generator=random, dtype=torch.float64)


def sphere(radius: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        points = torch.randn(count, dim, generator=random, dtype=torch.float64)
        return radius * points / points.norm(dim=1, keepdim=True)

    return make


def clusters(number: int, width: float, spread: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        centres = gaussian(spread)(number, dim, random)
        return centres[torch.randint(number, (count,), generator=random)] + gaussian(width)(count, dim, random)

    return make


def with_shell(width: float, radius: float) -> Callable[[int, int, torch.Generator], Tensor]:
    """A cluster that holds most points, and a shell around it."""
    return lambda count, dim, random: torch.cat(
        [gaussian(width)(count - count // 10, dim, random), sphere(radius)(count // 10, dim, random)]
    )


def line(length: float, width: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        points = gaussian(width)(count, dim, random)
        points[:, 0] += length * torch.rand(count, generator=random, dtype=torch.float64)
        return points

    return make


def heavy_tail(scale: float) -> Callable[[int, int, torch.Generator], Tensor]:
    def make(count: int, dim: int, random: torch.Generator) -> Tensor:
        radius = torch.rand(count, 1, generator=random, dtype=torch.float64).clamp_min(1e-3).pow(-0.5)
        return scale * radius * gaussian(1.0)(count, dim, random)

    return make


def copies(each: int, spread: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: gaussian(spread)(-(-count // each), dim, random).repeat(each, 1)[:count]


def grid(step: float) -> Callable[[int, int, torch.Generator], Tensor]:
    return lambda count, dim, random: step * gaussian(2.0)(count, dim, random).round()


CLOUDS: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    **{f"Gaussian of spread {s:g}": gaussian(s) for s in SPREADS},
    **{f"cube of side {s:g}": uniform(s) for s in (0.01, 0.3, 1.0, 3.0, 10.0, 30.0)},
    **{f"sphere of radius {r:g}": sphere(r) for r in (0.01, 0.3, 1.0, 3.0, 6.0, 12.0)},
    **{f"6 clusters of width {w:g}, spread {s:g}": clusters(6, w, s) for w in (0.03, 0.3, 1.0) for s in (1.0, 3.0, 10.0, 30.0)},
    **{f"40 clusters of width {w:g}, spread {s:g}": clusters(40, w, s) for w in (0.1, 0.5) for s in (3.0, 10.0)},
    **{
        f"cluster of width {w:g} with a shell at {r:g}": with_shell(w, r)
        for w in (0.2, 0.5, 1.0)
        for r in (4.0, 8.0, 12.0, 20.0)
    },
    **{f"line of length {n:g}, width {w:g}": line(n, w) for n in (1.0, 10.0, 100.0) for w in (0.01, 0.3)},
    **{f"heavy tail of scale {s:g}": heavy_tail(s) for s in (0.03, 0.3, 1.0, 3.0)},
    **{f"{n} copies, spread {s:g}": copies(n, s) for n in (2, 10, 100) for s in (0.1, 1.0, 10.0)},
    **{f"grid of step {s:g}": grid(s) for s in (0.1, 1.0, 4.0)},
}

GROWING: dict[str, tuple[int, Callable[[int, int, torch.Generator], Tensor]]] = {
    "D=4, spread 1": (4, gaussian(1.0)),
    "D=4, spread 10": (4, gaussian(10.0)),
    "D=6, first four coordinates 0": (
        6,
        lambda n, d, g: torch.cat([torch.zeros(n, 4).double(), gaussian(100.0)(n, 2, g)], dim=1),
    ),
    "D=6, last four coordinates 0": (
        6,
        lambda n, d, g: torch.cat([gaussian(100.0)(n, 2, g), torch.zeros(n, 4).double()], dim=1),
    ),
    "D=7, spread 5": (7, gaussian(5.0)),
    "D=4, collapsed": (4, gaussian(1e-3)),
    "D=4, cluster and outliers": (4, with_shell(0.1, 30.0)),
}


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
        points = gaussian(spread)(count, dim, torch.Generator().manual_seed(common.SEED + number))
        values = random_features(count, 4, dtype=torch.float64)
        exact = phgcn.global_attention(points, values, decay=1.0, method="exact")
        out = phgcn.global_attention(points.to(device), values.to(device), decay=1.0, method="lattice").cpu()
        slope = _gradient(points.to(device), values.to(device), "lattice").cpu()
        yield {
            "dim": dim,
            "count": count,
            "spread": spread,
            "deviation": deviation_error(out, exact),
            "cosine": cosine(slope, position_gradient(points, values, "exact")),
        }


def _gradient(points: Tensor, values: Tensor, method: str) -> Tensor:
    leaf = points.detach().clone().requires_grad_()
    grad = random_features(len(points), values.size(1), common.SEED + 17, values.dtype).to(values.device)
    phgcn.global_attention(leaf, values, decay=1.0, method=method).backward(grad)
    return leaf.grad


def growth(name: str, sizes: tuple[int, ...], device: str) -> dict:
    """The time of clouds of growing size, the better of two calls, and the largest ratio of one to the one before.

    On the CPU the time that all cores worked: it does not depend on what else the machine does.
    """
    clock = time.process_time if device == "cpu" else time.perf_counter
    dim, make = GROWING[name]
    times = []
    for count in sizes:
        points = make(count, dim, torch.Generator().manual_seed(common.SEED)).float().to(device)
        values = random_features(count, 4).to(device)

        def call(points: Tensor = points, values: Tensor = values) -> None:
            phgcn.global_attention(points, values, decay=1.0, method="lattice")
            if device != "cpu":
                torch.cuda.synchronize()

        best = math.inf
        for _ in range(2):
            begin = clock()
            call()
            best = min(best, clock() - begin)
        times.append(best)
    return {
        "cloud": name,
        "sizes": list(sizes),
        "seconds": times,
        "per_doubling": max(b / a for a, b in pairwise(times)),
    }


def tail(dim: int, distance: float, count: int, device: str) -> Iterator[dict]:
    """The share that lone points put on the cluster: exact, and by each method."""
    random = torch.Generator().manual_seed(common.SEED)
    lone = 100
    points = torch.cat([gaussian(0.2)(count - lone, dim, random), sphere(distance)(lone, dim, random)]).float().to(device)
    in_cluster = (torch.arange(count) < count - lone).float().unsqueeze(1).to(device)
    exact = phgcn.global_attention(points, in_cluster, decay=1.0, queries=points[-lone:], method="exact")
    for method in METHODS:
        share = phgcn.global_attention(points, in_cluster, decay=1.0, method=method)[-lone:]
        about = {"dim": dim, "distance": distance, "count": count, "method": method}
        off = share - exact
        yield {
            **about,
            "exact": float(exact.mean()),
            "share": float(share.mean()),
            "off": float(off.square().mean().sqrt()),
            "most_above": float(off.max()),
        }


def far_queries(dim: int, spread: float, count: int, device: str) -> dict:
    """Queries far from a cluster of keys with values that vary over it: the error, and the largest gradient over the exact."""
    random = torch.Generator().manual_seed(common.SEED)
    keys = gaussian(spread)(5000, dim, random).float().to(device)
    distance = 4 + 21 * torch.rand(count, 1, generator=random, dtype=torch.float64)
    asked = (sphere(1.0)(count, dim, random) * distance).float().to(device)
    return {"dim": dim, "spread": spread, "queries": count, **query_errors(keys, torch.sin(keys / spread), asked)}


def queries_between(dim: int, count: int, device: str) -> dict:
    """Queries anywhere in a cube that has clusters of 4,000, 800 and 200 keys in two corners and in the middle."""
    random = torch.Generator().manual_seed(common.SEED)
    parts = gaussian(0.3)(4000, dim, random) + 10, gaussian(0.3)(800, dim, random) - 10, gaussian(0.5)(200, dim, random)
    keys = torch.cat(parts).float().to(device)
    values = torch.sin(keys) + random_features(len(keys), dim).to(device)
    asked = (uniform(24.0)(count, dim, random) - 12).float().to(device)
    return {"dim": dim, "queries": count, **query_errors(keys, values, asked)}


def query_errors(keys: Tensor, values: Tensor, asked: Tensor) -> dict:
    """Of each method the error, the largest gradient over the exact one, and the cosine of the gradient with that."""
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
    rows = [row for name in list(CLOUDS)[:: 12 if quick else 1] for row in measure(name, dim, device)]
    summaries = (f"{method} {hostile_summary(rows, method, dim)}" for method in METHODS)
    print(f"D={dim}, {time.perf_counter() - begin:.0f} s:", *summaries, flush=True)
    return rows


def all_errors(dims: Sequence[int], quick: bool, device: str, jobs: int) -> Iterator[list[dict]]:
    """Errors in several dimensions, one after the other, ``jobs`` at a time, each in a process of its own."""
    if jobs == 1:
        yield from (errors(dim, quick, device) for dim in dims)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(errors, dims, repeat(quick), repeat(device))


def run_part(part: str, quick: bool, device: str) -> list[dict]:
    """Measures one part, of those that are not errors."""
    if part == "spreads":
        many = [(dim, count, spreads) for dim, spreads in MANY_SPREADS.items() for count in (2000, 6000)]
        wanted = [(4, 500, MANY_SPREADS[4][::13])] if quick else many
        return [row for dim, count, spreads in wanted for row in many_spreads(dim, count, spreads, device)]
    if part == "tails":
        count = 2000 if quick else 200_000
        return [row for dim, distance in TAILS[: 1 if quick else None] for row in tail(dim, distance, count, device)]
    if part == "far":
        wanted = FAR[:1] if quick else FAR
        return [far_queries(dim, spread, 500 if quick else 20_000, device) for dim, spread in wanted]
    if part == "between":
        return [queries_between(dim, 500 if quick else 3000, device) for dim in BETWEEN[: 1 if quick else None]]
    sizes = (1000, 2000) if quick else TIMED
    return [growth(name, sizes, device) for name in (list(GROWING)[:2] if quick else GROWING)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two dimensions, one cloud in twelve, small sizes")
    parser.add_argument("--device", default="cpu", help="where the filter runs")
    parser.add_argument("--only", choices=PARTS, nargs="*", help="these parts only")
    parser.add_argument("--dims", type=int, nargs="*", choices=DIMS, help="errors in these dimensions only")
    parser.add_argument("--jobs", type=int, default=1, help="dimensions whose errors are measured at the same time")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args()
    out = options.out or common.RESULTS / ("hostile.json" if options.device == "cpu" else "hostile_gpu.json")
    content = json.loads(out.read_text()) if options.only and out.exists() else {}
    content |= {"device": options.device, "quick": options.quick, "count": COUNT}
    dims = options.dims or ((2, 4) if options.quick else DIMS)
    for part in options.only or PARTS:
        content[part] = {"provenance": common.provenance(), "rows": []}
        if part == "errors":
            for rows in all_errors(dims, options.quick, options.device, options.jobs):
                content[part]["rows"] += rows
                common.write_json(out, content)
        else:
            content[part]["rows"] = run_part(part, options.quick, options.device)
            print(*content[part]["rows"], sep="\n", flush=True)
        common.write_json(out, content)


if __name__ == "__main__":
    main()
