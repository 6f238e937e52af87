"""Checks that phgcn works on this machine."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGES = (
    "phgcn torch torch_geometric numba numpy scipy safetensors typer rich optuna matplotlib "
    "tensorboard pyarrow"
)

AUTO_SIZES = (1_000, 100_000)  # numbers of points for which the choice of `"auto"` is shown


def compile_all() -> None:
    """Compiles all CPU kernels, for both float types, and shows the progress."""
    from ..runtime.warm import ROOMS, Compilation, kernels_in
    from .progress import Display

    kernels = kernels_in(ROOMS)
    with Display(total=2 * len(kernels)) as display:
        for real in ("float32", "float64"):
            display.compile(Compilation(kernels, real))


def examine(gpus: bool = False) -> dict[str, Any]:
    """Collects versions, devices, the choices of ``"auto"``, folders and kernels, and runs a
    self-test; with ``gpus`` on all GPUs too, whose kernels it compiles."""
    import platform

    from ..data import user_cache
    from ..provenance import version
    from ..runtime.numba import cache_folder

    # Counted before the self-test, which compiles what is missing.
    kernel_folder = cache_folder()
    kernels_before = _count_kernels(kernel_folder)
    devices = ["cpu", *(_gpus() if gpus else ())]
    tests = [_run_test(what, check, device) for device in devices for what, check in TESTS.items()]
    folders = {
        "compiled kernels": kernel_folder,
        "named graphs (PHGCN_DATA)": os.environ.get("PHGCN_DATA"),
        "downloaded graphs": user_cache(),
    }
    kernels = {
        "compiled before": kernels_before,
        "compiled by the self-test": _count_kernels(kernel_folder) - kernels_before,
    }
    return {
        "ok": all(test["ok"] for test in tests),
        "versions": {"python": platform.python_version()}
        | {p: version(p) or "not installed" for p in PACKAGES.split()},
        "devices": _list_devices(),
        "auto": _explain_auto(),
        "folders": {name: _describe_folder(path) for name, path in folders.items()},
        "kernels": kernels,
        "tests": tests,
    }


def _list_devices() -> dict[str, int | str | None]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    numbers = range(torch.cuda.device_count())
    gpus = {f"cuda:{number}": torch.cuda.get_device_name(number) for number in numbers}
    return {"cpu cores": cores, "torch threads": torch.get_num_threads(), **gpus}


def _gpus() -> list[str]:
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def _explain_auto() -> dict[str, str]:
    """Returns the choice of ``method="auto"`` on each device, for a small and a large graph."""
    from .. import explain_method

    pairs = [(n, device) for device in ("cpu", *_gpus()) for n in AUTO_SIZES]
    return {f"{n:,} points, {where}": str(explain_method(n, device=where)) for n, where in pairs}


def _describe_folder(path: str | Path | None) -> str:
    """Returns the path, and whether the folder is missing or read only."""
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


def _count_kernels(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.nbc"))


def _run_test(what: str, check: Callable[[str], str], device: str) -> dict[str, Any]:
    begin, what = time.perf_counter(), what if device == "cpu" else f"{what}, {device}"
    try:
        finding, ok = check(device), True
    except Exception as error:
        finding, ok = f"{type(error).__name__}: {error}", False
    return {"what": what, "ok": ok, "found": finding, "seconds": time.perf_counter() - begin}


def _test_exact(device: str) -> str:
    """Compares exact attention by the kernels with a softmax in plain torch."""
    import torch

    from .. import global_attention

    random = torch.Generator().manual_seed(0)
    positions, values = (torch.randn(300, width, generator=random).to(device) for width in (4, 8))
    weights = torch.softmax(-10.0 * (positions.unsqueeze(1) - positions).norm(dim=2), dim=1)
    out = global_attention(positions, values, method="exact")
    return _check_error(float((out - weights @ values).abs().max()), 1e-4)


def _test_lattice(device: str) -> str:
    """Compares attention on the lattice with the exact one, and computes its gradient."""
    import torch

    from .. import global_attention

    random = torch.Generator().manual_seed(0)
    positions = (0.3 * torch.randn(4000, 4, generator=random)).to(device).requires_grad_()
    values = torch.randn(4000, 8, generator=random).to(device)
    lattice = global_attention(positions, values, method="lattice")
    (gradient,) = torch.autograd.grad(lattice.sum(), positions)
    if not bool(gradient.isfinite().all()):
        raise ValueError("the gradient is not finite")
    with torch.no_grad():
        exact = global_attention(positions, values, method="exact")
        deviation = (exact - exact.mean(dim=0)).norm()
        return _check_error(float((lattice - exact).norm() / deviation), 0.2)


def _check_error(error: float, largest: float) -> str:
    if not error <= largest:  # also refuses NaN
        raise ValueError(f"the error is {error:.2g}; allowed: {largest:g}")
    return f"error {error:.1e}"


def _test_training(device: str) -> str:
    """Trains a model to tell two groups of nodes apart."""
    import torch

    from ..nn import PHGCN

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        y = torch.arange(100) % 2
        x = torch.randn(100, 8) + 2 * y.unsqueeze(1)
        edge_index = torch.randint(100, (2, 300))
        x, edge_index, y = x.to(device), edge_index.to(device), y.to(device)
        model = PHGCN(8, 4, 2, heads=2, dropout=0.0).to(device)
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
    "attention, exact sum": _test_exact,
    "attention, lattice and its gradient": _test_lattice,
    "training a model": _test_training,
}
