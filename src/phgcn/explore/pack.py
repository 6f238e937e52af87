"""Packs arrays and text for a page: compressed, then encoded in letters that HTML leaves alone."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .content import Array, Column, Content, EdgeAttention, Side, View

TYPES = {"f4": np.float32, "i4": np.int32}  # the types of numbers that a page reads, little-endian


def pack_bytes(content: bytes) -> str:
    """Compresses bytes in zlib's format, for browsers ``deflate``, and encodes them in base64."""
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def pack_array(values: Array) -> tuple[str, str]:
    """Packs an array; returns its type and the packed text. The first bytes of all numbers come
    first, then the second: they are alike, and compress better."""
    kind = "f4" if values.dtype.kind == "f" else "i4"
    flat = np.ascontiguousarray(values, TYPES[kind]).ravel().astype(f"<{kind}", copy=False)
    planes = flat.view(np.uint8).reshape(-1, 4).T
    return kind, pack_bytes(planes.tobytes())


class Packed:
    """The data of a page: ``header`` for JSON, and packed ``parts`` by name."""

    def __init__(self, content: Content) -> None:
        self.parts: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.names: dict[tuple[str, str], str] = {}
        numbered = all(name == str(number) for number, name in enumerate(content.ids))
        self.header: dict[str, Any] = {
            "title": content.title,
            "nodes": len(content.ids),
            "edges": len(content.sources),
            "numbered": numbered,  # ids are 0, 1, 2, ...: the page makes them itself
            "starts": self._add("starts", content.starts),
            "sources": self._add("sources", content.sources),
            "batch": None if content.batch is None else self._add("batch", content.batch),
            "columns": self._columns(content.columns, "column"),
            "sides": [self._side(side, f"side-{n}") for n, side in enumerate(content.sides)],
            "arrays": self.kinds,
        }
        if not numbered:
            self.parts["ids"] = pack_bytes(json.dumps(list(content.ids)).encode())
        self.parts["header"] = pack_bytes(json.dumps(self.header).encode())

    def _add(self, name: str, values: Array) -> str:
        """Packs an array; returns its name, or the name of an equal one."""
        kind, text = pack_array(values)
        stored = self.names.setdefault((kind, text), name)
        self.kinds[stored], self.parts[stored] = kind, text
        return stored

    def _columns(self, columns: Sequence[Column], name: str) -> list[dict[str, Any]]:
        packed = []
        for number, column in enumerate(columns):
            array = self._add(f"{name}-{number}", column.values)
            categories = None if column.categories is None else list(column.categories)
            packed.append({"name": column.name, "categories": categories, "array": array})
        return packed

    def _side(self, side: Side, name: str) -> dict[str, Any]:
        return {
            "title": side.title,
            "facts": list(side.facts.items()),
            "bestEpoch": side.best_epoch,
            "summary": side.summary,
            "views": [self._view(view, f"{name}-view-{n}") for n, view in enumerate(side.views)],
            "columns": self._columns(side.columns, f"{name}-column"),
            "curves": {key: list(values) for key, values in side.curves.items()},
        }

    def _view(self, view: View, name: str) -> dict[str, Any]:
        heads, dim = view.positions.shape[1:]
        decays = {"decayGlobal": view.decay_global, "decayLocal": view.decay_local}
        return {
            "name": view.name,
            "dim": dim,
            "arrays": [self._add(f"{name}-head-{h}", view.positions[:, h]) for h in range(heads)],
            "selfLoops": view.self_loops,
            "note": view.note,
            **{key: None if decay is None else list(decay) for key, decay in decays.items()},
            "edges": self._edges(view.edge_attention, name),
            "far": self._edges(view.far_attention, f"{name}-far"),
        }

    def _edges(self, attention: EdgeAttention | None, name: str) -> dict[str, Any] | None:
        if attention is None:
            return None
        heads = enumerate(attention.weights.T)
        return {
            "starts": self._add(f"{name}-starts", attention.starts),
            "sources": self._add(f"{name}-sources", attention.sources),
            "weights": [self._add(f"{name}-weights-{head}", weights) for head, weights in heads],
        }
