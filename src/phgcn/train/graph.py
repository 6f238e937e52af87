r"""A graph as training uses it: its source, its features on a device, and a digest to recognise it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import Columns, load_graph
from ..data.encode import indicator_names
from ..data.labels import task_of
from ..data.load import PAIR, features_tensor
from ..data.names import known_graph
from ..distributed.launch import place_among_processes
from ..distributed.part_files import is_partition, read_for_process, read_manifest
from .settings import Settings
from .tasks import find_task

MAX_DENSE_BYTES = 2**32
"""Features on a GPU are stored dense up to this size."""


def find(source: Any, directed: bool = False, task: str | None = None, columns: Columns | None = None) -> tuple[str, Data]:
    """Loads a graph as :func:`phgcn.data.load_graph` does; returns too how to find it again from any folder."""
    if isinstance(source, (str, Path)) and is_partition(source):
        check_parts(source, directed, task)
        return str(Path(source).resolve()), read_for_process(source, *place_among_processes())
    if not isinstance(source, str):
        return "", load_graph(source, directed=directed, task=task, columns=columns, sparse=True)
    data = load_graph(source, directed=directed, task=task, columns=columns, sparse=True)
    return find_source(source), data


def find_source(source: str) -> str:
    """Returns how to find a graph again from any folder."""
    return source if known_graph(source) else PAIR.join(str(Path(part).resolve()) for part in source.split(PAIR))


def check_parts(folder: str | Path, directed: bool, task: str | None) -> None:
    """Refuses parts that were made of edges in another direction, or for another task."""
    manifest = read_manifest(folder)
    made = {"directed": manifest["graph"]["directed"], "task": manifest["attributes"]["task"]}
    for name, wanted in (("directed", directed), ("task", task or made["task"])):
        if made[name] != wanted:
            raise ValueError(f"{folder}: its parts were made with {name} {made[name]}; allowed: the same")


def count_edges(data: Data) -> int:
    """Returns how many edges a graph has; of a part, the whole graph."""
    return int(data.description["edges"] if "description" in data else data.edge_index.size(1))


def default_metric(data: Data) -> str:
    """Returns the name of the metric that is usual for the graph, or else for its task."""
    known, metrics = known_graph(str(data.name)), find_task(task_of(data.y)).metrics
    return known.metric if known and known.metric in metrics else metrics[0]


def check_task(data: Data, task: str) -> None:
    """Refuses a graph whose labels are not for this task, or teach nothing."""
    own = task_of(data.y)
    if own != task:
        raise ValueError(f"{data.name}: task is {task}, but the labels are those of {own}; allowed: {own}")
    try:
        find_task(task).check(data.y)
    except ValueError as error:
        raise ValueError(f"{data.name}: {error}") from None


def class_names(data: Data) -> list[str]:
    """Returns the names of the classes, by class number."""
    return list(data.classes)


def node_names(data: Data) -> list[str]:
    """Returns the ids of the nodes, as the graph's file has them; none of a part of a graph, which has no names."""
    return list(data.node_id) if "node_id" in data else []


def notes(data: Data) -> list[str]:
    """Returns what is worth telling about the file of a graph."""
    return list(data.notes) if "notes" in data else []


# Features and classes by name


def needs_fit(data: Data, settings: Settings) -> bool:
    """Tells whether features are prepared by what the training nodes show: to be scaled, or those of a table, in which, or in
    the next one, numbers may be missing."""
    if settings.scaling != "none" or "feature_columns" in data:
        return True
    return data.x.layout == torch.strided and bool(data.x.isnan().any())


def indicators(data: Data) -> Tensor:
    """Tells which features say whether a node has a category, (F,)."""
    return torch.tensor(_are_indicators(data.to_dict(), data.x.size(1)), dtype=torch.bool)


def _are_indicators(about: Mapping[str, Any], features: int) -> list[bool]:
    """Returns the same as a list, from the parts of a graph or from what :func:`describe` said of it."""
    levels = about.get("feature_levels") or {}
    names = {name for column, values in levels.items() for name in indicator_names(column, values)}
    return [name in names for name in (about["feature_names"] if names else [""] * features)]


def column_kinds(about: Mapping[str, Any], features: int, coordinates: Sequence[str]) -> dict[str, list[int]]:
    """Returns the indices of the features that are ``numeric``, and of those that are ``coordinates``.

    Args:
        about (dict): The parts of a graph by name, or what :func:`describe` said of it.
        features (int): How many features it has.
        coordinates (sequence of str): The names of columns that are coordinates.
    """
    names = list(about["feature_names"]) if "feature_names" in about else [str(column) for column in range(features)]
    numeric = [column for column, is_indicator in enumerate(_are_indicators(about, features)) if not is_indicator]
    known = [names[column] for column in numeric]
    for name in coordinates:
        if name not in known:
            raise ValueError(f"coordinates has {name!r}; allowed: numeric columns, {', '.join(known[:10])}")
    return {"numeric": numeric, "coordinates": [names.index(name) for name in coordinates]}


def match_features(data: Data, about: dict[str, Any]) -> None:
    """Puts features in the order that a run takes them in, by their names; by their number where one side has no names.

    Args:
        data (torch_geometric.data.Data): A graph, changed in place.
        about (dict): What :func:`describe` said of the run's graph.
    """
    names, wanted = data.feature_names if "feature_names" in data else None, about.get("feature_names")
    if names is None or wanted is None:
        if data.x.size(1) != about["features"]:
            allowed = f"{about['features']}, as the run was trained on"
            raise ValueError(f"{data.name}: the graph has {data.x.size(1)} features; allowed: {allowed}")
        return
    missing = [name for name in wanted if name not in set(names)]
    if missing:
        listed = ", ".join(missing[:5]) + (f" and {len(missing) - 5} others" if len(missing) > 5 else "")
        raise ValueError(f"{data.name}: features are missing that the run was trained on: {listed}")
    if names != wanted:
        place = {name: index for index, name in enumerate(names)}
        order = torch.tensor([place[name] for name in wanted])
        sparse = data.x.layout != torch.strided
        data.x = data.x.to_sparse_coo().index_select(1, order).to_sparse_csr() if sparse else data.x[:, order]
        data.feature_names = list(wanted)


def match_edges(data: Data, about: dict[str, Any], taken: tuple[str, ...]) -> None:
    """Leaves out weights and features of edges that a run was trained without; refuses a graph that lacks those it reads.

    Args:
        data (torch_geometric.data.Data): A graph, changed in place.
        about (dict): What :func:`describe` said of the run's graph.
        taken (tuple of str): Which of ``edge_attr`` and ``edge_weight`` the run's model reads.
    """
    trained = {"edge_attr": about.get("edge_features", 0), "edge_weight": int(about.get("edge_weights", False))}
    for name, count in trained.items():
        present = (data[name].size(1) if data[name].dim() == 2 else 1) if name in data else 0
        if count == 0 and present:
            del data[name]
        elif count != present and name in taken:
            what = "features" if name == "edge_attr" else "weights"
            raise ValueError(f"{data.name}: edges have {present} {what}; allowed: {count}, as the run was trained on")


def match_classes(data: Data, classes: list[str]) -> None:
    """Numbers the classes of a graph as a run does, by their names; refuses one that the run does not know."""
    if list(data.classes) == classes or not classes:
        return
    unknown = [name for name in data.classes if name not in classes]
    if unknown:
        raise ValueError(f"{data.name}: the run knows no class {unknown[0]!r}; allowed: {', '.join(classes)}")
    place = torch.tensor([classes.index(name) for name in data.classes], dtype=torch.int64)
    if data.y.dim() == 1:
        data.y = torch.where(data.y >= 0, place[data.y.clamp(min=0)], data.y) if len(place) else data.y
    else:
        y = torch.zeros(len(data.y), len(classes)) + 0 * data.y.sum(dim=1, keepdim=True)  # NaN stays in its rows
        y[:, place] = data.y
        data.y = y
    data.classes, data.num_classes = list(classes), len(classes)


# On a device


def scale_features(x: Tensor, normalise: bool) -> Tensor:
    r"""Divides each row by the sum of its absolute values if ``normalise``, else returns ``x`` as it is.

    Shapes:
        - **x:** :math:`(N, F)`, dense or CSR; **output:** the same
    """
    if not normalise:
        return x
    if x.layout == torch.strided:
        return x / x.abs().sum(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    counts = x.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(len(counts)), counts)
    sums = torch.zeros(len(counts), dtype=x.dtype).index_add_(0, rows, x.values().abs())
    values = x.values() / sums.clamp(min=torch.finfo(x.dtype).tiny)[rows]
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)


def features_on_device(x: Tensor, normalise: bool, device: str | torch.device) -> Tensor:
    """Scales the features (:func:`scale_features`) and moves them to a device, on a GPU as a dense tensor if it fits.

    A dense product takes less time there, has the same bits in every run, and can be part of a CUDA graph.
    """
    x = scale_features(x, normalise).to(device)
    return x.to_dense() if x.is_cuda and x.numel() * x.element_size() <= MAX_DENSE_BYTES else x


def describe(data: Data) -> dict[str, Any]:
    """Returns what a run stores about its graph, to recognise it later; of a part, about the whole."""
    if "description" in data:
        return dict(data.description)
    names = ("feature_names", "feature_columns", "feature_levels", "edge_table")
    return {
        "name": str(data.name),
        "nodes": data.num_nodes,
        "edges": int(data.edge_index.size(1)),
        "features": data.x.size(1),
        "edge_features": data.edge_attr.size(1) if "edge_attr" in data else 0,
        "edge_weights": "edge_weight" in data,
        "classes": class_names(data),
        "digest": digest(data),
        "digests": {name: _hash(parts) for name, parts in _parts(data).items()},
        "rows": digest_rows(data),
        **{name: data[name] for name in names if name in data},
    }


COUNTS = {"nodes": "nodes", "edges": "edges, in both directions", "features": "features", "edge_features": "edge features"}
"""Numbers of a description, and what messages call them."""


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Says what differs between two descriptions of a graph, such as ``120 nodes, before 119; other labels``."""
    said = [f"{now[key]:,} {name}, before {before[key]:,}" for key, name in COUNTS.items() if now[key] != before[key]]
    if now["classes"] != before["classes"]:
        said.append(f"classes {', '.join(now['classes'])}, before {', '.join(before['classes'])}")
    names = [set(description.get("feature_columns", ())) for description in (before, now)]
    said += [f"columns {', '.join(sorted(more))} {what}" for more, what in _differences(*names) if more]
    old, new = before.get("digests", {}), now.get("digests", {})
    other = [name for name in old if old[name] != new.get(name)]
    if other and not said:
        said.append(f"other values of {' and '.join(other)}")
    return "; ".join(said) or "other values"


def _differences(before: set[str], now: set[str]) -> tuple[tuple[set[str], str], ...]:
    return (now - before, "are new"), (before - now, "are gone")


def digest(data: Data) -> str:
    """Returns a hash of features, labels, and edges with their weights and features; of a part, that of the whole
    graph."""
    if "description" in data:
        return str(data.description["digest"])
    return _hash([part for parts in _parts(data).values() for part in parts])


def digest_rows(data: Data) -> str:
    """Returns a hash of the features: graphs with the same one have the same nodes."""
    return _hash(_parts(data)["features"])


def _parts(data: Data) -> dict[str, list[Tensor]]:
    """Returns the tensors of a graph by what they are; features in the same layout, however they were loaded."""
    x = features_tensor(data.x.numpy()) if data.x.layout == torch.strided else data.x
    features = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    values = [data[name] for name in ("edge_weight", "edge_attr") if name in data]
    return {"features": features, "labels": [data.y], "edges": [data.edge_index, *values]}


def _hash(parts: Sequence[Tensor]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(f"{part.dtype}{tuple(part.shape)}".encode())
        state.update(part.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
