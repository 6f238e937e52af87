"""The training recipe: Adam over groups of parameters, learning rate, dropout of nodes and edges,
bfloat16. Only the optimiser has a state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import dropout

from ..nn.edges import as_edges
from ..nn.models import replace_values
from .settings import Settings

# The optimiser


def make_optimiser(model: Module, settings: Settings) -> torch.optim.Adam:
    groups = parameter_groups(model, settings.weight_decay)
    return torch.optim.Adam(groups, lr=settings.learning_rate, fused=True)


def parameter_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups the parameters of a model by weight decay. The parameters of its method
    ``undecayed_parameters()`` have none: a large gate, decay or scale of a norm is as likely as a
    small one."""
    undecayed = {id(parameter) for parameter in getattr(model, "undecayed_parameters", tuple)()}
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in undecayed]
    rest = [parameter for parameter in model.parameters() if id(parameter) in undecayed]
    groups = ((decayed, weight_decay), (rest, 0.0))
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


# The learning rate


def learning_rate(settings: Settings, epoch: int, epochs: int) -> float:
    r"""Returns the learning rate of an epoch :math:`t` of a phase of at most :math:`T` epochs.

    It rises linearly over the first ``warmup`` epochs, :math:`\eta (t + 1) / w` in epoch :math:`t <
    w`, and is then constant or falls as :math:`\eta \, (1 + \cos(\pi (t - w) / (T - w))) / 2`."""
    if epoch < settings.warmup:
        return settings.learning_rate * (epoch + 1) / settings.warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    progress = (epoch - settings.warmup) / (epochs - settings.warmup)
    return settings.learning_rate * (1 + math.cos(math.pi * progress)) / 2


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


# The input of a step


def drop_inputs(inputs: Sequence[Tensor], settings: Settings) -> tuple[Tensor, ...]:
    """Drops features of random nodes (``node_dropout``) and random edges (``edge_dropout``) of
    ``x`` (N, F), ``edge_index`` (2, E) and tensors of E rows."""
    x, edge_index, *others = inputs
    if settings.node_dropout:
        x = drop_nodes(x, settings.node_dropout)
    if settings.edge_dropout:
        edges: Any = as_edges(edge_index)
        count = edges.edge_index.size(1)
        keep = (torch.rand(count, device=x.device) >= settings.edge_dropout).nonzero().flatten()
        edge_index = edges.select(keep)
        others = [tensor[keep] if len(tensor) == count else tensor for tensor in others]
    return (x, edge_index, *others)


def drop_nodes(x: Tensor, share: float) -> Tensor:
    """Sets random nodes' features (N, F) to 0, and divides the others by ``1 - share``."""
    scale = dropout(torch.ones(x.size(0), dtype=x.dtype, device=x.device), share)
    if x.layout == torch.strided:
        return x * scale[:, None]
    return replace_values(x, x.values() * scale.repeat_interleave(x.crow_indices().diff()))


# bfloat16


def check_amp(settings: Settings, device: str) -> None:
    """Refuses ``amp`` on a CPU, whose kernels compute in float32 and float64 only."""
    if settings.amp and not device.startswith("cuda"):
        raise ValueError(f"amp is true on the device {device}; allowed: false, or a GPU")


def autocast(settings: Settings, device: torch.device) -> AbstractContextManager[Any]:
    """Returns the context of a forward pass, torch's autocast to bfloat16 if ``amp``."""
    return torch.autocast(device.type, torch.bfloat16) if settings.amp else nullcontext()
