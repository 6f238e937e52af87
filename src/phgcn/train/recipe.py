r"""The training recipe: each part is a setting of its own, and off by default.

Adam over groups of parameters, the learning rate of an epoch, what is dropped of a step's input, and bfloat16.  Nothing here
has a state but the optimiser; the loop (:mod:`phgcn.train.loop`) calls it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import dropout

from ..distributed.boundary import PartEdges
from .settings import Settings

# The optimiser


def make_optimiser(model: Module, settings: Settings, device: torch.device) -> torch.optim.Adam:
    """Makes Adam with fresh moments, for a training on ``device``.

    On a GPU the step count stays on the device, and so does a learning rate that changes: a CUDA graph of an epoch reads both
    at every replay.
    """
    rate: float | Tensor = settings.learning_rate
    if device.type == "cuda" and not is_constant(settings):
        rate = torch.tensor(rate, dtype=torch.float32, device=device)
    groups = parameter_groups(model, settings.weight_decay)
    return torch.optim.Adam(groups, lr=rate, fused=True, capturable=device.type == "cuda")


def parameter_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups the parameters of a model by weight decay.

    Those that the model's method ``undecayed_parameters()`` yields, if it has one, get none: a gate, a decay or the scale of a
    norm is no less likely for being large.
    """
    undecayed = {id(parameter) for parameter in getattr(model, "undecayed_parameters", tuple)()}
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in undecayed]
    rest = [parameter for parameter in model.parameters() if id(parameter) in undecayed]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


# The learning rate


def is_constant(settings: Settings) -> bool:
    """Tells whether all epochs have the same learning rate."""
    return settings.schedule == "constant" and settings.warmup == 0


def learning_rate(settings: Settings, epoch: int, epochs: int) -> float:
    r"""Returns the learning rate of an epoch.

    It rises linearly over the first ``warmup`` epochs, :math:`\eta (t + 1) / w` in epoch :math:`t < w`, and is then constant or
    falls as :math:`\eta \, (1 + \cos(\pi (t - w) / (T - w))) / 2`.

    Args:
        settings (Settings): Learning rate :math:`\eta`, ``schedule`` and ``warmup`` :math:`w`.
        epoch (int): The epoch :math:`t` of the current phase, from 0 on.
        epochs (int): How many epochs :math:`T` the phase has at most.
    """
    if epoch < settings.warmup:
        return settings.learning_rate * (epoch + 1) / settings.warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    progress = (epoch - settings.warmup) / (epochs - settings.warmup)
    return settings.learning_rate * (1 + math.cos(math.pi * progress)) / 2


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of all groups; one that is a tensor keeps its place in memory, where a CUDA graph reads it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


# The input of a step


def drop_inputs(inputs: Sequence[Tensor], settings: Settings) -> tuple[Tensor, ...]:
    r"""Drops random nodes' features and random edges, as ``node_dropout`` and ``edge_dropout`` say.

    Shapes:
        - **inputs:** ``x`` :math:`(N, F)`, ``edge_index`` :math:`(2, E)`, then any others; those of :math:`E` rows lose the
          rows of dropped edges
        - **output:** the same with :math:`E' \le E` edges; the very tensors that came in where nothing is dropped
    """
    x, edge_index, *others = inputs
    if settings.node_dropout:
        x = drop_nodes(x, settings.node_dropout)
    if settings.edge_dropout:
        edges, device = (edge_index.edge_index if isinstance(edge_index, PartEdges) else edge_index).size(1), x.device
        keep = (torch.rand(edges, device=device) >= settings.edge_dropout).nonzero().flatten()
        edge_index = edge_index.select(keep) if isinstance(edge_index, PartEdges) else edge_index[:, keep]
        others = [tensor[keep] if len(tensor) == edges else tensor for tensor in others]
    return (x, edge_index, *others)


def drop_nodes(x: Tensor, share: float) -> Tensor:
    r"""Sets the features of random nodes to 0, and divides the others by ``1 - share``.

    Shapes:
        - **x:** :math:`(N, F)`, dense or CSR; **output:** the same
    """
    scale = dropout(torch.ones(x.size(0), dtype=x.dtype, device=x.device), share)
    if x.layout == torch.strided:
        return x * scale[:, None]
    values = x.values() * scale.repeat_interleave(x.crow_indices().diff())
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)


def fixed_shapes(settings: Settings) -> bool:
    """Tells whether all steps have inputs of the same shapes, as a CUDA graph needs: so it is unless edges are dropped."""
    return settings.edge_dropout == 0


# bfloat16


def check_amp(settings: Settings, device: str) -> None:
    """Refuses ``amp`` on a CPU, whose kernels compute in float32 and float64 alone."""
    if settings.amp and not device.startswith("cuda"):
        raise ValueError(f"amp is true on the device {device}; allowed: false, or a GPU")


def autocast(settings: Settings, device: torch.device) -> AbstractContextManager[Any]:
    """Returns the context of a forward pass: bfloat16 where torch's autocast takes it if ``amp``, else nothing.

    Casts of weights are not cached, because they would be read by a later replay of a CUDA graph.
    """
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if settings.amp else nullcontext()
