"""Compiles the CPU kernels ahead of their first use, with an estimate of the time."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from . import numba as compiled

# packages with kernels, those that each needs before it
ROOMS = ("runtime", "exact.numba", "structural.numba", "lattice.numba")

# what a kernel takes to compile, on average over all of them, on two cores: ``phgcn doctor --warm``
# measures it
SECONDS = 1.0


class Compilation(NamedTuple):
    """Kernels to compile for one float type."""

    kernels: list[compiled.Kernel]
    real: str = "float32"

    @property
    def seconds(self) -> float:
        """Estimates the time to compile; kernels that are kept take none."""
        return SECONDS * sum(not kernel.is_kept(self.real) for kernel in self.kernels)

    def run(self, report: Callable[[int], None] = lambda done: None) -> None:
        """Compiles or loads the kernels; calls ``report`` with the number of ready ones."""
        for done, kernel in enumerate(self.kernels, start=1):
            kernel.compile(self.real)
            report(done)


def find_missing(rooms: Sequence[str] = ROOMS) -> Compilation:
    """Finds the float32 kernels of some packages that are not kept yet."""
    return Compilation([kernel for kernel in kernels_in(rooms) if not kernel.is_kept("float32")])


def kernels_in(rooms: Sequence[str]) -> list[compiled.Kernel]:
    """Lists the kernels of packages such as ``"exact.numba"``."""
    package = __name__.split(".")[0]
    return [
        kernel
        for room in rooms
        for module in _modules(f"{package}.{room}")
        for kernel in _kernels_of(module)
    ]


def _modules(package: str) -> Iterator[str]:
    """Yields the names of a package's modules without Triton's, which need not be installed."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if "triton" not in module.name and not module.ispkg:
            yield module.name


def _kernels_of(module: str) -> Iterator[compiled.Kernel]:
    """Yields the kernels that a module defines, without imported ones."""
    for entry in vars(importlib.import_module(module)).values():
        if isinstance(entry, compiled.Kernel) and entry.function.__module__ == module:
            yield entry
