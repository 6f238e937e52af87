"""The origin of results: machine, versions, commit, seed, date and command, for every JSON of
results."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import __version__

PACKAGES = ("torch", "torch_geometric", "numba", "numpy")
_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE.parents[1]
# what results depend on; results that are not committed yet do not make the tree dirty
_CODE = ("src", "lab", "pyproject.toml", ":(exclude)lab/bench/results")


def provenance(
    seed: int | None = None, device: str | None = None, packages: Sequence[str] = ()
) -> dict[str, Any]:
    """Describes the origin of results that are computed now.

    Args:
        seed (int, optional): The seed of random numbers. (default: :obj:`None`)
        device (str, optional): The torch device that computes. (default: :obj:`None`, CUDA where
            there is one)
        packages (list of str, optional): Packages whose versions are recorded too. (default: none)

    Returns:
        Among others ``commit`` and ``dirty``, true if the source differs from the commit; both are
        :obj:`None` if unknown. A copy of the tree without history takes them from the environment
        variables ``PHGCN_COMMIT`` and ``PHGCN_DIRTY`` (``0`` or ``1``).
    """
    import torch  # here, as `phgcn --version` asks for the commit alone

    from .devices import device_name

    commit, dirty = source_commit()
    return {
        "machine": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device_name(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        "python": platform.python_version(),
        # the metadata would miss a package that is used without being installed
        "phgcn": __version__,
        **{name: version(name) for name in (*PACKAGES, *packages)},
        "commit": commit,
        "dirty": dirty,
        "seed": seed,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": _command(),
    }


def versions(about: dict[str, Any]) -> dict[str, str | None]:
    """Returns the versions that numbers depend on, from a provenance."""
    return {name: about[name] for name in ("python", "phgcn", *PACKAGES)}


def source_commit() -> tuple[str | None, bool | None]:
    """Returns the source tree's commit and whether it differs, :obj:`None` if unknown."""
    if commit := os.environ.get("PHGCN_COMMIT"):
        return commit, {"0": False, "1": True}.get(os.environ.get("PHGCN_DIRTY", ""))
    top = _git("rev-parse", "--show-toplevel")
    # installed, perhaps inside of another repository
    if top is None or Path(top).resolve() / "src" / "phgcn" != _PACKAGE:
        return None, None
    changed = _git("status", "--porcelain", "--", *_CODE)
    return _git("rev-parse", "HEAD"), None if changed is None else bool(changed)


def _git(*arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return process.stdout.strip()


def _command() -> str:
    """Returns the command line, with the program's name in place of its path."""
    script = Path(sys.argv[0]).resolve()
    inside = script.relative_to(_ROOT) if script.is_relative_to(_ROOT) else Path(script.name)
    is_python = script.suffix == ".py" or script.is_dir()
    words = ["python", str(inside)] if is_python else [script.name]
    return " ".join(
        [*words, *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])]
    )


def _processor() -> str:
    """Returns the processor's name, if the system has one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
