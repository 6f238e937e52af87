r"""Files that are there whole or not at all: written under a temporary name, then renamed."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside ``path``; what was written there takes its place at the end, and is removed on failure.

    A process that is killed leaves the file before, and perhaps a ``.*.tmp`` that :func:`remove_leftovers` clears.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror or error})", str(path)) from error
    finally:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process holds the lock; it ends with the process, however that ends."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield


def remove_leftovers(folder: Path) -> None:
    """Removes what processes that were killed left behind."""
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
    """Writes tensors and what is said about them, as JSON, into one safetensors file with a checksum of both."""
    from safetensors.torch import save

    text = json.dumps(about)
    with replacing(path) as temporary:  # safetensors' own files cannot be read by others, whatever the umask
        temporary.write_bytes(save(tensors, metadata={"json": text, "sha256": _checksum(tensors, text)}))


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file and its JSON; refused if they do not have the checksum that they were written with."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        if "sha256" in about and about["sha256"] != _checksum(tensors, about["json"]):  # files of before have none
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
