"""Kernels take few parameters: what belongs together is one structure.  And which Triton they
need."""

import importlib
import pkgutil
import runpy

import pytest

pytest.importorskip("triton")
import triton
from triton.runtime import KernelInterface

from phgcn.runtime import triton as shared

ROOMS = ("phgcn.lattice.triton", "phgcn.exact.triton", "phgcn.structural.triton")
MOST = 15


def kernels():
    """Every kernel, and every function that kernels call, with its number of parameters,
    compile-time constants included.
    """
    for room in ROOMS:
        package = importlib.import_module(room)
        for file in pkgutil.iter_modules(package.__path__, f"{room}."):
            for name, value in vars(importlib.import_module(file.name)).items():
                if isinstance(value, KernelInterface) and value.fn.__module__ == file.name:
                    yield f"{file.name}.{name}", len(value.arg_names)


def test_no_kernel_has_more_than_some_parameters():
    """Of a named tuple, which holds what belongs together, one counts."""
    found = dict(kernels())
    assert len(found) > 50
    assert {name: count for name, count in found.items() if count > MOST} == {}


def test_an_old_triton_is_refused(monkeypatch):
    monkeypatch.delattr(triton, "knobs")
    with pytest.raises(ImportError, match="or later, which comes with torch"):
        runpy.run_path(shared.__file__)
