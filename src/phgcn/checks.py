"""Checks arguments. Every error text is here: the argument, its value, and what is allowed.

Shapes and types are checked before an op is called. The ops check values: reading them outside
would break a compiled graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NoReturn, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .backends import HALF_TYPES, NAMES
from .kernels import EXPONENTIAL
from .lattice.scheme import METHODS, Ladder, Separable

FLOAT_TYPES = (*HALF_TYPES, torch.float32, torch.float64)

MAX_EDGES = 2**31 - 1  # edges are counted in 32 bits


def host_may_look(tensor: Tensor) -> bool:
    """Returns whether the host may read values: not while a graph is compiled or a CUDA graph is
    captured."""
    return not torch.compiler.is_compiling() and not (
        tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    )


class refuse_transforms:
    """A context for calls of the ops, which have only backward derivatives and no counterpart in
    ONNX.

    Without it, torch takes the forward-mode derivative as 0, and refuses ``torch.func.grad`` in
    words that do not help."""

    def __init__(self, *tensors: Tensor | None) -> None:
        self.tensors = tensors

    def __enter__(self) -> None:
        if torch.onnx.is_in_onnx_export():
            raise RuntimeError(
                "phgcn: ONNX has no operators for lattices and attention by distance, which are "
                "kernels of this package; "
                "use torch.export, and run the program where phgcn is installed"
            )
        if torch.compiler.is_compiling():
            return
        if any(
            t is not None and forward_ad.unpack_dual(t).tangent is not None for t in self.tensors
        ):
            raise RuntimeError(
                "phgcn: forward-mode derivatives (torch.func.jvp, jacfwd, hessian, forward_ad) are "
                "not implemented; "
                "use backward(), torch.autograd.grad or torch.autograd.functional.jvp"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, RuntimeError) and "functorch transforms" in str(error):
            raise RuntimeError(
                "phgcn: torch.func.grad, vjp and jacrev are not implemented; use backward() or "
                "torch.autograd.grad"
            ) from None


def refusal(problem: str, allowed: object) -> ValueError:
    return ValueError(f"{problem}; allowed: {allowed}")


# Points


def check_choices(method: object, backend: object) -> None:
    if not isinstance(method, (Ladder, Separable)) and method not in METHODS:
        raise ValueError(
            f"method is {method!r}; allowed: {', '.join(map(repr, METHODS))}, or a scheme of "
            f"phgcn.lattice"
        )
    if backend not in NAMES:
        raise ValueError(f"backend is {backend!r}; allowed: {', '.join(map(repr, NAMES))}")


def check_kernel(kernel: str, method: object) -> None:
    if kernel != EXPONENTIAL.name and (method == "separable" or isinstance(method, Separable)):
        raise ValueError(
            f'method is {method!r}; allowed with the kernel {kernel!r}: "auto", "exact", '
            f'"lattice", "lattice-fine", or a '
            "phgcn.lattice.Ladder"
        )


def check_weights(weights: Any, positions: Tensor, heads: int) -> None:
    if weights is None:
        return
    if not isinstance(weights, Tensor):
        raise ValueError(f"weights is a {type(weights).__name__}; allowed: a tensor")
    if not weights.dtype.is_floating_point:
        raise ValueError(f"weights is {weights.dtype}; allowed: a floating type")
    count = positions.size(0)
    if tuple(weights.shape) not in ((count,), (count, heads)):
        raise ValueError(
            f"weights has shape {tuple(weights.shape)}; allowed: ({count},) or ({count}, {heads})"
        )
    if weights.device != positions.device:
        raise ValueError(
            f"weights is on {weights.device}; allowed: {positions.device}, as positions"
        )
    if host_may_look(weights) and not torch._C._functorch.is_batchedtensor(weights):
        bad = (~((weights >= 0) & weights.isfinite())).nonzero()
        if len(bad) > 0:
            _refuse("weights", weights, bad[0], "finite numbers that are not negative")


def check_decay(decay: object, heads: int, device: torch.device) -> None:
    if not isinstance(decay, Tensor):
        if not isinstance(decay, Real) or not 0 < cast(float, decay) < math.inf:
            raise ValueError(
                f"decay is {decay!r}; allowed: a positive number, or a tensor of one or of {heads} "
                f"of them"
            )
        return
    if not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(decay):
        raise ValueError(
            "decay is batched by vmap; allowed: a tensor of one decay per head, or a loop over "
            "decays"
        )
    if decay.numel() not in (1, heads) or decay.dim() > 1:
        raise ValueError(
            f"decay has shape {tuple(decay.shape)}; allowed: a scalar or ({heads},), one per head"
        )
    if decay.device != device:
        raise ValueError(f"decay is on {decay.device}; allowed: {device}, as positions")
    if host_may_look(decay):
        bad = ~((decay > 0) & decay.isfinite())
        if bool(bad.any()):
            raise ValueError(
                f"decay is {float(decay[bad].flatten()[0])}; allowed: positive numbers"
            )


def check_points(
    positions: Tensor,
    values: Tensor,
    batch: Tensor | None = None,
    queries: Tensor | None = None,
    query_batch: Tensor | None = None,
) -> None:
    for name, tensor in {"positions": positions, "values": values, "queries": queries}.items():
        if tensor is not None or name != "queries":
            _check_tensor(name, tensor, positions)
    if positions.size(-1) == 0:
        raise ValueError(
            f"positions has shape {tuple(positions.shape)}; allowed: at least one coordinate"
        )
    if values.size(0) != positions.size(0):  # not len, which torch.export takes for a constant
        raise ValueError(
            f"values has {values.size(0)} rows; allowed: {positions.size(0)}, as positions"
        )
    if positions.dim() == 3 and values.dim() == 3 and positions.size(1) != values.size(1):
        raise ValueError(
            f"values has {values.size(1)} heads; allowed: {positions.size(1)}, as positions"
        )
    for name, tensor in (("positions", positions), ("values", values)):
        if tensor.dim() == 3 and tensor.size(1) == 0:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; allowed: at least one head")
    check_index("batch", batch, positions, "positions")
    if queries is None:
        if query_batch is not None:
            raise ValueError("query_batch is given without queries; allowed: both or neither")
        return
    if queries.shape[1:] != positions.shape[1:]:
        allowed = ("M", *positions.shape[1:])
        raise ValueError(
            f"queries has shape {tuple(queries.shape)}; allowed: {allowed}, like positions"
        )
    check_index("query_batch", query_batch, queries, "queries")
    if (batch is None) != (query_batch is None):
        missing, present = ("batch", "query_batch") if batch is None else ("query_batch", "batch")
        raise ValueError(f"{missing} is None though {present} is given; allowed: both or neither")


def _check_tensor(name: str, tensor: object, positions: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; allowed: a tensor")
    if tensor.dim() not in (2, 3):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; allowed: 2 dimensions, or 3 with heads"
        )
    if tensor.dtype not in FLOAT_TYPES:
        raise ValueError(f"{name} is {tensor.dtype}; allowed: float16, bfloat16, float32, float64")
    if tensor.device != positions.device:
        raise ValueError(f"{name} is on {tensor.device}; allowed: {positions.device}, as positions")
    half_values = (
        name == "values" and positions.dtype == torch.float32 and tensor.dtype in HALF_TYPES
    )
    if tensor.dtype != positions.dtype and not half_values:
        raise ValueError(f"{name} is {tensor.dtype}; allowed: {positions.dtype}, as positions")


def check_index(name: str, index: Tensor | None, points: Tensor, points_name: str) -> None:
    if index is None:
        return
    if not isinstance(index, Tensor):
        raise ValueError(f"{name} is a {type(index).__name__}; allowed: a tensor")
    if index.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} is {index.dtype}; allowed: int64, int32")
    if index.shape != points.shape[:1]:
        raise ValueError(
            f"{name} has shape {tuple(index.shape)}; allowed: ({len(points)},), one entry per row "
            f"of {points_name}"
        )
    if index.device != points.device:
        raise ValueError(f"{name} is on {index.device}; allowed: {points.device}, as {points_name}")


# Values, inside the ops


def check_values(positions: Tensor, values: Tensor, queries: Tensor | None) -> None:
    for name, tensor in (("positions", positions), ("values", values), ("queries", queries)):
        if tensor is not None:
            check_finite(name, tensor)


def check_coordinates(name: str, points: Tensor, limit: float, rows: Tensor) -> None:
    """Checks the coordinates of the points ``rows`` against the ``limit`` of a lattice."""
    bad = (points[rows].abs() > limit).nonzero()
    if len(bad) > 0:
        place = torch.cat([rows[bad[0, :1]], bad[0, 1:]])
        _refuse(
            name,
            points,
            place,
            f"at most {limit:.3g} from the origin after multiplication by decay, for a lattice key",
        )


def check_finite(name: str, tensor: Tensor) -> None:
    # A finite sum has finite terms only, and costs one pass.  A sum that overflows costs a second
    # pass, no more.
    if not math.isfinite(float(tensor.detach().sum())):
        bad = (~tensor.isfinite()).nonzero()
        if len(bad) > 0:
            _refuse(name, tensor, bad[0], "finite numbers")


def check_graph_numbers(**batches: Tensor | None) -> None:
    for name, index in batches.items():
        if index is not None and index.numel() > 0 and int(index.min()) < 0:
            refuse_graph_number(name, index)


def refuse_graph_number(name: str, index: Tensor) -> NoReturn:
    first = int((index < 0).nonzero()[0])
    raise ValueError(f"{name}[{first}] is {int(index[first])}; allowed: non-negative graph numbers")


def _refuse(name: str, tensor: Tensor, index: Tensor, allowed: str) -> NoReturn:
    """Refuses the entry at an ``index`` of shape (tensor.dim(),)."""
    entry = index.tolist()
    raise ValueError(f"{name}{entry} is {float(tensor[tuple(entry)])}; allowed: {allowed}")


# Edges


def check_edges(
    edge_index: Any, positions: Tensor, heads: int = 1, edge_mask: Any = None, edge_bias: Any = None
) -> None:
    if not isinstance(edge_index, Tensor):
        raise ValueError(f"edge_index is a {type(edge_index).__name__}; allowed: a tensor")
    if edge_index.layout != torch.strided or edge_index.dim() != 2 or edge_index.size(0) != 2:
        shape = tuple(edge_index.shape)
        raise ValueError(
            f"edge_index has shape {shape}, layout {edge_index.layout}; allowed: a dense (2, E) "
            f"tensor"
        )
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"edge_index is {edge_index.dtype}; allowed: int64, int32")
    count = edge_index.size(1)
    for name, rows, types in (
        ("edge_mask", edge_mask, "a floating type or bool"),
        ("edge_bias", edge_bias, "a floating type"),
    ):
        if rows is None:
            continue
        if not isinstance(rows, Tensor):
            raise ValueError(f"{name} is a {type(rows).__name__}; allowed: a tensor")
        if not rows.dtype.is_floating_point and not (
            name == "edge_mask" and rows.dtype == torch.bool
        ):
            raise ValueError(f"{name} is {rows.dtype}; allowed: {types}")
        if tuple(rows.shape) not in ((count,), (count, heads)):
            raise ValueError(
                f"{name} has shape {tuple(rows.shape)}; allowed: ({count},) or ({count}, {heads})"
            )
    for name, tensor in (
        ("edge_index", edge_index),
        ("edge_mask", edge_mask),
        ("edge_bias", edge_bias),
    ):
        if tensor is not None and tensor.device != positions.device:
            raise ValueError(
                f"{name} is on {tensor.device}; allowed: {positions.device}, as positions"
            )


def check_edge_values(
    positions: Tensor,
    values: Tensor,
    edge_index: Tensor,
    edge_mask: Tensor | None,
    edge_bias: Tensor | None,
) -> None:
    tensors = {
        "positions": positions,
        "values": values,
        "edge_mask": edge_mask,
        "edge_bias": edge_bias,
    }
    for name, tensor in tensors.items():
        if tensor is not None:
            check_finite(name, tensor)
    limit = distance_limit(positions)
    if positions.numel() > 0 and max(-float(positions.min()), float(positions.max())) > limit:
        near = f"at most {limit:.3g} from 0 after multiplication by decay"
        allowed = f"{near}, as squared distances are finite numbers"
        _refuse("positions", positions, (positions.abs() > limit).nonzero()[0], allowed)
    check_node_numbers(edge_index, len(positions))


def distance_limit(positions: Tensor) -> float:
    """Returns the largest coordinate of points (N, H, D) whose squared distances are finite."""
    return math.sqrt(torch.finfo(positions.dtype).max / max(1, positions.size(-1))) / 2.01


def check_node_numbers(edge_index: Tensor, count: int, only_row: int | None = None) -> None:
    """Checks that edges lead from node to node, except during CUDA graph capture. ``only_row``
    checks only sources (0) or targets (1), where these are nodes of different kinds."""
    if edge_index.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    if edge_index.size(1) > MAX_EDGES:
        raise ValueError(f"edge_index has {edge_index.size(1)} columns; allowed: up to {MAX_EDGES}")
    if edge_index.numel() == 0:
        return
    rows = edge_index if only_row is None else edge_index[only_row : only_row + 1]
    least, most = torch.stack(torch.aminmax(rows)).tolist()
    if least >= 0 and most < count:
        return
    bad = (rows < 0) | (rows >= count)
    column = int(bad.any(dim=0).nonzero()[0])
    row = int(bad[:, column].nonzero()[0]) if only_row is None else only_row
    nodes = "positions" if only_row is None else f"x[{only_row}]"
    allowed = (
        f"0 to {count - 1}, as {nodes} has {count} rows"
        if count > 0
        else f"no edges, as {nodes} has no rows"
    )
    raise ValueError(
        f"edge_index[{row}, {column}] is {int(edge_index[row, column])}; allowed: {allowed}"
    )


# Layers


def check_sizes(in_channels: int, **sizes: int) -> None:
    check_input_size("in_channels", in_channels)
    check_positive(**sizes)


def check_input_size(name: str, size: int) -> None:
    if not isinstance(size, int) or size == 0 or size < -1:
        allowed = "a positive integer, or -1 to take it from the first input"
        raise refusal(f"{name} is {size!r}", allowed)


def check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} is {size!r}; allowed: a positive integer")


def check_choice(name: str, value: object, choices: Sequence[object], others: str = "") -> None:
    if value not in choices:
        raise ValueError(
            f"{name} is {value!r}; allowed: "
            f"{', '.join(map(repr, choices))}{others and ', ' + others}"
        )


def check_multiple(name: str, size: int, factor_name: str, factor: int) -> None:
    if size % factor != 0:
        raise ValueError(
            f"{name} is {size}; allowed: a multiple of {factor_name}, which is {factor}"
        )


def check_dropout(**dropouts: float) -> None:
    for name, dropout in dropouts.items():
        if not 0 <= dropout <= 1:
            raise ValueError(f"{name} is {dropout!r}; allowed: 0 to 1")


def check_features(x: Any, in_channels: int, weight: Tensor, name: str = "x") -> None:
    """Checks node features against a layer's ``weight``."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; allowed: a tensor")
    if x.dim() != 2 or (in_channels != -1 and x.size(1) != in_channels):
        allowed = f"(N, {'in_channels' if in_channels == -1 else in_channels})"
        if x.dim() == 2 and x.size(1) == 2 * in_channels:
            hint = "which is output_width = 2 * heads * out_channels wide"
            allowed += f", or in_channels={x.size(1)} after a PHGCNConv, {hint}"
        raise refusal(f"{name} has shape {tuple(x.shape)}", allowed)
    if x.layout not in (torch.strided, torch.sparse_csr, torch.sparse_coo):
        raise ValueError(
            f"{name} has layout {x.layout}; allowed: dense, torch.sparse_csr, torch.sparse_coo"
        )
    if x.dtype != weight.dtype and not (
        torch.is_autocast_enabled(x.device.type) and x.is_floating_point()
    ):
        raise ValueError(f"{name} is {x.dtype}; allowed: {weight.dtype}, as the layer's weights")
    if x.device != weight.device:
        raise ValueError(
            f"{name} is on {x.device}; allowed: {weight.device}, as the layer's weights"
        )


def check_edge_features(name: str, rows: Any, edge_index: Any, weight: Tensor) -> None:
    """Checks features or weights of edges against a layer's ``weight``."""
    if not isinstance(rows, Tensor):
        raise ValueError(f"{name} is a {type(rows).__name__}; allowed: a tensor")
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
    if not rows.is_floating_point():
        raise ValueError(f"{name} is {rows.dtype}; allowed: {weight.dtype}, as the layer's weights")
    if rows.device != weight.device:
        raise ValueError(
            f"{name} is on {rows.device}; allowed: {weight.device}, as the layer's weights"
        )
    if name == "edge_weight" and host_may_look(rows) and bool((rows < 0).any()):
        first = int((rows < 0).nonzero()[0])
        raise ValueError(
            f"edge_weight[{first}] is {float(rows[first])}; allowed: non-negative numbers"
        )


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
