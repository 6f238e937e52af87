r"""The arguments that modules get while a model runs, for statistics, reports and kept labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module

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
