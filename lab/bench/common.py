r"""Clouds, features, errors, timing and results of the benchmarks.

All lengths are in units of 1/decay, so every call takes ``decay=1``.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import phgcn
from phgcn.files import write_json  # noqa: F401, for the benchmarks
from phgcn.provenance import provenance as package_provenance
from phgcn_lab.peak import begin_peak, peak_bytes

SEED = 0
CLUSTERS = 6
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "bench" / "results"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Of the measurements on a GPU; their quick versions run without one."""

# Clouds and features


def cloud(
    name: str, count: int, dim: int, seed: int = SEED, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Points: ``"spread s"``, a Gaussian of standard deviation s, or ``"clusters"``, six of width 1
    in one of spread 10.
    """
    return labelled_cloud(name, count, dim, seed, dtype)[0]


def labelled_cloud(
    name: str, count: int, dim: int, seed: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Points, and for each its cluster or the quadrant of its first two coordinates."""
    random = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, dim, generator=random, dtype=torch.float64)
    if name == "clusters":
        centres = 10 * torch.randn(CLUSTERS, dim, generator=random, dtype=torch.float64)
        label = torch.randint(CLUSTERS, (count,), generator=random)
        return (centres[label] + noise).to(dtype), label
    kind, spread = name.split()
    if kind != "spread":
        raise ValueError(f"the cloud is {name!r}; allowed: 'clusters', or 'spread' and a number")
    quadrant = (noise[:, 0] > 0).long() + 2 * (noise[:, min(1, dim - 1)] > 0).long()
    return (float(spread) * noise).to(dtype), quadrant


def random_features(
    count: int, channels: int = 7, seed: int = SEED, dtype: torch.dtype = torch.float32
) -> Tensor:
    random = torch.Generator().manual_seed(seed + 1_000_003)
    return torch.randn(count, channels, generator=random, dtype=torch.float64).to(dtype)


def structured_features(points: Tensor, label: Tensor) -> Tensor:
    """Features that vary with the positions: slow waves, and a one-hot label."""
    one_hot = torch.nn.functional.one_hot(label).to(points.dtype)
    return torch.cat([torch.sin(points / 10), one_hot], dim=1)


# Errors


def relative_error(approximate: Tensor, exact: Tensor) -> float:
    return float((approximate - exact).norm() / exact.norm())


def deviation_error(approximate: Tensor, exact: Tensor) -> float:
    """The norm of the error over that of what attention adds to a plain average."""
    return float((approximate - exact).norm() / (exact - exact.mean(dim=0)).norm())


def position_gradient(points: Tensor, values: Tensor, method: object, seed: int = SEED) -> Tensor:
    grad = random_features(len(points), values.size(1), seed + 17, values.dtype)
    leaf = points.detach().clone().requires_grad_()
    phgcn.global_attention(leaf, values, decay=1.0, method=method).backward(grad)
    return leaf.grad


def cosine(first: Tensor, second: Tensor) -> float:
    flat = first.double().flatten(), second.double().flatten()
    return float(torch.nn.functional.cosine_similarity(*flat, dim=0))


# Timing


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def run_process(command: list[str], **options: Any) -> tuple[subprocess.CompletedProcess, dict]:
    """Returns the process with its seconds by the clock and those of the processor."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, {"seconds": seconds, "cpu_seconds": cpu}


def interleaved(
    jobs: dict[str, Callable[[], object]],
    rounds: int,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, dict]:
    """Runs all jobs in turn, round after round, after one call of each to warm up.

    A job that returns a float has timed itself. Returns the median, the least and all times of
    each, in seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            progress(f"{name}: {f'round {number} of {rounds}' if number else 'warming up'}")
            begin = time.perf_counter()
            own = job()
            taken = own if isinstance(own, float) else time.perf_counter() - begin
            del own
            if number > 0:
                times[name].append(taken)
    return {
        name: {"median": statistics.median(t), "min": min(t), "all": t} for name, t in times.items()
    }


Jobs = dict[str, Callable[[], object]]


def that_run(jobs: Jobs) -> tuple[Jobs, dict[str, str]]:
    """Calls every job once; returns those that run, and why others do not."""
    able, missing = {}, {}
    for name, job in jobs.items():
        try:
            job()
            able[name] = job
        # a package that is missing, a kernel that does not compile, too little memory
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return able, missing


def device_seconds(call: Callable[[], object]) -> float:
    """Seconds of a call on :data:`DEVICE`, on a GPU between events."""
    if DEVICE.type == "cpu":
        return seconds(call)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def milliseconds(call: Callable[[], object], rounds: int = 15) -> list[float]:
    """The times of a call on :data:`DEVICE`, after two to warm up."""
    return [1000 * device_seconds(call) for _ in range(rounds + 2)][2:]


def peak(call: Callable[[], object], device: str = "cpu") -> int:
    """The most bytes that a call holds beyond what was there before."""
    before = begin_peak(device)
    call()
    return peak_bytes(device) - before


# Results


def provenance(seed: int = SEED) -> dict:
    about = package_provenance(seed, packages=("pydensecrf2", "pykeops"))
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return about | {"wait_policy": os.environ.get("OMP_WAIT_POLICY"), "load": load}
