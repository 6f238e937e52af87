r"""Whether a model uses its global path: what its heads attend to, as rows for a file, a summary and a sentence.

A model that attends to all nodes has a method ``global_statistics(x, edge_index)``.  It returns one dict per layer: lists over
heads of ``decay``, ``spread``, ``effective_nodes`` and ``self_share``, and ``gate``, a number, where the layer has a gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

ATTENTION = ("epoch", "layer", "head", "decay", "spread", "effective_nodes", "self_share", "gate")
"""The columns of samples taken during a training."""

CLOSED_GATE = 0.01
"""A global path whose gates are smaller than this, in the root mean square, changes nearly nothing."""

MEAN_SHARE = 0.8
"""Attention to more than this share of all nodes is nearly their mean, the same for every node."""


def switch_global(model: Module, on: bool) -> None:
    """Switches the global path of a model on or off, by its method ``set_global(on)``."""
    switch: Any = getattr(model, "set_global", None)
    if switch is None:
        raise ValueError(f"local_epochs is positive; allowed for {type(model).__name__}: 0, as it has no path to switch on")
    switch(on)


@torch.no_grad()
def global_statistics(
    model: Module, inputs: Sequence[Tensor], edge_values: Mapping[str, Tensor] | None = None
) -> list[dict[str, Any]]:
    """Returns the statistics of each layer's global path, its number as ``layer``; none where a model has no such path.

    A path that is switched off is switched on, as its gates tell the same.
    """
    measure = getattr(model, "global_statistics", None)
    if measure is None:
        return []
    if hasattr(model, "set_global"):
        switch_global(model, True)
    model.eval()
    return [{"layer": number, **layer} for number, layer in enumerate(measure(*inputs[:2], **(edge_values or {})))]


def sample_rows(epoch: int, statistics: list[dict[str, Any]]) -> list[tuple[float, ...]]:
    """Returns one row of :data:`ATTENTION` per layer and head; the gate of a layer without one counts as 1."""
    return [
        (
            epoch,
            layer["layer"],
            head,
            *(layer[key][head] for key in ATTENTION[3:7]),
            1.0 if layer.get("gate") is None else layer["gate"],
        )
        for layer in statistics
        for head in range(len(layer["effective_nodes"]))
    ]


def head_medians(splits: list[list[dict[str, Any]]]) -> list[dict[str, float]]:
    """Returns one row per layer and head, with the columns of :data:`ATTENTION` but ``epoch``: medians over splits."""
    by_head: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for row in (row for split in splits for row in sample_rows(0, split)):
        by_head.setdefault(row[1:3], []).append(row[3:])
    middle = {head: tuple(map(median, zip(*rows, strict=True))) for head, rows in by_head.items()}
    return [dict(zip(ATTENTION[1:], (*head, *values), strict=True)) for head, values in middle.items()]


def summarise(splits: list[list[dict[str, Any]]], nodes: int) -> dict[str, Any] | None:
    """Returns medians over all splits, layers and heads; :obj:`None` if there is no global path.

    Args:
        splits (list): What :func:`global_statistics` returned for each split.
        nodes (int): How many nodes the graph has.
    """
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


def describe_global_path(summary: dict[str, Any] | None) -> str:
    """Says in one line whether the global path is used: the size of its gates, and how many nodes its heads attend to."""
    if summary is None:
        return "global path: none"
    count, nodes, gate = summary["effective_nodes"], summary["nodes"], summary["gate"]
    gates = "" if gate is None else f"gates {gate:.2g}, "
    said = f"global path: {gates}heads attend to {count:,.0f} of {nodes:,} nodes (median), "
    said += f"{100 * summary['self_share']:.0f} % on the node itself"
    if gate is not None and gate < CLOSED_GATE:
        return f"{said}: hardly used, the gates are closed"
    if count < 2:
        return f"{said}: hardly attention, as each node sees itself"
    if count > MEAN_SHARE * nodes:
        return f"{said}: nearly the mean of all nodes"
    return said
