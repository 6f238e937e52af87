"""Writes embeddings, attention and predictions of a trained model for other programs.

Tables (CSV, Parquet) are long: one row per node, layer and head (embeddings), or per pair of nodes,
layer and head (attention). The other format is arrays (npz)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..files import is_stream, replacing, write_csv
from ..train import graph as graphs
from ..train.plan import Trial
from ..train.prediction import choose_trial, trial_model
from ..train.run import Run
from .layers import LayerView, view_layers

PARTS = ("embeddings", "attention", "predictions")

Columns = dict[str, Any]  # a table: one array or list per column, all of one length
Arrays = dict[str, Any]  # arrays by name, for an npz file
Array = NDArray[Any]


class Export:
    """The exports of one trained model, by default of the best split: attention of ``nodes``, given
    by id, or of all, and globally to the ``top`` strongest targets."""

    def __init__(
        self,
        run: Run,
        data: Data,
        split: int | None = None,
        top: int = 10,
        nodes: Sequence[str] | None = None,
    ) -> None:
        if top < 1:
            raise ValueError(f"top is {top}; allowed: 1 or more")
        self.top, self.ids = top, np.array(graphs.node_names(data), dtype=str)
        self.trial: Trial = choose_trial(run, split)
        self.nodes = torch.arange(len(self.ids)) if nodes is None else find_nodes(nodes, data)
        self.kind, self.classes = run.kind(self.trial), run.about["graph"]["classes"]
        self.trained = trial_model(run, self.trial, data)
        self.views = view_layers(self.trained.model, self.trained.inputs, self.trained.values)

    # Arrays

    def embedding_arrays(self) -> Arrays:
        """Returns the positions of each layer, (N, H, D)."""
        pairs = [(f"{view.name}.positions", view.positions) for view in self.views]
        found = {name: positions.numpy() for name, positions in pairs if positions is not None}
        if not found:
            raise self._has_none("embedding", "--attention, --predictions")
        return found

    def attention_arrays(self) -> Arrays:
        """Returns per layer the edges (2, E) with weights (E, H), and the strongest targets with
        weights (M, H, k), -1 for none."""
        arrays: Arrays = {"nodes": self.nodes.numpy()}
        asked = torch.zeros(len(self.ids), dtype=torch.bool).index_fill(0, self.nodes, True)
        for view in self.views:
            if view.edges is not None and view.weights is not None:
                kept = asked[view.edges[1]]
                arrays[f"{view.name}.edges"] = view.edges[:, kept].numpy()
                arrays[f"{view.name}.edge_weights"] = view.weights[kept].numpy()
            if view.decay is not None:
                targets, weights = view.strongest(self.top, self.nodes)
                arrays[f"{view.name}.targets"] = targets.numpy()
                arrays[f"{view.name}.target_weights"] = weights.numpy()
        if len(arrays) == 1:
            raise self._has_none("attention", "--embeddings, --predictions")
        return arrays

    def prediction_arrays(self) -> Arrays:
        """Returns predictions, names of classes, and probabilities if there are any."""
        outputs, classes = self.trained.logits(), np.array(self.classes, dtype=str)
        arrays = {"predicted": self.kind.predict(outputs).numpy(), "classes": classes}
        probabilities = self.kind.probabilities(outputs)
        if probabilities is not None:
            arrays["probabilities"] = probabilities.numpy()
        return arrays

    def _has_none(self, what: str, others: str) -> ValueError:
        allowed = f"{others}, or another model"
        return ValueError(f"{self.trial.plan.model} has no {what}; allowed: {allowed}")

    # Tables

    def embeddings(self) -> Columns:
        """Returns a row per node, layer and head, with the position ``p0``, ``p1``, ..."""
        arrays, parts = self.embedding_arrays(), []
        width = max(positions.shape[2] for positions in arrays.values())
        for name, positions in arrays.items():
            count, heads, dims = positions.shape
            padding = [(0, 0), (0, 0), (0, width - dims)]
            points = np.pad(positions, padding, constant_values=np.nan).reshape(-1, width)
            columns: Columns = {"id": self.ids.repeat(heads), "layer": name.split(".")[0]}
            columns["head"] = np.tile(np.arange(heads), count)
            parts.append(columns | {f"p{axis}": points[:, axis] for axis in range(width)})
        return _stack(parts)

    def attention(self) -> Columns:
        """Returns a row per pair of nodes, layer and head: ``path`` (``local`` to a neighbour,
        ``global`` to any node), ``layer``, ``head``, ``node``, ``target`` and ``weight``, the
        strongest first."""
        arrays, local, anywhere = self.attention_arrays(), [], []
        for view in self.views:
            if view.edges is not None:
                targets, nodes = arrays[f"{view.name}.edges"]
                for head, weights in enumerate(arrays[f"{view.name}.edge_weights"].T):
                    order = np.lexsort((-weights, nodes))
                    pairs = nodes[order], targets[order], weights[order]
                    local.append(self._rows("local", view, head, *pairs))
            if view.decay is not None:
                for head in range(arrays[f"{view.name}.targets"].shape[1]):
                    targets = arrays[f"{view.name}.targets"][:, head]
                    weights = arrays[f"{view.name}.target_weights"][:, head]
                    nodes, there = arrays["nodes"].repeat(targets.shape[1]), targets.ravel() >= 0
                    pairs = nodes[there], targets.ravel()[there], weights.ravel()[there]
                    anywhere.append(self._rows("global", view, head, *pairs))
        return _stack([*local, *anywhere])

    def _rows(
        self, path: str, view: LayerView, head: int, nodes: Array, targets: Array, weights: Array
    ) -> Columns:
        about = {"path": path, "layer": view.name, "head": head}
        return {**about, "node": self.ids[nodes], "target": self.ids[targets], "weight": weights}

    def predictions(self) -> Columns:
        """Returns a row per node, as ``phgcn predict`` writes it."""
        table = self.kind.table(self.trained.logits(), self.classes)
        columns: Columns = {"id": self.ids}
        for name, *cells in zip(table.heading, *table.rows, strict=True):
            columns[name] = cells if name == "label" else list(map(float, cells))
        return columns


def find_nodes(names: Sequence[str], data: Data) -> Tensor:
    ids = graphs.node_names(data)
    index = {name: node for node, name in enumerate(ids)}
    for name in names:
        if name not in index:
            raise ValueError(f"node is {name!r}; allowed: the id of a node, such as {ids[0]!r}")
    return torch.tensor([index[name] for name in names], dtype=torch.int64)


def _stack(parts: list[Columns]) -> Columns:
    """Concatenates tables of equal columns. A text or number stands for a whole column."""
    rows = [len([*part.values()][-1]) for part in parts]
    return {
        name: np.concatenate(
            [np.broadcast_to(part[name], count) for part, count in zip(parts, rows, strict=True)]
        )
        for name in parts[0]
    }


# Files


def export(made: Export, parts: Sequence[str], path: str | Path) -> list[Path]:
    """Writes parts of an export, and returns the files: ``.npz`` takes all parts, several parts as
    ``.csv`` or ``.parquet`` become ``NAME-embeddings.csv`` and so on. A stream (``-``, a pipe, a
    device) gets one part, as CSV by default."""
    path = Path(path)
    if not parts or not set(parts) <= set(PARTS):
        raise ValueError(f"parts is {list(parts)}; allowed: one or more of {', '.join(PARTS)}")
    if path.suffix == ".npz":
        return [_write_npz(made, parts, path)]
    if is_stream(path):
        return [_write_stream(made, parts, path)]
    if path.suffix not in WRITERS:
        allowed = ", ".join([*WRITERS, ".npz"])
        what = f"files of kind {path.suffix!r} are not written"
        raise ValueError(f"{path}: {what}; allowed: {allowed}")
    tables = {part: getattr(made, part)() for part in parts}  # before anything is written
    files = [path.with_name(f"{path.stem}-{part}{path.suffix}") for part in tables]
    files = [path] if len(files) == 1 else files
    for file, columns in zip(files, tables.values(), strict=True):
        WRITERS[path.suffix](file, columns)
    return files


def _write_stream(made: Export, parts: Sequence[str], path: Path) -> Path:
    if len(parts) > 1:
        allowed = "one of them, or an npz file"
        what = f"gets {len(parts)} tables, {', '.join(parts)}"
        raise ValueError(f"{path}: {what}; allowed: {allowed}")
    WRITERS.get(path.suffix, _write_csv)(path, getattr(made, parts[0])())
    return path


def _write_npz(made: Export, parts: Sequence[str], path: Path) -> Path:
    makers = (made.embedding_arrays, made.attention_arrays, made.prediction_arrays)
    arrays: Arrays = {"ids": made.ids}
    for part in parts:
        arrays |= makers[PARTS.index(part)]()
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def _write_csv(path: Path, columns: Columns) -> None:
    cells = [
        [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in np.asarray(column).tolist()]
        for column in columns.values()
    ]
    write_csv(path, list(columns), zip(*cells, strict=True))


def _write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: np.asarray(column).tolist() for name, column in columns.items()})
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(table, temporary)


WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
