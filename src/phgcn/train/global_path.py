"""Statistics of a model's global path: rows for a file, a summary and a sentence.

A model's ``global_statistics(x, edge_index)`` returns one dict per layer: lists over heads of
``decay``, ``spread``, ``effective_nodes`` and ``self_share``, and the number ``gate`` of a gated
layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

# the columns of samples taken during a training
ATTENTION = ("epoch", "layer", "head", "decay", "spread", "effective_nodes", "self_share", "gate")

CLOSED_GATE = 0.01  # a global path with a smaller root mean square of gates changes nearly nothing
MEAN_SHARE = 0.8  # attention to a larger share of all nodes is nearly their mean


def switch_global(model: Module, on: bool) -> None:
    switch: Any = getattr(model, "set_global", None)
    if switch is None:
        allowed = f"allowed for {type(model).__name__}: 0, as it has no path to switch on"
        raise ValueError(f"local_epochs is positive; {allowed}")
    switch(on)


@torch.no_grad()
def global_statistics(
    model: Module, inputs: Sequence[Tensor], edge_values: Mapping[str, Tensor] | None = None
) -> list[dict[str, Any]]:
    """Switches the global path on; returns each layer's statistics and its ``layer``."""
    measure = getattr(model, "global_statistics", None)
    if measure is None:
        return []
    if hasattr(model, "set_global"):
        switch_global(model, True)
    model.eval()
    layers = measure(*inputs[:2], **(edge_values or {}))
    return [{"layer": index, **layer} for index, layer in enumerate(layers)]


def sample_rows(epoch: int, statistics: list[dict[str, Any]]) -> list[tuple[float, ...]]:
    """Returns a row of :data:`ATTENTION` for each head of each layer. Layers without a gate count
    as gate 1."""
    rows = []
    for layer in statistics:
        gate = 1.0 if layer.get("gate") is None else layer["gate"]
        for head, values in enumerate(zip(*(layer[key] for key in ATTENTION[3:7]), strict=True)):
            rows.append((epoch, layer["layer"], head, *values, gate))
    return rows


def head_medians(splits: list[list[dict[str, Any]]]) -> list[dict[str, float]]:
    """Returns medians over splits per layer and head, with columns of :data:`ATTENTION`."""
    by_head: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for row in (row for split in splits for row in sample_rows(0, split)):
        by_head.setdefault(row[1:3], []).append(row[3:])
    medians = [(*head, *map(median, zip(*by_head[head], strict=True))) for head in by_head]
    return [dict(zip(ATTENTION[1:], row, strict=True)) for row in medians]


def summarise(splits: list[list[dict[str, Any]]], nodes: int) -> dict[str, Any] | None:
    """Returns medians over splits, layers and heads; :obj:`None` without global path."""
    layers = [layer for split in splits for layer in split]
    if not layers:
        return None
    gates = [layer["gate"] for layer in layers if layer.get("gate") is not None]
    return {
        "nodes": nodes,
        "effective_nodes": median(count for layer in layers for count in layer["effective_nodes"]),
        "self_share": median(share for layer in layers for share in layer["self_share"]),
        "gate": median(gates) if gates else None,
    }


def describe_global_path(summary: dict[str, Any] | None, config: Mapping[str, Any]) -> str:
    """Describes in one line the size of the gates and the number of nodes the heads attend to."""
    if summary is None:
        labels = config.get("labels") or config.get("parts", "network") != "network"
        return f"global path: {'to the labels of training nodes' if labels else 'none'}"
    count, nodes, gate = summary["effective_nodes"], summary["nodes"], summary["gate"]
    gates = "" if gate is None else f"gates {gate:.2g}, "
    text = f"global path: {gates}heads attend to {count:,.0f} of {nodes:,} nodes (median), "
    text += f"{100 * summary['self_share']:.0f} % on the node itself"
    if gate is not None and gate < CLOSED_GATE:
        return f"{text}: hardly used, the gates are closed"
    if count < 2 and summary["self_share"] > 0:
        return f"{text}: hardly attention, as each node sees itself"
    return f"{text}: nearly the mean of all nodes" if count > MEAN_SHARE * nodes else text
