"""A graph in training: its source, its features on a device, and a digest to recognise it."""

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
from ..nn.models import replace_values
from ..text import did_you_mean
from .settings import Settings
from .tasks import find_task

MAX_DENSE_BYTES = 2**32  # features on a GPU are stored dense up to this size


def find(
    source: Any, directed: bool = False, task: str | None = None, columns: Columns | None = None
) -> tuple[str, Data]:
    """Loads a graph by :func:`phgcn.data.load_graph`. Returns its source for any working folder,
    and the graph."""
    if isinstance(source, (str, Path)) and is_partition(source):
        check_parts(source, directed, task)
        return str(Path(source).resolve()), read_for_process(source, *place_among_processes())
    data = load_graph(source, directed=directed, task=task, columns=columns, sparse=True)
    return find_source(source) if isinstance(source, str) else "", data


def find_source(source: str) -> str:
    """Makes the paths of a source absolute."""
    if known_graph(source):
        return source
    return PAIR.join(part and str(Path(part).resolve()) for part in source.split(PAIR))


def check_parts(folder: str | Path, directed: bool, task: str | None) -> None:
    """Refuses parts of edges in another direction, or for another task."""
    manifest = read_manifest(folder)
    made = {"directed": manifest["graph"]["directed"], "task": manifest["attributes"]["task"]}
    requested = {"directed": directed, "task": task or made["task"]}
    for name, value in made.items():
        if value != requested[name]:
            problem = f"{folder}: its parts were made with {name} {value}"
            raise ValueError(f"{problem}; allowed: the same")


def count_edges(data: Data) -> int:
    """Returns the number of edges of a graph; a part has the whole graph's."""
    return int(data.description["edges"] if "description" in data else data.edge_index.size(1))


def default_metric(data: Data) -> str:
    """Returns the name of the usual metric of the graph, or else of its task."""
    known, metrics = known_graph(str(data.name)), find_task(task_of(data.y)).metrics
    return known.metric if known and known.metric in metrics else metrics[0]


def check_task(data: Data, task: str) -> None:
    """Refuses a graph if its labels belong to another task, or are all the same."""
    own = task_of(data.y)
    if own != task:
        problem = f"{data.name}: task is {task}, but the labels are those of {own}"
        raise ValueError(f"{problem}; allowed: {own}")
    try:
        find_task(task).check(data.y)
    except ValueError as error:
        raise ValueError(f"{data.name}: {error}") from None


def class_names(data: Data) -> list[str]:
    return list(data.classes)


def node_names(data: Data) -> list[str]:
    """Returns the ids of the nodes in the graph's file; a part of a graph has none."""
    return list(data.node_id) if "node_id" in data else []


def notes(data: Data) -> list[str]:
    """Returns remarks about the file of a graph."""
    return list(data.notes) if "notes" in data else []


# Features and classes by name


def needs_fit(data: Data, settings: Settings) -> bool:
    """Returns whether features are fitted to training nodes: they are scaled, or come from a table,
    in which numbers may be missing."""
    if settings.scaling != "none" or "feature_columns" in data:
        return True
    return data.x.layout == torch.strided and bool(data.x.isnan().any())


def indicators(data: Data) -> Tensor:
    """Returns a mask (F,): True for one-hot columns made from a categorical column."""
    return torch.tensor(_are_indicators(data.to_dict(), data.x.size(1)), dtype=torch.bool)


def _are_indicators(about: Mapping[str, Any], features: int) -> list[bool]:
    levels = about.get("feature_levels") or {}
    names = {name for column, values in levels.items() for name in indicator_names(column, values)}
    return [name in names for name in (about["feature_names"] if names else [""] * features)]


def column_kinds(
    about: Mapping[str, Any], features: int, coordinates: Sequence[str]
) -> dict[str, list[int]]:
    """Returns the indices of ``numeric`` features and of ``coordinates``.

    Args:
        about (dict): The parts of a graph by name, or a description by :func:`describe`.
        features (int): The number of features.
        coordinates (sequence of str): The names of columns that are coordinates.
    """
    names = list(about.get("feature_names", map(str, range(features))))
    are_indicators = _are_indicators(about, features)
    numeric = [column for column in range(features) if not are_indicators[column]]
    known = [names[column] for column in numeric]
    unknown = [name for name in coordinates if name not in known]
    if unknown:
        named = f"{', '.join(map(repr, unknown))}{did_you_mean(unknown, known)}"
        allowed = f"numeric columns, {', '.join(known[:10])}"
        raise ValueError(f"coordinates has {named}; allowed: {allowed}")
    return {"numeric": numeric, "coordinates": [names.index(name) for name in coordinates]}


def match_features(data: Data, about: dict[str, Any]) -> None:
    """Orders features by name as a run takes them; without names their number must be the same.

    Args:
        data (torch_geometric.data.Data): A graph, changed in place.
        about (dict): The description of the run's graph, by :func:`describe`.
    """
    names, expected = data.to_dict().get("feature_names"), about.get("feature_names")
    if names is None or expected is None:
        if data.x.size(1) != about["features"]:
            allowed = f"{about['features']}, as the run was trained on"
            problem = f"{data.name}: the graph has {data.x.size(1)} features"
            raise ValueError(f"{problem}; allowed: {allowed}")
        return
    missing = [name for name in expected if name not in set(names)]
    if missing:
        others = f" and {len(missing) - 5} others" if len(missing) > 5 else ""
        problem = "features are missing that the run was trained on"
        raise ValueError(f"{data.name}: {problem}: {', '.join(missing[:5])}{others}")
    if names != expected:
        indices = {name: index for index, name in enumerate(names)}
        order = torch.tensor([indices[name] for name in expected])
        if data.x.layout == torch.strided:
            data.x = data.x[:, order]
        else:
            data.x = data.x.to_sparse_coo().index_select(1, order).to_sparse_csr()
        data.feature_names = list(expected)


def match_edges(data: Data, about: dict[str, Any], taken: tuple[str, ...]) -> None:
    """Removes edge weights and features that a run was trained without. Refuses a graph without
    those in ``taken``, which the model reads."""
    features, weights = about.get("edge_features", 0), int(about.get("edge_weights", False))
    trained = {"edge_attr": (features, "features"), "edge_weight": (weights, "weights")}
    for name, (count, what) in trained.items():
        present = (data[name].size(1) if data[name].dim() == 2 else 1) if name in data else 0
        if count == 0 and present:
            del data[name]
        elif count != present and name in taken:
            allowed = f"{count}, as the run was trained on"
            raise ValueError(f"{data.name}: edges have {present} {what}; allowed: {allowed}")


def match_classes(data: Data, classes: list[str]) -> None:
    """Numbers the classes of a graph by their names in a run; refuses unknown classes."""
    if list(data.classes) == classes or not classes:
        return
    unknown = [name for name in data.classes if name not in classes]
    if unknown:
        problem = f"{data.name}: the run knows no class {unknown[0]!r}"
        raise ValueError(f"{problem}; allowed: {', '.join(classes)}")
    index = torch.tensor([classes.index(name) for name in data.classes], dtype=torch.int64)
    if data.y.dim() == 2:
        # NaN stays in its rows
        y = torch.zeros(len(data.y), len(classes)) + 0 * data.y.sum(dim=1, keepdim=True)
        y[:, index] = data.y
        data.y = y
    elif len(index):
        data.y = torch.where(data.y >= 0, index[data.y.clamp(min=0)], data.y)
    data.classes, data.num_classes = list(classes), len(classes)


# On a device


def scale_features(x: Tensor, normalise: bool) -> Tensor:
    """Divides rows of ``x`` (N, F) by their absolute sums if ``normalise``."""
    if not normalise:
        return x
    if x.layout == torch.strided:
        return x / x.abs().sum(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    counts = x.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(len(counts)), counts)
    sums = torch.zeros(len(counts), dtype=x.dtype).index_add_(0, rows, x.values().abs())
    return replace_values(x, x.values() / sums.clamp(min=torch.finfo(x.dtype).tiny)[rows])


def features_on_device(x: Tensor, normalise: bool, device: str | torch.device) -> Tensor:
    """Scales the features (:func:`scale_features`) and moves them to a device. On a GPU they are
    dense up to :data:`MAX_DENSE_BYTES`, as dense products are faster and repeat their bits."""
    x = scale_features(x, normalise).to(device)
    return x.to_dense() if x.is_cuda and x.numel() * x.element_size() <= MAX_DENSE_BYTES else x


def describe(data: Data) -> dict[str, Any]:
    """Returns the description of a graph that a run stores; a part has the whole graph's."""
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
        "digests": {name: _hash(parts) for name, parts in _parts(data).items()}
        | {"ids": hashlib.sha256(repr(node_names(data)).encode()).hexdigest()[:16]},
        "rows": digest_rows(data),
        **{name: data[name] for name in names if name in data},
    }


# names in messages for numbers of a description
COUNTS = {"edges": "edges, in both directions", "edge_features": "edge features"}


def _changed_digests(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the parts of a graph that have changed."""
    digests, old = now.get("digests", {}), before.get("digests", {})
    return [name for name in old if old[name] != digests.get(name)]


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Describes changes of a graph, such as ``120 nodes, before 119``, or returns ""."""
    others = _changed_digests(before, now)
    if now["digest"] == before["digest"] and not others:
        return ""
    changes = [
        f"{now[key]:,} {COUNTS.get(key, key)}, before {before[key]:,}"
        for key in ("nodes", "edges", "features", "edge_features")
        if now[key] != before[key]
    ]
    classes, old_classes = (", ".join(about["classes"]) for about in (now, before))
    if classes != old_classes:
        changes.append(f"classes {classes}, before {old_classes}")
    columns, old_columns = (set(about.get("feature_columns", ())) for about in (now, before))
    for names, what in ((columns - old_columns, "new"), (old_columns - columns, "gone")):
        if names:
            changes.append(f"columns {', '.join(sorted(names))} are {what}")
    of = f" of {' and '.join(others)}" if others else ""
    return "; ".join(changes) or f"other values{of}"


def changed_file(source: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns the file of a changed graph, of a pair of tables each that can have changed."""
    nodes, _, edges = source.partition(PAIR)
    changed = _changed_digests(before, now)
    can_have = {nodes: changed != ["edges"], edges: not changed or "edges" in changed}
    return " or ".join(file for file, can in can_have.items() if file and (can or not edges))


def digest(data: Data) -> str:
    """Returns a hash of features, labels and edges; a part has the whole graph's."""
    if "description" in data:
        return str(data.description["digest"])
    return _hash([part for parts in _parts(data).values() for part in parts])


def digest_rows(data: Data) -> str:
    """Returns a hash of the features; graphs with the same hash have the same nodes."""
    return _hash(_parts(data)["features"])


def _parts(data: Data) -> dict[str, list[Tensor]]:
    """Groups the tensors of a graph; the layout of features follows from their values."""
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
