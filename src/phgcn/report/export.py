r"""Writes what a trained model knows of every node: embeddings, attention and predictions, for other programs.

As tables (CSV, Parquet) or as arrays (npz).  Tables are long: one row for each node, layer and head (embeddings), or for each
pair of nodes, layer and head (attention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..files import is_stream, replacing, write_csv
from ..train import graph as graphs
from ..train.plan import Trial
from ..train.prediction import choose_trial, logits, trial_inputs, trial_values
from ..train.run import Run
from .layers import LayerView, view_layers

PARTS = ("embeddings", "attention", "predictions")

Columns = dict[str, Any]
"""A table: one array or list per column, all of one length."""

Arrays = dict[str, Any]
"""Arrays by name, for an npz file."""


class Export:
    """What can be exported of one trained model.

    Args:
        run (Run): A run with at least one trained split.
        data (torch_geometric.data.Data): The graph.
        split (int, optional): The split whose model is asked. (default: :obj:`None`, the best on validation nodes)
        top (int, optional): How many targets of global attention each node has, the strongest. (default: :obj:`10`)
        nodes (list of str, optional): The ids of the nodes whose attention is exported. (default: :obj:`None`, all)
    """

    def __init__(
        self, run: Run, data: Data, split: int | None = None, top: int = 10, nodes: Sequence[str] | None = None
    ) -> None:
        if top < 1:
            raise ValueError(f"top is {top}; allowed: 1 or more")
        self.run, self.data, self.top = run, data, top
        self.trial: Trial = choose_trial(run, split)
        self.ids = np.array(graphs.node_names(data), dtype=str)
        self.nodes = torch.arange(len(self.ids)) if nodes is None else _numbers_of(nodes, self.ids.tolist())
        inputs, values = trial_inputs(run, self.trial, data), trial_values(run, self.trial, data)
        self.views = view_layers(run.model(self.trial).to(run.plan.device), inputs, values)

    # Tables

    def embeddings(self) -> Columns:
        """Returns a row per node, layer and head: ``id``, ``layer``, ``head``, and the position ``p0``, ``p1``, ..."""
        views = self._embedded()
        width = max(view.positions.size(2) for view in views if view.positions is not None)
        parts = []
        for view in views:
            assert view.positions is not None
            count, heads, dims = view.positions.shape
            padded = torch.full((count, heads, width), torch.nan)
            padded[..., :dims] = view.positions
            coordinates = {f"p{axis}": padded[..., axis].flatten().numpy() for axis in range(width)}
            heads_column = np.tile(np.arange(heads), count)
            parts.append({"id": self.ids.repeat(heads), "layer": view.name, "head": heads_column, **coordinates})
        return _stack(parts)

    def attention(self) -> Columns:
        """Returns a row per pair of nodes, layer and head: ``path`` (``local`` to a neighbour, ``global`` to any node),
        ``layer``, ``head``, ``node``, the ``target`` that it attends to, and the ``weight``, the strongest first."""
        parts = [self._local_rows(view) for view in self.views if view.edges is not None]
        parts += [self._global_rows(view) for view in self.views if view.decay is not None]
        if not parts:
            raise ValueError(f"{self.run.plan.model} has no attention; allowed: --embeddings, --predictions, or another model")
        return _stack(parts)

    def predictions(self) -> Columns:
        """Returns a row per node, as ``phgcn predict`` writes it."""
        table = self._kind().table(logits(self.run, self.trial, self.data), self.run.about["graph"]["classes"])
        columns = list(map(list, zip(*table.rows, strict=True)))
        typed = {
            name: cells if name == "label" else list(map(float, cells))
            for name, cells in zip(table.heading, columns, strict=True)
        }
        return {"id": self.ids, **typed}

    def _local_rows(self, view: LayerView) -> Columns:
        edges, weights = self._local(view)
        order = torch.argsort(weights, dim=0, descending=True)
        order = order.gather(0, torch.argsort(edges[1][order], dim=0, stable=True))  # by node, then by weight
        count, heads = weights.shape
        return {
            "path": "local",
            "layer": view.name,
            "head": np.arange(heads).repeat(count),
            "node": self.ids[edges[1][order.T.flatten()]],
            "target": self.ids[edges[0][order.T.flatten()]],
            "weight": weights.gather(0, order).T.flatten().numpy(),
        }

    def _global_rows(self, view: LayerView) -> Columns:
        targets, weights = (part.transpose(0, 1).flatten() for part in view.strongest(self.top, self.nodes))
        heads = targets.numel() // max(len(self.nodes) * self.top, 1)
        there = (targets >= 0).numpy()
        per_head = len(self.nodes) * self.top
        return {
            "path": "global",
            "layer": view.name,
            "head": np.arange(heads).repeat(per_head)[there],
            "node": np.tile(self.ids[self.nodes].repeat(self.top), heads)[there],
            "target": self.ids[targets[torch.from_numpy(there)]],
            "weight": weights.numpy()[there],
        }

    # Arrays

    def embedding_arrays(self) -> Arrays:
        """Returns the positions of each layer, (N, H, D)."""
        return {f"{view.name}.positions": _numpy(view.positions) for view in self._embedded()}

    def attention_arrays(self) -> Arrays:
        """Returns, of each layer, edges (2, E) with their weights (E, H), and the strongest targets of nodes with theirs,
        (M, H, k); -1 where there is none."""
        arrays: Arrays = {"nodes": self.nodes.numpy()}
        for view in self.views:
            if view.edges is not None:
                edges, weights = self._local(view)
                arrays |= {f"{view.name}.edges": edges.numpy(), f"{view.name}.edge_weights": weights.numpy()}
            if view.decay is not None:
                targets, weights = view.strongest(self.top, self.nodes)
                arrays |= {f"{view.name}.targets": targets.numpy(), f"{view.name}.target_weights": weights.numpy()}
        if len(arrays) == 1:
            self.attention()  # says that there is none
        return arrays

    def prediction_arrays(self) -> Arrays:
        """Returns predictions, the probabilities of classes if there are any, and the names of the classes."""
        kind, outputs = self._kind(), logits(self.run, self.trial, self.data)
        arrays = {
            "predicted": kind.predict(outputs).numpy(),
            "classes": np.array(self.run.about["graph"]["classes"], dtype=str),
        }
        probabilities = kind.probabilities(outputs)
        return arrays if probabilities is None else {**arrays, "probabilities": probabilities.numpy()}

    def _embedded(self) -> list[LayerView]:
        views = [view for view in self.views if view.positions is not None]
        if not views:
            raise ValueError(f"{self.run.plan.model} has no embedding; allowed: --attention, --predictions, or another model")
        return views

    def _local(self, view: LayerView) -> tuple[Tensor, Tensor]:
        """Returns the edges into the nodes that are asked for, and their weights."""
        assert view.edges is not None and view.weights is not None
        wanted = torch.zeros(len(self.ids), dtype=torch.bool)
        wanted[self.nodes] = True
        kept = wanted[view.edges[1]]
        return view.edges[:, kept], view.weights[kept]

    def _kind(self) -> Any:
        return self.run.kind(self.trial)


def _numbers_of(nodes: Sequence[str], ids: list[str]) -> Tensor:
    number = {name: place for place, name in enumerate(ids)}
    for name in nodes:
        if name not in number:
            raise ValueError(f"node is {name!r}; allowed: the id of a node, such as {ids[0]!r}")
    return torch.tensor([number[name] for name in nodes], dtype=torch.int64)


def _numpy(tensor: Tensor | None) -> Any:
    assert tensor is not None
    return tensor.numpy()


def _stack(parts: list[Columns]) -> Columns:
    """Puts tables with the same columns one below the other; a text stands for a column of that text."""
    lengths = [max(len(column) for column in part.values() if not isinstance(column, str)) for part in parts]
    full = [
        {name: np.full(length, column) if isinstance(column, str) else column for name, column in part.items()}
        for part, length in zip(parts, lengths, strict=True)
    ]
    return {name: np.concatenate([part[name] for part in full]) for name in full[0]}


# Files


def export(made: Export, parts: Sequence[str], path: str | Path) -> list[Path]:
    """Writes parts of an export; the end of the name tells the format: ``.csv``, ``.parquet`` or ``.npz``.  Standard output
    (``-``), a pipe or a device whose name tells none gets one part as CSV.

    An npz file holds all parts.  Of tables, which have different columns, each part gets a file of its own if there are
    several: ``NAME-embeddings.csv`` and so on.

    Args:
        made (Export): The model and its graph.
        parts (list of str): Some of :data:`PARTS`.
        path (str or Path): The file.

    Returns:
        The files.
    """
    path = Path(path)
    if not parts or not set(parts) <= set(PARTS):
        raise ValueError(f"parts is {list(parts)}; allowed: one or more of {', '.join(PARTS)}")
    if path.suffix == ".npz":
        return [_write_npz(made, parts, path)]
    if is_stream(path):
        return [_write_stream(made, parts, path)]
    if path.suffix not in WRITERS:
        raise ValueError(f"{path}: files of kind {path.suffix!r} are not written; allowed: {', '.join([*WRITERS, '.npz'])}")
    tables = {part: getattr(made, part)() for part in parts}
    files = [path if len(tables) == 1 else path.with_name(f"{path.stem}-{part}{path.suffix}") for part in tables]
    for file, columns in zip(files, tables.values(), strict=True):
        WRITERS[path.suffix](file, columns)
    return files


def _write_stream(made: Export, parts: Sequence[str], path: Path) -> Path:
    """Writes one table to what is no regular file."""
    if len(parts) > 1:
        raise ValueError(f"{path}: gets {len(parts)} tables, {', '.join(parts)}; allowed: one of them, or an npz file")
    WRITERS.get(path.suffix, _write_csv)(path, getattr(made, parts[0])())
    return path


def _write_npz(made: Export, parts: Sequence[str], path: Path) -> Path:
    makers = {
        "embeddings": made.embedding_arrays,
        "attention": made.attention_arrays,
        "predictions": made.prediction_arrays,
    }
    arrays: Arrays = {"ids": made.ids}
    for part in parts:
        arrays |= makers[part]()
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
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path}: needs the package pyarrow: pip install 'phgcn[parquet]'") from None
    table = pyarrow.table({name: np.asarray(column).tolist() for name, column in columns.items()})
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(table, temporary)


WRITERS: dict[str, Callable[[Path, Columns], None]] = {".csv": _write_csv, ".parquet": _write_parquet}
