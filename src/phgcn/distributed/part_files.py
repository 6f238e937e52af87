"""The parts of a graph as files, so that no process ever holds the whole graph.

::

    DIR/manifest.json           what the graph is, and the checksum of each file; written last
    DIR/labels.npy              the labels of all nodes
    DIR/train_mask.npy, ...     the public splits of all nodes, if the graph has any
    DIR/node_id.npy             the names of all nodes
    DIR/part-000/nodes.npy      the part of rank 0: arrays of :class:`.partition.Part`
    DIR/part-000/x.npy          its features; sparse: ``x_start``, ``x_column``, ``x_value``
    DIR/part-000/edge_attr.npy, edge_weight.npy   features and weights of its edges, if any

Arrays are read by memory-mapping; none is pickled.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..files import read_json, replacing, write_json
from .partition import Division, Part, make_part

FORMAT = 2
MASKS = ("train_mask", "val_mask", "test_mask")
PART = ("nodes", "boundary", "receive", "edge_index", "edges")
EDGE_VALUES = ("edge_attr", "edge_weight")
# attributes of a graph that have a place of their own; others, which are no tensors, are part of
# the manifest
OWN = (
    "x",
    "y",
    "edge_index",
    "num_nodes",
    "num_classes",
    "name",
    "node_id",
    "classes",
    *MASKS,
    *EDGE_VALUES,
)

READ_AT_ONCE = 2**22


def is_partition(path: str | Path) -> bool:
    """Returns whether a folder holds the parts of a graph."""
    return (Path(path) / "manifest.json").is_file()


def write_parts(
    folder: str | Path, data: Data, description: dict[str, Any], division: Division, parts: int
) -> dict[str, Any]:
    """Writes the parts of a graph into a new folder, and returns the manifest.

    Args:
        folder (str or Path): The folder; a folder that is not empty is refused.
        data (torch_geometric.data.Data): The graph.
        description (dict): The record of a run, :func:`phgcn.train.graph.describe`, with
            ``directed``, ``filled`` and ``uneven``.
        division (Division): The part of each node.
        parts (int): The number of parts.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: is not empty; allowed: a new folder")
    attributes = {name: value for name, value in data.to_dict().items() if name not in OWN}
    for name, value in attributes.items():
        if isinstance(value, Tensor):
            allowed = "features, labels, splits, and edges with weights and features"
            raise ValueError(f"{data.name}: the graph has {name}; allowed for parts: {allowed}")
    files: dict[str, str] = {}

    def save(name: str, array: Any) -> None:
        with replacing(folder / name) as temporary, open(temporary, "wb") as file:
            np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        files[name] = _checksum(folder / name)

    save("labels.npy", data.y.numpy())
    save("node_id.npy", np.array([str(name) for name in data.node_id]))
    for name in MASKS:
        if name in data:
            save(f"{name}.npy", data[name].numpy())
    for rank in range(parts):
        part, index = make_part(data.edge_index, division.owner, rank, parts), _place(rank)
        for name, array in zip(PART, part, strict=True):
            save(f"{index}/{name}.npy", np.asarray(array))
        for name, array in _feature_arrays(data.x, part.nodes).items():
            save(f"{index}/{name}.npy", array)
        for name in EDGE_VALUES:
            if name in data:
                save(f"{index}/{name}.npy", data[name][part.edges].numpy())
    made = {"parts": parts, "division": division.method, "cut": division.cut}
    manifest = {
        "format": FORMAT,
        **made,
        "graph": description,
        "attributes": attributes,
        "files": files,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


def read_manifest(folder: str | Path) -> dict[str, Any]:
    path = Path(folder) / "manifest.json"
    manifest = read_json(path)
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise ValueError(f"{path}: not the parts of a graph that this version of phgcn wrote")
    return manifest


def read_for_process(folder: str | Path, rank: int, processes: int) -> Data:
    """Reads this process's part, with ``data.part``; a single process gets the whole graph."""
    if processes == 1:
        return join_parts(folder)
    manifest = read_manifest(folder)
    parts = manifest["parts"]
    if parts != processes:
        raise ValueError(
            f"{folder}: has {parts} parts for {processes} processes; allowed: {parts} processes, "
            f"or 1"
        )
    data, part = read_part(folder, rank)
    data.part, data.division = part, {name: manifest[name] for name in ("division", "cut")}
    return data


def read_part(folder: str | Path, rank: int) -> tuple[Data, Part]:
    """Reads one part: a graph with features and edges of its own nodes, but labels and splits of
    all, and the node and edge numbers. ``description`` is the whole graph's."""
    manifest, index = read_manifest(folder), _place(rank)
    arrays = {name: _read(folder, f"{index}/{name}.npy", manifest) for name in PART}
    receive = arrays.pop("receive").tolist()
    part = Part(
        receive=receive, **{name: torch.from_numpy(array) for name, array in arrays.items()}
    )
    features = [name for name in manifest["files"] if name.startswith(f"{index}/x")]
    x = _features(
        {Path(name).stem: _read(folder, name, manifest) for name in features},
        manifest["graph"]["features"],
    )
    data = _data(folder, manifest, x, part.edge_index)
    for name in EDGE_VALUES:
        if f"{index}/{name}.npy" in manifest["files"]:
            data[name] = torch.from_numpy(_read(folder, f"{index}/{name}.npy", manifest))
    return data, part


def join_parts(folder: str | Path) -> Data:
    manifest = read_manifest(folder)
    read = [read_part(folder, rank) for rank in range(manifest["parts"])]
    nodes = torch.cat([part.nodes for _, part in read])
    edges = torch.cat([part.edges for _, part in read])
    edge_index = torch.empty(2, len(edges), dtype=torch.int64)
    for _, part in read:
        numbers = torch.cat([part.nodes, part.boundary])
        edge_index[:, part.edges] = numbers[part.edge_index]
    data = _data(folder, manifest, _join_features([data.x for data, _ in read], nodes), edge_index)
    for name in EDGE_VALUES:
        if name in read[0][0]:
            data[name] = torch.cat([some[name] for some, _ in read])[torch.argsort(edges)]
    data.node_id = _read(folder, "node_id.npy", manifest).tolist()
    del data.description  # that of the graph itself is the same
    return data


def _data(folder: str | Path, manifest: dict[str, Any], x: Tensor, edge_index: Tensor) -> Data:
    about = manifest["graph"]
    data = Data(
        x=x, edge_index=edge_index, y=torch.from_numpy(_read(folder, "labels.npy", manifest))
    )
    data.num_nodes, data.num_classes = about["nodes"], len(about["classes"])
    data.name, data.classes, data.description = about["name"], list(about["classes"]), about
    for name, value in manifest["attributes"].items():
        data[name] = value
    for name in MASKS:
        if f"{name}.npy" in manifest["files"]:
            data[name] = torch.from_numpy(_read(folder, f"{name}.npy", manifest))
    return data


def _place(rank: int) -> str:
    return f"part-{rank:03d}"


# Features: dense rows, or those of a sparse matrix


def _feature_arrays(x: Tensor, nodes: Tensor) -> dict[str, Any]:
    if x.layout == torch.strided:
        return {"x": x[nodes].numpy()}
    rows = take_rows(x, nodes)
    return {
        "x_start": rows.crow_indices().numpy(),
        "x_column": rows.col_indices().numpy(),
        "x_value": rows.values().numpy(),
    }


def _features(arrays: dict[str, Any], width: int) -> Tensor:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if "x" in tensors:
        return tensors["x"]
    start = tensors["x_start"]
    return torch.sparse_csr_tensor(
        start,
        tensors["x_column"],
        tensors["x_value"],
        (len(start) - 1, width),
        check_invariants=False,
    )


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Selects rows of features, dense or CSR."""
    if x.layout == torch.strided:
        return x[rows]
    start, counts = x.crow_indices()[rows], x.crow_indices().diff()[rows]
    crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    entries = torch.repeat_interleave(start - crow[:-1], counts) + torch.arange(
        int(crow[-1]), device=x.device
    )
    return torch.sparse_csr_tensor(
        crow,
        x.col_indices()[entries],
        x.values()[entries],
        (len(rows), x.size(1)),
        check_invariants=False,
    )


def _join_features(parts: list[Tensor], nodes: Tensor) -> Tensor:
    """Puts the rows of all parts one after the other."""
    order = torch.argsort(nodes)
    if parts[0].layout == torch.strided:
        return torch.cat(parts)[order]
    starts = [torch.zeros(1, dtype=torch.int64)]
    for part in parts:
        starts.append(part.crow_indices()[1:] + starts[-1][-1])
    columns, values = (
        torch.cat([p.col_indices() for p in parts]),
        torch.cat([p.values() for p in parts]),
    )
    return take_rows(
        torch.sparse_csr_tensor(
            torch.cat(starts),
            columns,
            values,
            (len(nodes), parts[0].size(1)),
            check_invariants=False,
        ),
        order,
    )


# Checked files


def _read(folder: str | Path, name: str, manifest: dict[str, Any]) -> Any:
    """Checks an array's checksum and memory-maps it. Writes stay in this process."""
    path = Path(folder) / name
    if name not in manifest["files"] or not path.is_file():
        raise ValueError(f"{path}: is missing; allowed: all files of the manifest")
    if _checksum(path) != manifest["files"][name]:
        raise ValueError(f"{path}: its checksum is wrong: the file is damaged")
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    return array if array.size > 0 else np.array(array)


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(READ_AT_ONCE):
            digest.update(chunk)
    return digest.hexdigest()
