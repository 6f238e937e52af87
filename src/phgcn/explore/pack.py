r"""Packs arrays and text for a page: compressed, then written in letters that HTML leaves alone."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

from .content import Array, Column, Content, EdgeAttention, Side

TYPES = {"f4": np.float32, "i4": np.int32}
"""The types of numbers that a page reads, little-endian."""


def pack_bytes(content: bytes) -> str:
    """Compresses bytes in zlib's format, which browsers call ``deflate``, and encodes them in base64."""
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def pack_array(values: Array) -> tuple[str, str]:
    """Packs an array; returns its type and the packed text.

    The first bytes of all numbers are stored first, then the second ones, and so on: they are alike, and compress better.
    """
    kind = "f4" if values.dtype.kind == "f" else "i4"
    flat = np.ascontiguousarray(values, TYPES[kind]).ravel().astype(f"<{kind}", copy=False)
    planes = flat.view(np.uint8).reshape(-1, 4).T
    return kind, pack_bytes(planes.tobytes())


class Packed:
    """The parts of a page that are data: ``header``, ready for JSON, and ``parts``, packed text by name."""

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
            "columns": [self._column(column, f"column-{number}") for number, column in enumerate(content.columns)],
            "sides": [self._side(side, f"side-{number}") for number, side in enumerate(content.sides)],
            "arrays": self.kinds,
        }
        if not numbered:
            self.parts["ids"] = pack_bytes(json.dumps(list(content.ids)).encode())
        self.parts["header"] = pack_bytes(json.dumps(self.header).encode())

    def _add(self, name: str, values: Array) -> str:
        """Packs an array; returns its name, or that of an equal one that is there already."""
        kind, text = pack_array(values)
        stored = self.names.setdefault((kind, text), name)
        self.kinds[stored], self.parts[stored] = kind, text
        return stored

    def _column(self, column: Column, name: str) -> dict[str, Any]:
        categories = None if column.categories is None else list(column.categories)
        return {"name": column.name, "categories": categories, "array": self._add(name, column.values)}

    def _side(self, side: Side, name: str) -> dict[str, Any]:
        views = []
        for number, view in enumerate(side.views):
            heads, dim = view.positions.shape[1:]
            arrays = [self._add(f"{name}-view-{number}-head-{head}", view.positions[:, head]) for head in range(heads)]
            decays = {"decayGlobal": view.decay_global, "decayLocal": view.decay_local}
            about = {"name": view.name, "dim": dim, "arrays": arrays, "selfLoops": view.self_loops, "note": view.note}
            about |= {key: None if decay is None else list(decay) for key, decay in decays.items()}
            views.append({**about, "edges": self._edges(view.edge_attention, f"{name}-view-{number}")})
        columns = [self._column(column, f"{name}-column-{number}") for number, column in enumerate(side.columns)]
        curves = {key: list(values) for key, values in side.curves.items()}
        about = {"title": side.title, "facts": list(side.facts.items()), "bestEpoch": side.best_epoch}
        about["summary"] = side.summary
        return {**about, "views": views, "columns": columns, "curves": curves}

    def _edges(self, attention: EdgeAttention | None, name: str) -> dict[str, Any] | None:
        if attention is None:
            return None
        weights = [
            self._add(f"{name}-weights-{head}", attention.weights[:, head]) for head in range(attention.weights.shape[1])
        ]
        starts, sources = self._add(f"{name}-starts", attention.starts), self._add(f"{name}-sources", attention.sources)
        return {"starts": starts, "sources": sources, "weights": weights}
