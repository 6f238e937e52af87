r"""How fast the filter is, side by side with pydensecrf2, pykeops and the exact sum.

    python benchmarks/lattice.py             # some minutes
    python benchmarks/lattice.py --quick     # small clouds and two rounds, to see that it works

Prints every time, then every ratio beside the mark it should reach; writes ``benchmarks/results/lattice.json``.  Jobs run
in turn, round after round, so that what else the machine does hits all alike; ratios are those of medians.  A forward
includes building the lattice.  Memory and the first call are measured in new processes.  Where other programs keep the
cores busy, set ``OMP_WAIT_POLICY=passive``: threads that wait by spinning take turns with them, some milliseconds each.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import common
import torch
from rich.console import Console

import phgcn
from phgcn.lattice.scheme import named_scheme

DIM = 4
CHANNELS = 17
SPREADS = (1, 3, 10)
LARGE_SPREADS = (1, 10)
MEMORY_CHANNELS = 65
FIRST_CALLS = (1000, 5000)
FIRST_CALL_RUNS = 3


@dataclass(frozen=True)
class Sizes:
    """How many points each part takes."""

    main: int = 200_000
    exact: int = 20_000
    exact_queries: int = 4_000
    large: int = 2_000_000
    large_rounds: int = 2
    memory: int = 1_000_000


QUICK = Sizes(main=20_000, exact=5_000, exact_queries=500, large=100_000, large_rounds=1, memory=50_000)


def inputs(count: int, spread: float, channels: int = CHANNELS) -> tuple[torch.Tensor, torch.Tensor]:
    return common.cloud(f"spread {spread}", count, DIM), common.random_features(count, channels)


# Jobs: each returns the seconds of what is to be timed, or None where that is the whole call


def forward(points, values, method) -> None:
    phgcn.global_attention(points, values, decay=1.0, method=method)


def backward(points, values, method) -> float:
    """The gradient of positions and values; the forward before it is not timed."""
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = phgcn.global_attention(*leaves, decay=1.0, method=method)
    grad = torch.ones_like(out)
    return common.seconds(lambda: torch.autograd.grad(out, leaves, grad))


def exact_rows(points, values, queries: int) -> float:
    """The exact sum for all points, from the time of some of them.  Not normalised: a normalised sum over other points than
    the keys looks for the nearest one first, which the sum over all points does not."""
    asked = points[:queries]
    taken = common.seconds(lambda: phgcn.permutohedral_filter(points, values, decay=1.0, queries=asked, method="exact"))
    return taken * len(points) / queries


def densecrf(points, values) -> float:
    """pydensecrf2 (a Gaussian, width 3): its build and one filter."""
    from pydensecrf.densecrf import DenseCRF

    features, energy = points.T.contiguous().numpy(), values.T.contiguous().numpy()
    crf = DenseCRF(len(points), values.size(1))
    crf.setUnaryEnergy(energy)
    build = common.seconds(lambda: crf.addPairwiseEnergy(features, compat=1.0))
    state = crf.startInference()
    return build + common.seconds(lambda: crf.stepInference(*state))


def keops(points, values) -> None:
    from pykeops.torch import LazyTensor

    rows = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)
    difference = LazyTensor(points[:, None, :]) - LazyTensor(points[None, :, :])
    summed = (-difference.square().sum(dim=-1).sqrt()).exp() @ rows
    summed[:, :-1] / summed[:, -1:]


def peers(sizes: Sizes) -> tuple[dict[str, Callable], dict[str, str]]:
    """The jobs of other packages, and why others cannot run."""
    jobs, missing = {}, {}
    tried = {f"pydensecrf2, spread {s}": partial(densecrf, *inputs(sizes.main, s)) for s in SPREADS}
    tried[f"pykeops, N={sizes.exact:,}"] = partial(keops, *inputs(sizes.exact, 1))
    for name, job in tried.items():
        try:
            job()
            jobs[name] = job
        except Exception as error:  # a compiler or a package that is missing, or anything it trips over
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return jobs, missing


def own_jobs(sizes: Sizes) -> dict[str, Callable]:
    jobs: dict[str, Callable] = {}
    for spread in SPREADS:
        given = inputs(sizes.main, spread)
        for method in ("separable", "lattice"):
            jobs[f"{method}, spread {spread}"] = partial(forward, *given, method)
            jobs[f"{method} backward, spread {spread}"] = partial(backward, *given, method)
    given = inputs(sizes.exact, 1)
    jobs[f"exact, N={sizes.exact:,}"] = partial(forward, *given, "exact")
    jobs[f"exact, N={sizes.main:,}"] = partial(exact_rows, *inputs(sizes.main, 1), sizes.exact_queries)
    for spread in SPREADS:
        jobs[f"lattice, N={sizes.exact:,}, spread {spread}"] = partial(forward, *inputs(sizes.exact, spread), "lattice")
    return jobs


def large_jobs(sizes: Sizes) -> dict[str, Callable]:
    counts = (sizes.main, sizes.large)
    return {
        f"lattice, N={count:,}, spread {spread}, per size": partial(forward, *inputs(count, spread), "lattice")
        for spread in LARGE_SPREADS
        for count in counts
    }


# In new processes


def in_new_process(function: Callable, *arguments: object) -> float:
    """Runs a function of this module in a Python of its own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def first_call(count: int) -> float:
    """The seconds of a process's first call; imports of torch and phgcn came before."""
    points, values = inputs(count, 1)
    return common.seconds(lambda: forward(points, values, "auto"))


def extra_memory(count: int) -> float:
    """The most memory that a call holds beyond what was there before, its output included, in sizes of the values."""
    for method in ("lattice", replace(named_scheme("lattice", DIM), near_field=0)):
        forward(*inputs(5000, 1, MEMORY_CHANNELS), method)  # loads the kernels
    points, values = inputs(count, 1, MEMORY_CHANNELS)
    gc.collect()
    reset_peak()
    before = memory("VmRSS")
    forward(points, values, "lattice")
    return (memory("VmHWM") - before) / (values.numel() * values.element_size())


def reset_peak() -> None:
    """Makes the peak start anew where Linux lets us; else it is that of the whole process, and an upper bound."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak of memory cannot be reset here: taking that of the whole process", file=sys.stderr)


def memory(field: str) -> int:
    """Bytes in memory now (VmRSS) or at most (VmHWM)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))
    except (OSError, StopIteration):
        import psutil

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return peak if field == "VmHWM" else psutil.Process().memory_info().rss


# Ratios and their marks


def marks(times: dict[str, dict], sizes: Sizes, memory_ratio: float, first: dict[int, float]) -> list[dict]:
    """Every ratio, the mark it should reach, and whether it does; those of jobs that could not run are left out."""
    found: list[dict] = []

    def ratio(text: str, over: str, under: str, mark: float, at_least: bool = False, factor: float = 1.0) -> None:
        if over in times and under in times:
            value = factor * times[over]["median"] / times[under]["median"]
            add(text, value, mark, at_least)

    def add(text: str, value: float, mark: float, at_least: bool = False, unit: str = "x") -> None:
        reached = value >= mark if at_least else value <= mark
        found.append({"what": text, "value": value, "mark": mark, "at_least": at_least, "unit": unit, "reached": reached})

    for method, least in (("separable", (4.0, 4.0, 4.0)), ("lattice", (2.5, 0.5, 3.0))):
        for spread, mark in zip(SPREADS, least, strict=True):
            crf, own = f"pydensecrf2, spread {spread}", f"{method}, spread {spread}"
            ratio(f"{method} faster than pydensecrf2, spread {spread}", crf, own, mark, at_least=True)
    for spread in SPREADS:
        small, n = f"lattice, N={sizes.exact:,}, spread {spread}", f"N={sizes.exact:,}"
        ratio(f"lattice faster than exact, {n}, spread {spread}", f"exact, {n}", small, 3.0, at_least=True)
    for spread in SPREADS:
        exact, n = f"exact, N={sizes.main:,}", f"N={sizes.main:,}"
        ratio(f"lattice faster than exact, {n}, spread {spread}", exact, f"lattice, spread {spread}", 20.0, at_least=True)
    for method in ("separable", "lattice"):
        for spread in SPREADS:
            own = f"{method}, spread {spread}"
            ratio(f"{method} backward / forward, spread {spread}", f"{method} backward, spread {spread}", own, 2.0)
    for spread in LARGE_SPREADS:
        large, main = (f"lattice, N={count:,}, spread {spread}, per size" for count in (sizes.large, sizes.main))
        text = f"lattice per point, N={sizes.large:,} / N={sizes.main:,}, spread {spread}"
        ratio(text, large, main, 1.5, factor=sizes.main / sizes.large)
    add(f"extra memory / values, N={sizes.memory:,}, C={MEMORY_CHANNELS}, spread 1", memory_ratio, 4.0)
    for count, taken in first.items():
        add(f"first call in a new process, N={count:,}", taken, 2.0, unit=" s")
    return found


def report(console: Console, times: dict[str, dict], found: list[dict], missing: dict[str, str], sizes: Sizes) -> None:
    caption = f"exact, N={sizes.main:,}: the time of {sizes.exact_queries:,} points, times N over their number"
    common.print_times(console, f"Times: float32, D={DIM}, C={CHANNELS}, N={sizes.main:,} unless said", times, caption)
    common.print_marks(console, found)
    for name, why in missing.items():
        console.print(f"{name} did not run: {why}", markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small clouds and few rounds; the marks mean nothing then")
    parser.add_argument("--rounds", type=int, default=None, help="how often each job runs (default: 5, quick: 2)")
    parser.add_argument("--out", default=common.RESULTS / "lattice.json", help="where the JSON goes")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    rounds = options.rounds or (2 if options.quick else 5)
    console = common.wide_console()
    begin = time.perf_counter()
    with console.status("compiling kernels") as status:
        jobs, missing = peers(sizes)
        times = common.interleaved({**own_jobs(sizes), **jobs}, rounds, status.update)
        times |= common.interleaved(large_jobs(sizes), min(rounds, sizes.large_rounds), status.update)
        status.update("memory, in a new process")
        memory_ratio = in_new_process(extra_memory, sizes.memory)
        first = {}
        for count in FIRST_CALLS:
            status.update(f"first call, N={count:,}")
            first[count] = statistics.median([in_new_process(first_call, count) for _ in range(1 + FIRST_CALL_RUNS)][1:])
    found = marks(times, sizes, memory_ratio, first)
    report(console, times, found, missing, sizes)
    content = {"provenance": common.provenance(), "quick": options.quick, "rounds": rounds, "sizes": vars(sizes)}
    common.write_json(options.out, {**content, "marks": found, "times": times, "missing": missing})
    reached = sum(m["reached"] for m in found)
    console.print(f"{reached} of {len(found)} marks reached, in {time.perf_counter() - begin:.0f} s; written to {options.out}")


if __name__ == "__main__":
    main()
