import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from numba.core import caching

from phgcn import compile as compiling
from phgcn.lattice import numba as cpu

CALL = """
import time, torch, phgcn
points, values = torch.randn(300, 4), torch.randn(300, 3)
scheme = phgcn.lattice.MultiScale(0.5, (2, 2, 2, 2), near_field=0)
start = time.perf_counter()
phgcn.global_attention(points, values, method=scheme)
print(time.perf_counter() - start)
"""


@pytest.fixture
def fresh():
    compiling.cache_folder.cache_clear()
    yield
    compiling.cache_folder.cache_clear()


def test_the_cache_is_where_it_is_asked_for(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("PHGCN_CACHE", str(tmp_path / "new"))
    folder = compiling.cache_folder()
    assert folder.is_dir()
    assert folder.is_relative_to(tmp_path / "new")
    assert list(folder.iterdir()) == []


def test_the_cache_follows_the_users_cache_folder(fresh, tmp_path, monkeypatch):
    monkeypatch.delenv("PHGCN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiling.cache_folder().is_relative_to(tmp_path / "phgcn")
    compiling.cache_folder.cache_clear()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert compiling.cache_folder().is_relative_to(tmp_path / "home" / ".cache" / "phgcn")


def test_a_folder_that_cannot_be_written_is_replaced_with_a_warning(fresh, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PHGCN_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.warns(UserWarning, match="PHGCN_CACHE") as caught:
        folder = compiling.cache_folder()
    assert folder.is_relative_to(tmp_path / "temporary")
    assert folder.is_dir()
    assert str(folder) in str(caught[0].message)
    assert str(tmp_path / "file") in str(caught[0].message)
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        compiling.cache_folder()


def test_the_cache_is_keyed_by_the_contents_of_the_kernels(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        for file in Path(cpu.__path__[0]).glob("*.py"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "two" / "blur.py").open("a") as file:
        file.write("# changed\n")
    (tmp_path / "three" / "other.py").write_text("# not a kernel\n")
    digest = compiling.source_digest(Path(cpu.__path__[0]))
    assert compiling.source_digest(tmp_path / "one") == digest
    assert compiling.source_digest(tmp_path / "two") != digest
    assert compiling.source_digest(tmp_path / "three") == digest


def test_kernels_have_a_cache_of_their_own(fresh, tmp_path, monkeypatch):
    from phgcn.lattice.numba.sorting import radix_sort, runs

    names = {kernel._cache._impl._filename_base for kernel in (radix_sort, runs)}
    assert len(names) == 2
    assert isinstance(radix_sort._cache, caching.FunctionCache)


def test_the_first_call_of_a_new_process_is_quick():
    """Kernels come from the cache, which the first of the two processes fills if need be."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, env=os.environ, check=True)
    assert float(done.stdout) < 5
