import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from phgcn.files import read_tensors, replacing, write_csv, write_json, write_tensors, write_text


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


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    (tmp_path / "a.csv").write_text("before")
    (tmp_path / "a.csv").chmod(0o600)
    write_csv(tmp_path / "a.csv", ["a"], [])
    assert mode(tmp_path / "a.csv") == 0o600 and (tmp_path / "a.csv").read_text() == "a\n"


def test_a_link_stays_one_and_the_file_behind_it_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "real.txt").write_text("before")
    (tmp_path / "link.txt").symlink_to("folder/real.txt")
    (tmp_path / "again.txt").symlink_to("link.txt")
    write_text(tmp_path / "again.txt", "after")
    assert (tmp_path / "again.txt").is_symlink() and (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "folder" / "real.txt").read_text() == "after"
    (tmp_path / "new.txt").symlink_to("folder/new.txt")
    write_text(tmp_path / "new.txt", "made")
    assert (tmp_path / "folder" / "new.txt").read_text() == "made" and (
        tmp_path / "new.txt"
    ).is_symlink()


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(
        target=lambda: received.append((tmp_path / "pipe").read_text()), daemon=True
    )
    reader.start()
    write_text(tmp_path / "pipe", "through")
    reader.join(timeout=10)
    assert received == ["through"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    if os.geteuid() == 0:  # root could replace it: on a device of our own
        os.mknod(tmp_path / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device = tmp_path / "null"
    else:
        device = Path("/dev/null")
    write_text(device, "gone")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_standard_output_is_written_whatever_it_is(tmp_path):
    names = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
    code = f"from phgcn.files import write_text; print('first'); [write_text(name, 'text ') for name in {names}]; print('last')"  # noqa: E501
    with (tmp_path / "out.txt").open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        assert os.fstat(file.fileno()).st_ino == (tmp_path / "out.txt").stat().st_ino, (
            "not replaced"
        )
    assert (tmp_path / "out.txt").read_text() == "first\ntext text text text last\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_nothing_is_written_where_making_it_fails(tmp_path):
    (tmp_path / "a.txt").write_text("before")
    for path in (tmp_path / "a.txt", "-"):
        with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError
    assert (tmp_path / "a.txt").read_text() == "before" and [
        path.name for path in tmp_path.iterdir()
    ] == ["a.txt"]


def test_an_error_names_the_file_and_no_temporary_one(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="cannot be written") as caught:
        write_text(tmp_path / "folder", "text")
    assert caught.value.filename == str(tmp_path / "folder") and ".tmp" not in str(caught.value)
