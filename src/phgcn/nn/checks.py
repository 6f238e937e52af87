"""Checks the arguments of layers: sizes, features, edge features, node numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check_device,
    check_finite,
    check_index,
    check_is_tensor,
    check_node_numbers,
    check_positive,
    host_may_look,
    refusal,
)


def check_sizes(in_channels: int, **sizes: int) -> None:
    check_input_size("in_channels", in_channels)
    check_positive(**sizes)


def check_input_size(name: str, size: int) -> None:
    if not isinstance(size, int) or size == 0 or size < -1:
        allowed = "a positive integer, or -1 to take it from the first input"
        raise refusal(f"{name} is {size!r}", allowed)


def check_multiple(name: str, size: int, factor_name: str, factor: int) -> None:
    if size % factor != 0:
        raise refusal(f"{name} is {size}", f"a multiple of {factor_name}, which is {factor}")


def check_dropout(**dropouts: float) -> None:
    for name, dropout in dropouts.items():
        if not 0 <= dropout <= 1:
            raise ValueError(f"{name} is {dropout!r}; allowed: 0 to 1")


def check_features(x: Any, in_channels: int, weight: Tensor, name: str = "x") -> None:
    """Checks node features against a layer's ``weight``."""
    check_is_tensor(name, x)
    if x.dim() != 2 or (in_channels != -1 and x.size(1) != in_channels):
        allowed = f"(N, {'in_channels' if in_channels == -1 else in_channels})"
        if x.dim() == 2 and x.size(1) == 2 * in_channels:
            hint = "which is output_width = 2 * heads * out_channels wide"
            allowed += f", or in_channels={x.size(1)} after a PHGCNConv, {hint}"
        raise refusal(f"{name} has shape {tuple(x.shape)}", allowed)
    if x.layout not in (torch.strided, torch.sparse_csr, torch.sparse_coo):
        raise refusal(f"{name} has layout {x.layout}", "dense, torch.sparse_csr, torch.sparse_coo")
    if x.dtype != weight.dtype and not (
        torch.is_autocast_enabled(x.device.type) and x.is_floating_point()
    ):
        raise ValueError(f"{name} is {x.dtype}; allowed: {weight.dtype}, as the layer's weights")
    check_device(name, x, weight.device, "the layer's weights")


def check_edge_features(
    name: str, rows: Any, edge_index: Any, weight: Tensor, width: int | None = None
) -> None:
    """Checks features or weights of edges against a layer's ``weight``, and their ``width``."""
    check_is_tensor(name, rows)
    if isinstance(edge_index, Tensor) and edge_index.layout != torch.strided:
        raise ValueError(
            f"{name} is given beside a sparse matrix of edges; allowed: edges as sources and "
            f"targets, (2, E)"
        )
    count, shape = edge_index.size(1), tuple(rows.shape)
    if name == "edge_weight" and shape != (count,):
        raise ValueError(f"edge_weight has shape {shape}; allowed: ({count},), one for each edge")
    if name == "edge_attr" and (rows.dim() not in (1, 2) or rows.size(0) != count):
        raise ValueError(
            f"edge_attr has shape {shape}; allowed: ({count}, edge_dim), or ({count},) for "
            f"edge_dim=1"
        )
    known = name == "edge_attr" and width not in (None, -1)
    if known and (found := 1 if rows.dim() == 1 else rows.size(1)) != width:
        allowed = f"({count}, {width}), as edge_dim is {width}"
        raise refusal(f"edge_attr has shape {shape}, {found} for each edge", allowed)
    if not rows.is_floating_point():
        raise ValueError(f"{name} is {rows.dtype}; allowed: {weight.dtype}, as the layer's weights")
    check_device(name, rows, weight.device, "the layer's weights")
    if name == "edge_weight" and host_may_look(rows) and bool((rows < 0).any()):
        first = int((rows < 0).nonzero()[0])
        raise refusal(f"edge_weight[{first}] is {float(rows[first])}", "non-negative numbers")


def check_node_ids(n_id: Any, rows: Tensor, count: int) -> None:
    """Checks a batch's node numbers in a graph of ``count`` nodes."""
    if n_id is None:
        raise ValueError(
            "n_id is None; allowed beside a memory: the number of each node in the whole graph"
        )
    check_index("n_id", n_id, rows, "x")
    if n_id.numel() == 0 or not host_may_look(n_id):
        return
    bad = (n_id < 0) | (n_id >= count)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"n_id[{first}] is {int(n_id[first])}; allowed: 0 to {count - 1}, as the memory has "
            f"{count} nodes"
        )


class blame_inputs:
    """A context for a layer's computation. An error of an op names the layer's own input that
    caused it. The first of ``features`` has one row per node."""

    def __init__(self, edge_index: Any = None, **features: Any) -> None:
        self.edge_index = edge_index
        self.features = features

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None or not issubclass(error, ValueError):
            return
        for name, x in self.features.items():
            if isinstance(x, Tensor):
                _check_finite_features(name, x)
        x, edges = next(iter(self.features.values())), self.edge_index
        dense = isinstance(edges, Tensor) and edges.layout == torch.strided and len(edges) == 2
        if dense and isinstance(x, Tensor) and x.dim() == 2:
            check_node_numbers(edges, len(x))


def _check_finite_features(name: str, x: Tensor) -> None:
    if x.layout in (torch.sparse_csr, torch.sparse_coo):
        check_finite(
            f"{name}.values()", x.values() if x.layout == torch.sparse_csr else x._values()
        )
    elif x.layout == torch.strided:
        check_finite(name, x)
