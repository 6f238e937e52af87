r"""How the CPU kernels are compiled and where their machine code is kept.

Numba's own cache lies beside the source and is keyed by the file's time stamp: a reinstall loses it, a read-only install
cannot write it, and a change in one file does not invalidate kernels of another that inline it.  Ours lies in the user's
cache folder, in one folder for each content of the kernel files: two versions of this package do not overwrite each other.

The folder is ``$PHGCN_CACHE``, else ``$XDG_CACHE_HOME/phgcn``, else ``~/.cache/phgcn``, else, where none of these can be
written, a folder of this user below the system's temporary one, which is said in a warning.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numba.core import caching


@lru_cache
def source_digest(folder: Path) -> str:
    """A hash of the kernel files of a folder, which inline each other, and of how they are compiled."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(folder.glob("*.py")):
        content = file.read_bytes()
        if b"kernels.legacy import" in content:
            digest.update(file.name.encode() + content)
    return digest.hexdigest()[:16]


@lru_cache
def cache_folder() -> Path:
    """The folder that compiled kernels are kept in; created if need be."""
    if "PHGCN_CACHE" in os.environ:
        wanted = Path(os.environ["PHGCN_CACHE"])
    else:
        wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phgcn"
    folder = wanted / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
        fallback = Path(tempfile.gettempdir()) / f"phgcn-{user}" / "kernels"
        fallback.mkdir(parents=True, exist_ok=True)
        warnings.warn(
            f"compiled kernels cannot be kept in {folder} ({error.strerror}); keeping them in {fallback}. "
            "Set PHGCN_CACHE to a folder that can be written.",
            stacklevel=2,
        )
        return fallback


class _ContentLocator(caching._CacheLocator):
    """Tells Numba's cache where to write, and when the source has changed."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._name = f"{py_func.__module__}.{py_func.__qualname__}"
        self._folder = Path(py_file).resolve().parent

    def get_cache_path(self) -> str:
        return str(cache_folder() / source_digest(self._folder))

    def get_source_stamp(self) -> tuple[str, str]:
        return (source_digest(self._folder), numba.__version__)

    def get_disambiguator(self) -> str:
        return hashlib.sha256(self._name.encode()).hexdigest()[:10]

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _ContentLocator:
        return cls(py_func, py_file)


class _ContentCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [_ContentLocator]  # noqa: RUF012, as Numba declares it


class _ContentCache(caching.FunctionCache):
    _impl_class = _ContentCacheImpl


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    dispatcher = numba.njit(error_model="numpy", fastmath={"contract", "nsz", "arcp", "reassoc"}, **options)(function)
    dispatcher._cache = _ContentCache(function)
    return dispatcher


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles a kernel whose ``prange`` loops run on all cores.

    Every output element is computed by one iteration alone, so that the number of threads never changes a bit.
    """
    return _compiled(function, parallel=True)


def serial(function: Callable[..., Any]) -> Any:
    """Compiles a kernel for one core."""
    return _compiled(function)


def inline(function: Callable[..., Any]) -> Any:
    """Compiles a helper that is inlined into the kernels which call it."""
    return numba.njit(inline="always", error_model="numpy", fastmath={"contract", "nsz", "arcp", "reassoc"})(function)


def use_threads() -> int:
    """Makes kernels use as many threads as torch does, and returns how many."""
    most: int = getattr(numba.config, "NUMBA_NUM_THREADS")  # noqa: B009, set when numba is imported
    count = max(1, min(torch.get_num_threads(), most))
    numba.set_num_threads(count)
    return count


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Returns a contiguous tensor's memory as an array."""
    array: np.ndarray = tensor.detach().contiguous().numpy()
    return array
