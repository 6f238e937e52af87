"""Compiles the CPU kernels, and keeps their machine code.

A kernel states the types of its arguments, so that float32 and float64 are each compiled once, for
any memory layout. Kernels are single-threaded and release the interpreter's lock;
:func:`phgcn.runtime.threads.run_rows` runs them on several cores.

Machine code lies in ``$PHGCN_CACHE``, else ``$XDG_CACHE_HOME/phgcn``, else ``~/.cache/phgcn``, else
in the system's temporary folder, under a hash of all kernel files: a change of one file compiles
everything that inlines it anew."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numba
import numpy as np
from filelock import FileLock
from numba.core import compiler
from torch import Tensor

PACKAGE = Path(__file__).resolve().parent.parent


class _Compiler(compiler.Compiler):
    """Numba's compiler with the flag ``noalias``: the arrays of a call share no memory, so that
    loops are vectorised without checks for overlap."""

    def __init__(self, *given: Any) -> None:
        *_, flags, _ = given
        flags.noalias = True
        super().__init__(*given)


OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},
    "nogil": True,
    "pipeline_class": _Compiler,
}

# A kernel is called from Python only, a helper from kernels only: wrappers for other callers would
# double the time to compile.
_KERNEL_OPTIONS = {**OPTIONS, "no_cfunc_wrapper": True}
# All helpers are inlined. One that is not is compiled once per kernel that calls it, optimised for
# that kernel, and the process runs the copy that it met first: a different one, with different
# rounding, after compiling than after loading from the cache.
_HELPER_OPTIONS = {**_KERNEL_OPTIONS, "no_cpython_wrapper": True, "forceinline": True}

_FLOAT_TYPES = {"f": "float32", "d": "float64"}

_compiling = Lock()


def _renew_lock() -> None:
    """Makes a new lock in a forked child, where no thread would release the old one."""
    global _compiling
    _compiling = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Kernel:
    """A function that Numba compiles on its first call with float32 or float64 arguments. An array
    that it writes must share no memory with its other arguments.

    Args:
        function (Callable): Plain loops over arrays.
        signature (str): The types of its arguments as Numba writes them, with ``real`` for either
            float type, such as ``"int64, int64, real[:, ::1], int32[::1]"``.
    """

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.function, self.signature = function, signature
        types = re.split(r", *(?![^[]*])", signature)  # not at commas inside brackets
        reals = [index for index, text in enumerate(types) if text.startswith("real")]
        self.real_argument = reals[0] if reals else None
        self.compiled: dict[str, Any] = {}
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        real = "float64"
        if self.real_argument is not None:
            real = _FLOAT_TYPES[arguments[self.real_argument].dtype.char]
        compiled = self.compiled.get(real)
        return (compiled or self.compile(real))(*arguments)

    def is_kept(self, real: str = "float32") -> bool:
        """Returns whether the kernel is in memory, or in the cache folder for any float type."""
        code = self.function.__code__
        name = f"{Path(code.co_filename).stem}.{self.function.__qualname__}"
        index = f"{name}-{code.co_firstlineno}.*.nbi"  # as Numba calls it
        return real in self.compiled or any((cache_folder() / source_digest()).rglob(index))

    def compile(self, real: str = "float32") -> Any:
        """Compiles the kernel for a float type, or loads it from the cache folder."""
        # One process compiles, the others load what it keeps: two compilations of the same loops
        # may round differently.
        with _compiling, FileLock(cache_folder() / f"{source_digest()}.lock"):
            if real not in self.compiled:
                with _cache_in_own_folder():
                    dispatcher = numba.njit(cache=True, **_KERNEL_OPTIONS)(self.function)
                dispatcher.compile(f"({self.signature.replace('real', real)})")
                dispatcher.disable_compile()
                self.compiled[real] = dispatcher
        return self.compiled[real]


def kernel(signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    return lambda function: Kernel(function, signature)


def helper(function: Callable[..., Any]) -> Any:
    """Makes a function callable from kernels, which inline it; Python calls ``py_func``."""
    return numba.njit(**_HELPER_OPTIONS)(function)


def as_array(tensor: Tensor) -> np.ndarray:
    """Returns a tensor's memory as a contiguous array."""
    array: np.ndarray = tensor.detach().contiguous().numpy()
    return array


# Where machine code is kept


@lru_cache
def cache_folder() -> Path:
    """Returns the folder of compiled kernels, and creates it if need be."""
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
            f"compiled kernels cannot be kept in {folder} ({error.strerror}); keeping them in "
            f"{fallback}. Set PHGCN_CACHE to a folder that can be written.",
            stacklevel=2,
        )
        return fallback


@lru_cache
def source_digest() -> str:
    """Hashes all files with kernels, which inline each other, and this file."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in sorted(PACKAGE.rglob("*.py")):
        content = file.read_bytes()
        if b"numba import" in content or file == Path(__file__).resolve():
            digest.update(str(file.relative_to(PACKAGE)).encode() + content)
    return digest.hexdigest()[:16]


@contextmanager
def _cache_in_own_folder() -> Iterator[None]:
    """Points Numba's cache at our folder while a function is decorated."""
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder() / source_digest())
    try:
        yield
    finally:
        config.CACHE_DIR = before
