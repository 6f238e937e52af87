r"""How the filter's time on the CPU falls with the number of threads.

A job is a forward or a backward of one method in one cloud; the forward builds the lattice, the
backward finds it in the plan.  Numbers of threads take turns, round after round, and of all rounds
the fastest counts.  Beside it, what the machine can do: a large copy, and the exact sum, which only
computes.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import torch
from lattice import CHANNELS, SPREADS, backward, forward, inputs
from registry import measurement

from phgcn_lab.markdown import digits, machine, origin, table

METHODS = ("lattice", "separable")
MARK = 5.0
"""How many times faster 16 threads should be than 2."""
COUNT, QUICK_COUNT, EXACT_COUNT, COPY_BYTES = 200_000, 20_000, 6_000, 2**28


def jobs_of(count: int) -> dict[str, Callable[[], object]]:
    jobs: dict[str, Callable[[], object]] = {}
    for spread in SPREADS:
        given = inputs(count, spread)
        for method in METHODS:
            jobs[f"{method}, spread {spread}"] = partial(forward, *given, method)
            jobs[f"{method} backward, spread {spread}"] = partial(backward, *given, method)
    return jobs


def limits_of() -> dict[str, Callable[[], object]]:
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    return {
        f"a copy of {COPY_BYTES // 2**20} MiB": lambda: target.copy_(source),
        f"exact sum, N={EXACT_COUNT:,}": partial(forward, *inputs(EXACT_COUNT, 1), "exact"),
    }


def fastest(job: Callable[[], object], threads: list[int], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(map(str, threads), float("inf"))
    for number in range(rounds + 1):  # the first warms up
        for count in threads:
            torch.set_num_threads(count)
            begin = time.perf_counter()
            own = job()  # a job that returns a float has timed itself
            taken = own if isinstance(own, float) else time.perf_counter() - begin
            ms = 1000 * taken
            best[str(count)] = min(best[str(count)], ms if number else float("inf"))
    return best


def rows_of(measured: dict) -> list[str]:
    at, threads = measured["provenance"], [str(number) for number in measured["threads"]]
    few, many = "2" if "2" in threads else threads[0], threads[-1]
    rows = [
        [job, *(digits(ms[n]) for n in threads), f"{ms[few] / ms[many]:.1f}x"]
        for job, ms in measured["times"].items()
    ]
    reached = sum(ms[few] / ms[many] >= MARK for ms in measured["times"].values())
    limits = [f"{job} {ms[few] / ms[many]:.1f}x" for job, ms in measured["limits_ms"].items()]
    where = f"{at['cores']} cores ({machine(at)}), {origin(measured)}"
    how = f"the fastest of {measured['rounds']} calls, ms, N = {measured['count']:,}"
    lines = table(["", *(f"{number} threads" for number in threads), f"{few} to {many}"], rows)
    marks = f"Mark: {MARK:g}x from 2 to 16; {reached} of {len(rows)} reach it."
    gains = f"What this machine gains on other work: {', '.join(limits)}."
    return [f"{where}, {how}:", "", *lines, "", marks, "", gains]


@measurement(
    tables=rows_of,
    quick="a small cloud",
    threads={"type": int, "nargs": "+", "help": "numbers of threads, ascending"},
)
def threads(options: argparse.Namespace) -> dict:
    """Speed of the filter on the CPU by number of threads."""
    cores = len(os.sched_getaffinity(0))
    numbers = options.threads or [number for number in (1, 2, 4, 8, 16) if number <= cores]
    count, rounds = (QUICK_COUNT, 1) if options.quick else (COUNT, 3)
    timed = partial(fastest, threads=numbers, rounds=rounds)
    times = {name: timed(job) for name, job in jobs_of(count).items()}
    limits = {name: timed(job) for name, job in limits_of().items()}
    about = {"count": count, "channels": CHANNELS, "rounds": rounds, "threads": numbers}
    return {**about, "times": times, "limits_ms": limits}
