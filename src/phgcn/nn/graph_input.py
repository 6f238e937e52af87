"""The arguments of layers and models: tensors, or a PyG object that holds them; and recorded
calls."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from ..checks import refusal
from .checks import blame_inputs

EDGE_FEATURES = ("edge_attr", "edge_weight")
# the optional arguments, and why a layer may refuse them
UNUSED = {
    "edge_attr": "the layer was made without edge_dim, or has no use for edge features",
    "edge_weight": "the layer has no use for edge weights",
    "n_id": "there is no memory",
}


class GraphInput(NamedTuple):
    """The arguments of a layer's call.

    Shapes:
        - **x:** :math:`(N, F)`, or a pair of sources and targets :math:`((N_s, F_s), (N_t, F_t))`
        - **edge_index:** the edges, in any of PyG's formats
        - **edge_attr:** :math:`(E, D)` or :math:`(E,)`, **edge_weight:** :math:`(E,)`
        - **batch:** :math:`(N,)`, **n_id:** numbers of nodes in a larger graph, :math:`(N,)`
    """

    x: Any
    edge_index: Any = None
    edge_attr: Tensor | None = None
    edge_weight: Tensor | None = None
    batch: Tensor | None = None
    n_id: Tensor | None = None

    def blame(self) -> blame_inputs:
        """Returns a context in which an error names the input that caused it."""
        edge_features = {"edge_attr": self.edge_attr, "edge_weight": self.edge_weight}
        # join_kinds has checked the numbers of nodes of two kinds
        if isinstance(self.x, tuple):
            return blame_inputs(None, **{"x[0]": self.x[0], "x[1]": self.x[1]}, **edge_features)
        return blame_inputs(self.edge_index, x=self.x, **edge_features)


def read_graph(
    given: GraphInput,
    takes: Collection[str] = (),
    needs_edges: bool = True,
    crosses: str | None = None,
) -> GraphInput:
    """Reads all tensors from a PyG object in place of ``x``; returns tensors as they are. Refuses
    optional ones that are not in ``takes``, and ignores these in an object. ``crosses`` is the name
    of a layer that attends across graphs without ``batch``."""
    if isinstance(given.x, BaseData):
        given = _read_object(given, takes)
    for name, reason in UNUSED.items():
        if getattr(given, name) is not None and name not in takes:
            raise refusal(f"{name} is given", f"None, as {reason}")
    if needs_edges and given.edge_index is None:
        raise refusal(
            "edge_index is None", "the edges, or a Data or Batch object in the place of x"
        )
    _notice_batch(given.edge_index, given.batch, crosses)
    return given


def _read_object(given: GraphInput, takes: Collection[str]) -> GraphInput:
    data, kind = given.x, type(given.x).__name__
    if not isinstance(data, Data):
        allowed = "tensors, Data or Batch; for several kinds of nodes use PyG's HeteroConv"
        raise refusal(f"x is a {kind}", allowed)
    for name in given._fields[1:]:
        if getattr(given, name) is not None:
            raise refusal(f"{name} is given beside a {kind}", "the object alone, or tensors")
    edges = data.edge_index if data.edge_index is not None or "adj_t" not in data else data.adj_t
    taken = {name: data[name] if name in takes and name in data else None for name in UNUSED}
    batch = data.batch
    if batch is None and "ptr" in data:
        sizes = data.ptr.diff()
        batch = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    return GraphInput(data.x, edges, **taken, batch=batch)


# the ``batch`` that came with a tensor of edges in an earlier call
_batches: Any = WeakTensorKeyDictionary()


def _notice_batch(edges: Any, batch: Tensor | None, crosses: str | None) -> None:
    """Warns of a call without ``batch`` if its edges came with a ``batch`` of graphs before."""
    if torch.compiler.is_compiling() or not isinstance(edges, Tensor):
        return
    if batch is not None:
        _batches[edges] = batch
    elif crosses and (known := _batches.pop(edges, None)) is not None and len(known.unique()) > 1:
        what = f"{crosses} has no batch, which an earlier call with the same edge_index had"
        text = f"{what}: it attends across graphs; pass batch=data.batch too"
        warnings.warn(text, UserWarning, stacklevel=4)


# the positional arguments of a call, and its keyword arguments
Call = tuple[tuple[Any, ...], dict[str, Any]]


@torch.no_grad()
def record_calls(
    modules: Iterable[Module],
    model: Module,
    inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
) -> dict[Module, Call]:
    """Runs a model once in evaluation mode. Returns the last call of each of its ``modules``; those
    that were not called are left out."""
    calls: dict[Module, Call] = {}

    def record(module: Module, *call: Any) -> None:
        calls[module] = call

    handles = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    training = model.training
    try:
        model.eval()(*inputs, **(options or {}))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return calls
