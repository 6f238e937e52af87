r"""What the benchmarks share: point clouds, features, errors against the exact sum, timing, and results as JSON.

Not run by itself.  All lengths are in units of 1/decay, so every call takes ``decay=1``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

import phgcn

SEED = 0
CLUSTERS = 6
RESULTS = Path(__file__).resolve().parent / "results"

# Clouds and features


def cloud(name: str, count: int, dim: int, seed: int = SEED, dtype: torch.dtype = torch.float32) -> Tensor:
    """Points: ``"spread s"``, a Gaussian of standard deviation s, or ``"clusters"``, six of width 1 in one of spread 10."""
    return labelled_cloud(name, count, dim, seed, dtype)[0]


def labelled_cloud(name: str, count: int, dim: int, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Points, and a label for each: its cluster or, in a Gaussian, the quadrant of its first two coordinates."""
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


def random_features(count: int, channels: int = 7, seed: int = SEED, dtype: torch.dtype = torch.float32) -> Tensor:
    """Features that know nothing of the positions."""
    random = torch.Generator().manual_seed(seed + 1_000_003)
    return torch.randn(count, channels, generator=random, dtype=torch.float64).to(dtype)


def structured_features(points: Tensor, label: Tensor) -> Tensor:
    """Features that vary with the positions: slow waves, and a one-hot label."""
    return torch.cat([torch.sin(points / 10), torch.nn.functional.one_hot(label).to(points.dtype)], dim=1)


# Errors


def relative_error(approximate: Tensor, exact: Tensor) -> float:
    """The norm of the error over that of the exact output."""
    return float((approximate - exact).norm() / exact.norm())


def deviation_error(approximate: Tensor, exact: Tensor) -> float:
    """The norm of the error over that of what attention adds to a plain average: exact less its mean over the points."""
    return float((approximate - exact).norm() / (exact - exact.mean(dim=0)).norm())


def position_gradient(points: Tensor, values: Tensor, method: object, seed: int = SEED) -> Tensor:
    """The gradient of the positions for a random gradient of the output."""
    grad = random_features(len(points), values.size(1), seed + 17, values.dtype)
    leaf = points.detach().clone().requires_grad_()
    phgcn.global_attention(leaf, values, decay=1.0, method=method).backward(grad)
    return leaf.grad


def cosine(first: Tensor, second: Tensor) -> float:
    """The cosine between two gradients, as vectors of all their entries."""
    return float(torch.nn.functional.cosine_similarity(first.double().flatten(), second.double().flatten(), dim=0))


# Timing


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def interleaved(
    jobs: dict[str, Callable[[], object]], rounds: int, progress: Callable[[str], None] = lambda text: None
) -> dict[str, dict]:
    """Runs all jobs in turn, round after round, after one call of each to warm up: what else the machine does then hits all
    alike.  A job that returns a float has timed itself, else its whole call is timed.

    Returns:
        For each job the median and the least of its times, and all of them, in seconds.
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
    return {name: {"median": statistics.median(t), "min": min(t), "all": t} for name, t in times.items()}


# Results


def wide_console() -> Console:
    """A console that does not wrap tables where the output goes to a file."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def provenance(seed: int = SEED) -> dict:
    """Where numbers come from: machine, versions, commit, date, seed and command."""
    packages = ("torch", "numba", "numpy", "phgcn", "pydensecrf2", "pykeops")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "commit": os.environ.get("PHGCN_COMMIT") or _git("rev-parse", "HEAD"),  # a copied tree has no history
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seed": seed,
        "command": " ".join(["python", _short(sys.argv[0]), *map(without_folder, sys.argv[1:])]),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        found = subprocess.run(["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def without_folder(argument: str) -> str:
    """An argument of the command; of a path that means nothing elsewhere, the name."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _short(script: str) -> str:
    """The path of a script in the project."""
    path, root = Path(script).resolve(), RESULTS.parent.parent
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def write_json(path: str | Path, content: dict) -> None:
    """Writes a file whole or not at all: under a temporary name, then renamed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
