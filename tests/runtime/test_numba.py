import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from phgcn.runtime import numba as compiling
from phgcn.runtime.numba import helper, kernel

FIRST_CALLS = """
import hashlib, time, torch, phgcn
torch.manual_seed(0)
points, values = torch.randn(300, 2, 4), torch.randn(300, 2, 4)
start = time.process_time()
for decay in (1.0, 3.0):
    out = phgcn.global_attention(points, values, decay=decay, method="exact")
    print(hashlib.sha256(out.numpy().tobytes()).hexdigest())
print(time.process_time() - start)
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


def test_the_cache_is_keyed_by_the_contents_of_the_kernels(tmp_path, monkeypatch):
    digest = compiling.source_digest.__wrapped__
    monkeypatch.setattr(compiling, "PACKAGE", tmp_path)
    file = tmp_path / "blur.py"
    file.write_text("from ...runtime.numba import kernel\n")
    first = digest()
    (tmp_path / "other.py").write_text("# not a kernel\n")
    assert digest() == first
    file.write_text("from ...runtime.numba import kernel  # changed\n")
    assert digest() != first


@helper
def double(x):
    return x + x


@kernel("int64, int64, real[:, ::1], real[::1]")
def sum_rows(begin, end, table, out):
    """Sums the doubled numbers of each row."""
    for i in range(begin, end):
        total = table.dtype.type(0)
        for c in range(table.shape[1]):
            total += double(table[i, c])
        out[i] = total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_takes_either_float_type(dtype):
    table, out = np.arange(6, dtype=dtype).reshape(2, 3), np.zeros(2, dtype)
    sum_rows(0, 2, table, out)
    assert out.tolist() == [6, 24] and out.dtype == dtype


def test_a_kernel_is_compiled_once_for_a_float_type():
    for width in (1, 4, 9):
        sum_rows(0, 2, np.ones((2, width), np.float32), np.zeros(2, np.float32))
    compiled = sum_rows.compiled["float32"]
    assert len(compiled.signatures) == 1
    with pytest.raises(TypeError):  # another memory layout is refused, not compiled
        sum_rows(0, 2, np.ones((2, 8), np.float32)[:, ::2], np.zeros(2, np.float32))
    assert sum_rows.compiled["float32"] is compiled and len(compiled.signatures) == 1


def test_processes_that_start_at_once_without_kernels_have_the_bits_of_one_that_loads_them_quickly(
    tmp_path,
):
    command = [sys.executable, "-c", FIRST_CALLS]
    environment = {**os.environ, "PHGCN_CACHE": str(tmp_path)}
    at_once = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0].split() for process in at_once]
    said.append(
        subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.split()
    )
    (first, second), *others = (hashes for *hashes, _ in said)
    assert first != second and others == [[first, second]] * 2
    assert len(list((tmp_path / "kernels").glob("*.lock"))) == 1
    seconds = [float(words[-1]) for words in said]
    # processor time: to compile takes longer, to load does not
    assert 2 * seconds[2] < sum(seconds[:2])
