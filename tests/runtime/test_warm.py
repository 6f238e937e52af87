import numpy as np
import pytest

from phgcn.runtime import numba as compiled
from phgcn.runtime.warm import ROOMS, SECONDS, Compilation, find_missing, kernels_in


@compiled.kernel("int64, real[::1]")
def double(start, values):
    for place in range(start, len(values)):
        values[place] *= 2


@compiled.kernel("int64, real[::1]")
def halve(start, values):
    for place in range(start, len(values)):
        values[place] /= 2


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PHGCN_CACHE", str(tmp_path))
    compiled.cache_folder.cache_clear()
    for kernel in (double, halve):
        monkeypatch.setattr(kernel, "compiled", {})
    yield
    compiled.cache_folder.cache_clear()


def test_a_compilation_tells_its_time_and_its_progress(empty_cache):
    both, ready = Compilation([double, halve]), []
    assert both.seconds == 2 * SECONDS
    double.compile()
    assert both.seconds == SECONDS and double.is_kept() and not halve.is_kept()
    both.run(ready.append)
    assert ready == [1, 2] and both.seconds == 0
    values = np.ones(3, np.float32)
    double(1, values)
    assert values.tolist() == [1, 2, 2]


def test_a_kernel_in_the_folder_counts_as_kept_in_a_new_process(empty_cache, monkeypatch):
    double.compile()
    monkeypatch.setattr(double, "compiled", {})
    assert double.is_kept() and not halve.is_kept()


def test_all_kernels_are_found_once():
    kernels = kernels_in(ROOMS)
    names = [(kernel.function.__module__, kernel.__name__) for kernel in kernels]
    assert len(set(names)) == len(names) > 30
    assert ("phgcn.lattice.numba.moves", "gather_rows") in names and (
        "phgcn.exact.numba.attend",
        "sum_pairs",
    ) in names


def test_what_is_missing_is_what_is_not_kept(monkeypatch):
    kept = {"sum_pairs"}
    monkeypatch.setattr(
        compiled.Kernel, "is_kept", lambda self, real="float32": self.__name__ in kept
    )
    names = [kernel.__name__ for kernel in find_missing(["exact.numba"]).kernels]
    assert names and "sum_pairs" not in names
