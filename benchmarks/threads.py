r"""How the filter's time on the CPU falls with the number of threads, stage by stage.

    python benchmarks/threads.py                      # 1, 2, 4, ... threads up to the number of cores; minutes
    python benchmarks/threads.py --threads 2 16       # these alone
    python benchmarks/threads.py --quick              # a small cloud, to see that it works

Prints a table of each job, threads -> ms; writes ``benchmarks/results/threads.json``.  A job is a forward or a backward of one
method in one cloud; the forward builds the lattice, the backward finds it in the plan.  Numbers of threads take turns, round
after round, and of all rounds the fastest counts.  A stage is a file of the backend (``benchmarks/stage_timer.py``); what is
outside of its kernels, NumPy and Python, runs on one thread.  Beside it, what the machine can do: a large copy, the exact sum,
which only computes, and a short task of the thread pool.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import common
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from stage_timer import StageTimer
from stages import CHANNELS, COUNT, DIM, METHODS, QUICK_COUNT, SPREADS

import phgcn
from phgcn.lattice.numba.sorting import count_runs
from phgcn.runtime.threads import RANGES_PER_THREAD, run_rows

ROUNDS = 3
SHARED = ("phgcn.runtime.graphs", "phgcn.runtime.rows", "phgcn.runtime.threads")
POOL = "threads"
"""The stage of the thread pool: what it runs is the kernels of the stage that calls it."""

EXACT_COUNT = 6_000
COPY_BYTES = 2**28
SHORT_TASK = 2**18
"""Keys whose runs are counted in a short task."""
TRIALS = 9

Job = Callable[[], dict]


def timed(call: Callable[[], object]) -> dict:
    """Milliseconds of a call, of each stage with its kernels, and of all that is outside of kernels."""
    with StageTimer("phgcn.lattice.numba", SHARED) as timer:
        whole = 1000 * common.seconds(call)
    own = timer.stages()
    kernels: dict[str, float] = defaultdict(float)
    for part in timer.calls:
        if part.stage == POOL and part.outer is not None:
            kernels[part.outer.stage] += 1000 * (part.end - part.begin)
    stages = {stage: ms + kernels[stage] for stage, ms in own.items() if stage != POOL}
    return {"ms": whole, "outside_kernels_ms": whole - own[POOL], "stages_ms": stages}


def forward(points: torch.Tensor, values: torch.Tensor, method: str) -> dict:
    return timed(lambda: phgcn.global_attention(points, values, decay=1.0, method=method))


def backward(points: torch.Tensor, values: torch.Tensor, method: str) -> dict:
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = phgcn.global_attention(*leaves, decay=1.0, method=method)
    grad = torch.ones_like(out)
    return timed(lambda: torch.autograd.grad(out, leaves, grad))


def jobs_of(count: int, spread: float) -> dict[str, Job]:
    points, values = common.cloud(f"spread {spread}", count, DIM), common.random_features(count, CHANNELS)
    jobs: dict[str, Job] = {}
    for method in METHODS:
        jobs[f"{method}, spread {spread}"] = lambda method=method: forward(points, values, method)
        jobs[f"{method} backward, spread {spread}"] = lambda method=method: backward(points, values, method)
    return jobs


def measure(job: Job, threads: list[int], rounds: int) -> dict[str, dict]:
    """The fastest of several rounds with each number of threads, and the times of all."""
    runs: dict[int, list[dict]] = {number: [] for number in threads}
    torch.set_num_threads(max(threads))
    job()
    for _ in range(rounds):
        for number in threads:
            torch.set_num_threads(number)
            runs[number].append(job())
    return {
        str(number): {**min(some, key=lambda run: run["ms"]), "all_ms": [run["ms"] for run in some]}
        for number, some in runs.items()
    }


def count_in_parts(keys: np.ndarray, parts: int) -> None:
    """A short task of the thread pool, of so many ranges."""
    run_rows(count_runs, parts, 1, keys, -(-len(keys) // parts), np.empty(parts, np.int64))


def machine_limits(threads: list[int]) -> dict[str, dict[str, float]]:
    """Milliseconds of a copy, of an exact sum and of a short task, by number of threads: the fastest of several; of the task
    the median."""
    source = torch.ones(COPY_BYTES // 4)
    target, keys = torch.empty_like(source), np.zeros(SHORT_TASK, np.uint64)
    points, values = common.cloud("spread 1", EXACT_COUNT, DIM), common.random_features(EXACT_COUNT, CHANNELS)

    def sum_exactly() -> None:
        phgcn.global_attention(points, values, decay=1.0, method="exact")

    limits: dict[str, dict[str, float]] = defaultdict(dict)
    for number in threads:
        torch.set_num_threads(number)
        sum_exactly()
        short_tasks = [common.seconds(partial(count_in_parts, keys, number * RANGES_PER_THREAD)) for _ in range(50 * TRIALS)]
        copies = [common.seconds(lambda: target.copy_(source)) for _ in range(TRIALS)]
        sums = [common.seconds(sum_exactly) for _ in range(TRIALS)]
        limits[f"a copy of {COPY_BYTES // 2**20} MiB"][str(number)] = 1000 * min(copies)
        limits[f"exact sum, N={EXACT_COUNT:,}"][str(number)] = 1000 * min(sums)
        limits[f"counting runs of {SHORT_TASK:,} keys"][str(number)] = 1000 * statistics.median(short_tasks)
    return limits


def table_of(times: dict[str, dict[str, dict]], threads: list[int]) -> Table:
    table = Table(title="ms, and in brackets those outside of kernels")
    for heading in ("job", *(f"{number} threads" for number in threads), "first / last"):
        table.add_column(heading, justify="left" if heading == "job" else "right")
    for name, runs in times.items():
        cells = [f"{run['ms']:.1f} ({run['outside_kernels_ms']:.1f})" for run in runs.values()]
        table.add_row(name, *cells, f"{runs[str(threads[0])]['ms'] / runs[str(threads[-1])]['ms']:.2f}x")
    return table


def stage_table_of(name: str, runs: dict[str, dict]) -> Table:
    table, first = Table(title=f"{name}: ms of stages"), next(iter(runs.values()))
    for heading in ("stage", *(f"{number} threads" for number in runs)):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for stage in sorted(first["stages_ms"], key=lambda stage: -first["stages_ms"][stage]):
        table.add_row(stage, *(f"{run['stages_ms'][stage]:.1f}" for run in runs.values()))
    return table


def default_threads() -> list[int]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [number for number in (1, 2, 4, 8, 16) if number <= cores]


def report(console: Console, times: dict[str, dict[str, dict]], threads: list[int]) -> None:
    for name, runs in times.items():
        console.print(stage_table_of(name, runs))
    console.print(table_of(times, threads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small cloud")
    parser.add_argument("--threads", type=int, nargs="+", default=default_threads(), help="numbers of threads, ascending")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"calls to take the fastest of (default: {ROUNDS})")
    parser.add_argument("--out", default=common.RESULTS / "threads.json", help="where the JSON goes")
    options = parser.parse_args()
    count, about = QUICK_COUNT if options.quick else COUNT, common.provenance()
    console, times = common.wide_console(), {}
    for spread in SPREADS:
        for name, job in jobs_of(count, spread).items():
            times[name] = measure(job, options.threads, options.rounds)
            console.print(f"{name}: " + ", ".join(f"{run['ms']:.1f}" for run in times[name].values()) + " ms")
    report(console, times, options.threads)
    limits = machine_limits(options.threads)
    for name, found in limits.items():
        console.print(f"{name}: " + ", ".join(f"{ms:.3f}" for ms in found.values()) + " ms")
    content = {"provenance": about, "count": count, "channels": CHANNELS, "dim": DIM, "rounds": options.rounds}
    common.write_json(options.out, {**content, "threads": options.threads, "limits_ms": limits, "times": times})
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
