"""Checks arguments of the operators. An error text names the argument, its value, and what is
allowed.

Shapes and types are checked before an op is called. The ops check values: reading them outside
would break a compiled graph. Checks of layers are in :mod:`phgcn.nn.checks`."""

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
    """Returns whether the host may read values, as nothing is compiled or captured."""
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


def wrong_shape(name: str, tensor: Tensor, allowed: object) -> ValueError:
    return refusal(f"{name} has shape {tuple(tensor.shape)}", allowed)


def check_is_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise refusal(f"{name} is a {type(tensor).__name__}", "a tensor")


def check_device(name: str, tensor: Tensor, device: torch.device, like: str) -> None:
    if tensor.device != device:
        raise refusal(f"{name} is on {tensor.device}", f"{device}, as {like}")


# Names and sizes


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
    check_is_tensor("weights", weights)
    if not weights.dtype.is_floating_point:
        raise ValueError(f"weights is {weights.dtype}; allowed: a floating type")
    count = positions.size(0)
    if tuple(weights.shape) not in ((count,), (count, heads)):
        raise wrong_shape("weights", weights, f"({count},) or ({count}, {heads})")
    check_device("weights", weights, positions.device, "positions")
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
        raise wrong_shape("decay", decay, f"a scalar or ({heads},), one per head")
    check_device("decay", decay, device, "positions")
    if host_may_look(decay):
        bad = ~((decay > 0) & decay.isfinite())
        if bool(bad.any()):
            raise refusal(f"decay is {float(decay[bad].flatten()[0])}", "positive numbers")


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
        raise wrong_shape("positions", positions, "at least one coordinate")
    if values.size(0) != positions.size(0):  # not len, which torch.export takes for a constant
        raise refusal(f"values has {values.size(0)} rows", f"{positions.size(0)}, as positions")
    if positions.dim() == 3 and values.dim() == 3 and positions.size(1) != values.size(1):
        raise refusal(f"values has {values.size(1)} heads", f"{positions.size(1)}, as positions")
    for name, tensor in (("positions", positions), ("values", values)):
        if tensor.dim() == 3 and tensor.size(1) == 0:
            raise wrong_shape(name, tensor, "at least one head")
    check_index("batch", batch, positions, "positions")
    if queries is None:
        if query_batch is not None:
            raise ValueError("query_batch is given without queries; allowed: both or neither")
        return
    if queries.shape[1:] != positions.shape[1:]:
        allowed = ("M", *positions.shape[1:])
        raise wrong_shape("queries", queries, f"{allowed}, like positions")
    check_index("query_batch", query_batch, queries, "queries")
    if (batch is None) != (query_batch is None):
        missing, present = ("batch", "query_batch") if batch is None else ("query_batch", "batch")
        raise ValueError(f"{missing} is None though {present} is given; allowed: both or neither")


def _check_tensor(name: str, tensor: Any, positions: Tensor) -> None:
    check_is_tensor(name, tensor)
    if tensor.dim() not in (2, 3):
        raise wrong_shape(name, tensor, "2 dimensions, or 3 with heads")
    if tensor.dtype not in FLOAT_TYPES:
        raise ValueError(f"{name} is {tensor.dtype}; allowed: float16, bfloat16, float32, float64")
    check_device(name, tensor, positions.device, "positions")
    half_values = (
        name == "values" and positions.dtype == torch.float32 and tensor.dtype in HALF_TYPES
    )
    if tensor.dtype != positions.dtype and not half_values:
        raise ValueError(f"{name} is {tensor.dtype}; allowed: {positions.dtype}, as positions")


def check_index(name: str, index: Tensor | None, points: Tensor, points_name: str) -> None:
    if index is None:
        return
    check_is_tensor(name, index)
    if index.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} is {index.dtype}; allowed: int64, int32")
    if index.shape != points.shape[:1]:
        raise ValueError(
            f"{name} has shape {tuple(index.shape)}; allowed: ({len(points)},), one entry per row "
            f"of {points_name}"
        )
    check_device(name, index, points.device, points_name)


# Values, inside the ops


def check_values(positions: Tensor, values: Tensor, queries: Tensor | None) -> None:
    for name, tensor in (("positions", positions), ("values", values), ("queries", queries)):
        if tensor is not None:
            check_finite(name, tensor)


def check_coordinates(name: str, points: Tensor, limit: float, rows: Tensor) -> None:
    """Checks the coordinates of the points ``rows`` against the ``limit`` of a lattice."""
    bad = (points[rows].abs() > limit).nonzero()
    if len(bad) > 0:
        index = torch.cat([rows[bad[0, :1]], bad[0, 1:]])
        _refuse(
            name,
            points,
            index,
            f"at most {limit:.3g} from the origin after multiplication by decay, for a lattice key",
        )


def check_finite(name: str, tensor: Tensor) -> None:
    # A finite sum has finite terms only, and costs one pass. A sum that overflows costs a second
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
    check_is_tensor("edge_index", edge_index)
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
        check_is_tensor(name, rows)
        if not rows.dtype.is_floating_point and not (
            name == "edge_mask" and rows.dtype == torch.bool
        ):
            raise ValueError(f"{name} is {rows.dtype}; allowed: {types}")
        if tuple(rows.shape) not in ((count,), (count, heads)):
            raise wrong_shape(name, rows, f"({count},) or ({count}, {heads})")
    for name, tensor in (
        ("edge_index", edge_index),
        ("edge_mask", edge_mask),
        ("edge_bias", edge_bias),
    ):
        if tensor is not None and tensor.device != positions.device:
            raise refusal(f"{name} is on {tensor.device}", f"{positions.device}, as positions")


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
    raise refusal(f"edge_index[{row}, {column}] is {int(edge_index[row, column])}", allowed)
