import os
import stat

import pytest
import torch

from phgcn.files import read_tensors, write_csv, write_json, write_tensors, write_text


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_all_files_have_the_mode_that_the_umask_allows(mask, tmp_path):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "text")
        write_json(tmp_path / "a.json", {})
        write_csv(tmp_path / "a.csv", ["a"], [])
        write_tensors(tmp_path / "a.safetensors", {"weight": torch.arange(3.0)}, {"epoch": 3})
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("a.txt", "a.json", "a.csv", "a.safetensors"), 0o666 & ~mask)
    tensors, about = read_tensors(tmp_path / "a.safetensors")
    assert torch.equal(tensors["weight"], torch.arange(3.0)) and about == {"epoch": 3}
