"""Writes whole files or none: under a temporary name, then renamed. Pipes, devices and standard
output are written to, never replaced."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

STANDARD_OUTPUT = "-"  # the name of standard output in commands

# paths of files that are open already, which must not be replaced, whatever they are
OPEN_FILES = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary name, whose content replaces ``path`` at the end. A failure removes it.

    The target of a symbolic link is replaced, and an old file passes on its mode. Streams get the
    bytes when all are there. A killed process leaves the old file, and perhaps a ``.*.tmp`` that
    :func:`remove_leftovers` clears."""
    fill = _filling if is_stream(path) else _renaming
    try:
        with fill(Path(path)) as temporary:
            yield temporary
    except OSError as error:
        raise OSError(
            error.errno, f"cannot be written ({error.strerror or type(error).__name__})", str(path)
        ) from error


@contextmanager
def _renaming(path: Path) -> Iterator[Path]:
    """Writes a regular file under a name beside it, which is then renamed."""
    path = Path(os.path.realpath(path))  # behind symbolic links
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            _create_like(temporary, path.stat())
        yield temporary
        temporary.replace(path)
    finally:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)


def _create_like(path: Path, status: os.stat_result) -> None:
    """Creates an empty file of another file's mode and, where root writes a user's file, owner."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(stat.S_IMODE(status.st_mode))


@contextmanager
def _filling(path: Path) -> Iterator[Path]:
    """Copies a temporary file to a stream at the end."""
    with tempfile.TemporaryDirectory(prefix="phgcn-") as folder:
        temporary = Path(folder) / "content"
        yield temporary
        sys.stdout.flush()  # what was printed before comes first
        with temporary.open("rb") as content:
            if str(path) == STANDARD_OUTPUT:
                shutil.copyfileobj(content, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:
                with os.fdopen(_open_stream(str(path)), "wb") as stream:
                    shutil.copyfileobj(content, stream)


def _open_stream(path: str) -> int:
    """Opens a stream for writing. A file that is open already continues at its position."""
    number = {"/dev/stdout": "1", "/dev/stderr": "2"}.get(path) or path.removeprefix(
        "/proc/self/fd/"
    ).removeprefix("/dev/fd/")
    return os.dup(int(number)) if number.isdecimal() else os.open(path, os.O_WRONLY)


def is_standard_output(path: str | Path) -> bool:
    return str(path) in (STANDARD_OUTPUT, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def is_stream(path: str | Path) -> bool:
    """Returns whether a path is standard output, a pipe, a device, or an open file."""
    if str(path) == STANDARD_OUTPUT or str(path).startswith(OPEN_FILES):
        return True
    try:
        mode = os.stat(path).st_mode  # of what a symbolic link leads to
    except OSError:  # not there yet
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process holds the lock, which ends with its process."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield


def remove_leftovers(folder: Path) -> None:
    """Removes temporary files of killed processes."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_csv(path: str | Path, heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(rows)


def write_tensors(path: str | Path, tensors: dict[str, Tensor], about: Mapping[str, Any]) -> None:
    """Writes tensors and their JSON description into a safetensors file, with a checksum."""
    from safetensors.torch import save

    text = json.dumps(about)
    # safetensors' own files cannot be read by others, whatever the umask
    with replacing(path) as temporary:
        temporary.write_bytes(
            save(tensors, metadata={"json": text, "sha256": _checksum(tensors, text)})
        )


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads a safetensors file's tensors and JSON. Refuses a wrong checksum."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        # files of before have none
        if "sha256" in about and about["sha256"] != _checksum(tensors, about["json"]):
            raise ValueError("its checksum is wrong: the file is damaged")
        return tensors, json.loads(about["json"])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of weights that phgcn wrote ({error})") from None


def read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ValueError(f"{path}: not a JSON file ({error})") from None
