r"""Where results come from: machine, versions, commit, date and command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("phgcn", "torch", "torch_geometric", "numba", "numpy")


def provenance() -> dict[str, Any]:
    """What a result file says about its origin."""
    return {
        "machine": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "commit": os.environ.get("PHGCN_COMMIT") or _commit(),  # a copied tree has no history
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["phgcn", *map(_without_folder, sys.argv[1:])]),
    }


def _without_folder(argument: str) -> str:
    """An argument of the command; of a path that means nothing elsewhere, the name."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _cpu() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree; none where the package is installed without one."""
    folder = Path(__file__).resolve().parent
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
