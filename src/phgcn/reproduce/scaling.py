r"""How time and memory of attention grow with the number of points: the paper's claim is that the lattice is linear.

Every method runs on the same clouds, in turn, round after round, so that what else the machine does hits all alike.  A
method is not taken to sizes at which one call would take longer than :attr:`Effort.longest` seconds.  Memory is what a forward
with gradients holds at most beyond its input; on the CPU each method and cloud has a process of its own for that.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from ..devices import check_device, device_name
from ..files import read_json, write_json
from ..provenance import provenance
from . import scaling_report
from .peak import begin_peak, peak_bytes
from .scaling_jobs import METHODS, Method, available, cloud, features

Report = Callable[[str, float], None]
"""Takes what is measured, and which share of everything is done."""


@dataclass(frozen=True)
class Effort:
    """What is measured.

    Args:
        sizes (tuple): Numbers of points, ascending.
        clouds (tuple): Names of :func:`phgcn.reproduce.scaling_jobs.cloud`.
        rounds (int): How often each call is timed.
        longest (float): Seconds that a single call may take.
        patience (float): Seconds that all rounds on one cloud may take; with less, rounds are left out.
        dim (int): The dimension of the points. (default: :obj:`4`)
        channels (int): Those of the values. (default: :obj:`64`)
    """

    sizes: tuple[int, ...]
    clouds: tuple[str, ...]
    rounds: int
    longest: float
    patience: float
    dim: int = 4
    channels: int = 64

    def key(self) -> dict[str, Any]:
        """Returns what a measurement on one cloud depends on."""
        return {name: getattr(self, name) for name in ("rounds", "longest", "patience", "dim", "channels")}


SEED = 0
SIZES = tuple(factor * 10**power for power in range(3, 8) for factor in (1, 3))
CLOUDS = ("spread 1", "spread 10", "clusters")


def full(device: str) -> Effort:
    """Returns the full effort: to a million points on the CPU, ten million on a GPU."""
    if torch.device(device).type == "cuda":
        return Effort(SIZES[:9], CLOUDS, rounds=3, longest=1.5, patience=2.0)
    return Effort(SIZES[:7], CLOUDS, rounds=5, longest=20.0, patience=60.0)


def quick(device: str) -> Effort:
    if torch.device(device).type == "cuda":
        return Effort(SIZES[:5], CLOUDS, rounds=3, longest=0.5, patience=2.0)
    return Effort(SIZES[:4], CLOUDS, rounds=3, longest=2.0, patience=6.0)


def change(effort: Effort, sizes: Sequence[str] | None, clouds: Sequence[str] | None) -> Effort:
    """Replaces sizes and clouds of an effort by those of the command line."""
    if sizes:
        if not all(size.isdecimal() and int(size) > 0 for size in sizes) or list(map(int, sizes)) != sorted(map(int, sizes)):
            raise ValueError(f"sizes is {','.join(sizes)!r}; allowed: positive whole numbers, ascending")
        effort = replace(effort, sizes=tuple(map(int, sizes)))
    if clouds:
        for name in clouds:
            if name not in CLOUDS:
                raise ValueError(f"clouds is {name!r}; allowed: {', '.join(CLOUDS)}")
        effort = replace(effort, clouds=tuple(clouds))
    return effort


def run(effort: Effort, folder: Path, report: Report, *, device: str = "cpu", note: str = "") -> dict[str, Any]:
    """Measures what is not measured yet, then writes ``scaling.json``, ``scaling.md`` and the figure ``scaling`` as PNG and
    SVG, called ``scaling-gpu`` for a GPU.

    Args:
        effort (Effort): What is measured.
        folder (Path): Where results go, and what is measured on one cloud into ``points`` below it.
        report (callable): Called before every measurement.
        device (str, optional): Where. (default: :obj:`"cpu"`)
        note (str, optional): What a reader should know of the machine. (default: none)

    Returns:
        What the JSON holds.
    """
    check_device(device)
    begin = time.perf_counter()
    report("a first call of every method", 0.0)
    methods, missing = available(device, effort.dim, effort.channels)
    last: dict[tuple[str, str, str], tuple[int, float]] = {}  # the last size and time of a method, cloud and kind
    rows: list[dict[str, Any]] = []
    for name, count, share in _places(effort):
        affordable = _affordable(methods, name, count, effort, last)
        new_rows = _at(name, count, affordable, effort, folder / "points", device, partial(_report_at, report, share))
        rows += new_rows
        last |= {(row["method"], name, row["kind"]): (count, row["median"]) for row in new_rows}
    if torch.device(device).type == "cpu":
        memory = _memory(effort, last, folder / "points", report)
        for row in rows:
            if row["kind"] == "step":
                row["bytes"] = memory.get((row["method"], row["cloud"], row["count"]))
    about = {"provenance": provenance(SEED, device), "note": note, "effort": asdict(effort)}
    content = {**about, "missing": missing, "seconds": time.perf_counter() - begin, "rows": rows}
    content["fits"] = scaling_report.fits(rows)
    files = scaling_report.write(folder, "scaling-gpu" if torch.device(device).type == "cuda" else "scaling", content)
    return {**content, "files": [str(file) for file in files]}


def _report_at(report: Report, share: float, text: str) -> None:
    report(text, share)


def _places(effort: Effort) -> Iterator[tuple[str, int, float]]:
    """Yields every cloud and size, and the share of all work that comes before it: about in proportion to the points."""
    whole, done = sum(effort.sizes) * len(effort.clouds), 0
    for name in effort.clouds:
        for count in effort.sizes:
            yield name, count, done / whole
            done += count


def _affordable(
    methods: Sequence[Method], name: str, count: int, effort: Effort, last: dict[tuple[str, str, str], tuple[int, float]]
) -> list[tuple[Method, str]]:
    """Selects the methods and kinds whose call would not take too long, judged by the last size and time of each."""
    affordable = []
    for method in methods:
        if method.any_cloud and name != effort.clouds[0]:
            continue
        for kind in method.kinds:
            previous = last.get((method.name, name, kind))
            if previous is None and count != effort.sizes[0]:
                continue  # too long at a smaller size already
            if previous is None or previous[1] * (count / previous[0]) ** method.power <= effort.longest:
                affordable.append((method, kind))
    return affordable


def _at(
    name: str,
    count: int,
    wanted: Sequence[tuple[Method, str]],
    effort: Effort,
    folder: Path,
    device: str,
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Times all methods on one cloud, in interleaved rounds after a call to warm up; reads the file of times if it is there."""
    path = folder / f"{torch.device(device).type}-{name.replace(' ', '-')}-{count}.json"
    asked = {"jobs": [[method.name, kind] for method, kind in wanted], **effort.key(), "device": device_name(device)}
    if path.is_file():
        recorded = read_json(path)
        if recorded["asked"] != asked:
            raise ValueError(f"{path} was made with other settings ({recorded['asked']}); allowed: the same, or another folder")
        recorded_rows: list[dict[str, Any]] = recorded["rows"]
        return recorded_rows
    if not wanted:
        return []
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    origin = provenance(SEED, device)
    peaks, times = _timed(name, count, wanted, effort, device, report)
    rows = [
        {"method": method, "cloud": name, "count": count, "kind": kind, "median": statistics.median(seconds), "times": seconds,
         "bytes": peaks.get((method, kind)), "commit": origin["commit"], "dirty": origin["dirty"]}
        for (method, kind), seconds in times.items()
    ]  # fmt: skip
    write_json(path, {"asked": asked, "load": load, "provenance": origin, "rows": rows})
    return rows


def _timed(
    name: str,
    count: int,
    wanted: Sequence[tuple[Method, str]],
    effort: Effort,
    device: str,
    report: Callable[[str], None],
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], list[float]]]:
    """Measures the bytes of the first call (on a GPU) and the seconds of all rounds, by method and kind."""
    points, values = cloud(name, count, effort.dim, device), features(count, effort.channels, device)
    peaks: dict[tuple[str, str], int] = {}
    times: dict[tuple[str, str], list[float]] = {}
    begin, about = time.perf_counter(), f"{name}, {count:,} points"
    for method, kind in wanted:
        report(f"{about}, warming up: {method.name}, {kind}")
        start = begin_peak(device) if torch.device(device).type == "cuda" else None
        try:
            method.call(kind, points, values)
        except torch.OutOfMemoryError:  # the size before was the last
            continue
        times[method.name, kind] = []
        if start is not None:
            peaks[method.name, kind] = peak_bytes(device) - start
    for number in range(1, effort.rounds + 1):
        if number > 1 and time.perf_counter() - begin > effort.patience:
            break
        for method, kind in wanted:
            if (method.name, kind) in times:
                report(f"{about}, round {number}: {method.name}, {kind}")
                times[method.name, kind].append(method.call(kind, points, values))
    return peaks, times


# Memory

LEAST_MEASURED = 10_000
"""With fewer points, what the allocator has in reserve hides what is used."""


def _memory(
    effort: Effort, measured: dict[tuple[str, str, str], tuple[int, float]], folder: Path, report: Report
) -> dict[tuple[str, str, int], int]:
    """Measures the bytes on the CPU of every method with gradients, cloud and size that was timed."""
    peaks: dict[tuple[str, str, int], int] = {}
    for (method, name, kind), (largest, _) in measured.items():
        sizes = [count for count in effort.sizes if LEAST_MEASURED <= count <= largest]
        if kind != "step" or not sizes:
            continue
        path = folder / f"memory-{method}-{name.replace(' ', '-')}.json"
        recorded = read_json(path) if path.is_file() else None
        if recorded is None or recorded["sizes"] != sizes:
            report(f"memory of {method}, {name}", 1.0)
            most = in_new_process(method, name, sizes, effort.dim, effort.channels)
            recorded = {"sizes": sizes, "bytes": most, "provenance": provenance(SEED, "cpu")}
            write_json(path, recorded)
        peaks |= {(method, name, count): peak for count, peak in zip(sizes, recorded["bytes"], strict=True)}
    return peaks


def in_new_process(*arguments: Any) -> list[int]:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(peak_memory, *arguments).result()


def peak_memory(method: str, name: str, sizes: Sequence[int], dim: int, channels: int) -> list[int]:
    """Measures the most bytes that a forward with gradients holds beyond its input, for each size, small ones first: what one
    leaves with the allocator is little beside the next."""
    chosen = next(entry for entry in METHODS if entry.name == method)
    chosen.call("step", cloud(name, 2000, dim, "cpu"), features(2000, channels, "cpu"))  # loads the kernels
    peaks = []
    for count in sizes:
        points, values = cloud(name, count, dim, "cpu"), features(count, channels, "cpu")
        start = begin_peak("cpu")
        chosen.call("step", points, values)
        peaks.append(peak_bytes("cpu") - start)
        del points, values
    return peaks
