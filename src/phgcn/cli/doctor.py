r"""Looks whether phgcn works on this machine."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("phgcn", "torch", "torch_geometric", "numba", "numpy", "scipy", "safetensors", "typer", "rich",
            "optuna", "matplotlib", "tensorboard", "pyarrow")  # fmt: skip


def examine() -> dict[str, Any]:
    """Versions, devices, folders, kernels, and a self-test."""
    import platform

    from ..data import user_cache
    from ..kernels.numba import cache_folder

    # Before the test, which compiles what is missing.
    folder = cache_folder()
    before = _kernels(folder)
    tests = [_test(what, check) for what, check in TESTS.items()]
    folders = {
        "compiled kernels": folder,
        "named graphs (PHGCN_DATA)": os.environ.get("PHGCN_DATA"),
        "downloaded graphs": user_cache(),
    }
    return {
        "ok": all(test["ok"] for test in tests),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "devices": _devices(),
        "folders": {name: _folder(path) for name, path in folders.items()},
        "kernels": {"compiled before": before, "compiled by the self-test": _kernels(folder) - before},
        "tests": tests,
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"cpu cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()}
    found["torch threads"] = torch.get_num_threads()
    for number in range(torch.cuda.device_count()):
        found[f"cuda:{number}"] = torch.cuda.get_device_name(number)
    return found


def _folder(path: str | Path | None) -> str:
    if path is None:
        return "not set"
    path = Path(path)
    if not path.is_dir():
        return f"{path} (not there yet)"
    try:
        with tempfile.TemporaryFile(dir=path):
            return str(path)
    except OSError:
        return f"{path} (read only)"


def _kernels(folder: Path) -> int:
    """How many compiled kernels, of all versions of phgcn, are kept."""
    return sum(1 for _ in folder.rglob("*.nbc"))


def _test(what: str, check: Callable[[], str]) -> dict[str, Any]:
    begin = time.perf_counter()
    try:
        found, ok = check(), True
    except Exception as error:
        found, ok = f"{type(error).__name__}: {error}", False
    return {"what": what, "ok": ok, "found": found, "seconds": time.perf_counter() - begin}


def _exact_attention() -> str:
    """Attention by the kernels against ten lines of torch."""
    import torch

    from .. import global_attention

    random = torch.Generator().manual_seed(0)
    positions, values = torch.randn(300, 4, generator=random), torch.randn(300, 8, generator=random)
    weights = torch.softmax(-10.0 * (positions.unsqueeze(1) - positions).norm(dim=2), dim=1)
    return _within(float((global_attention(positions, values) - weights @ values).abs().max()), 1e-4)


def _lattice_attention() -> str:
    """Attention on the lattice against the exact one, with gradients."""
    import torch

    from .. import global_attention

    random = torch.Generator().manual_seed(0)
    positions = (0.3 * torch.randn(4000, 4, generator=random)).requires_grad_()
    values = torch.randn(4000, 8, generator=random)
    approximate, exact = (global_attention(positions, values, method=method) for method in ("lattice", "exact"))
    approximate.sum().backward()
    if positions.grad is None or not bool(positions.grad.isfinite().all()):
        raise ValueError("the gradient is not finite")
    approximate, exact = approximate.detach(), exact.detach()
    return _within(float((approximate - exact).norm() / (exact - exact.mean(dim=0)).norm()), 0.2)


def _within(error: float, most: float) -> str:
    if not error <= most:
        raise ValueError(f"the error is {error:.2g}; allowed: {most:g}")
    return f"error {error:.1e}"


def _training() -> str:
    """A model learns two groups of nodes."""
    import torch

    from ..nn import PHGCN

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        y = torch.arange(100) % 2
        x = torch.randn(100, 8) + 2 * y.unsqueeze(1)
        edge_index = torch.randint(100, (2, 300))
        model = PHGCN(8, 4, 2, heads=2, dropout=0.0)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        losses = []
        for _ in range(30):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x, edge_index), y)
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    if not losses[-1] < 0.7 * losses[0]:
        raise ValueError(f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f} only")
    return f"loss from {losses[0]:.3f} to {losses[-1]:.3f}"


TESTS = {
    "attention, exact sum": _exact_attention,
    "attention, lattice and its gradient": _lattice_attention,
    "training a model": _training,
}
