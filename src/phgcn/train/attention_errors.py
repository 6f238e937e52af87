r"""How far the approximate methods are from exact attention on the embeddings of a trained network."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..accuracy import attention_error
from ..calls import AttentionCall, add_heads, count_heads
from ..functional import observe_attention
from ..lattice.scheme import MAX_DIMENSION
from .prediction import choose_trial, logits
from .run import Run

METHODS: tuple[Literal["lattice", "lattice-fine", "separable"], ...] = ("lattice", "lattice-fine", "separable")


def attention_errors(run: Run, data: Data, samples: int = 512, seed: int = 0) -> list[dict[str, Any]]:
    """Measures all approximate methods on the embeddings of the best trained model, whichever it attends with.

    Args:
        run (Run): A run with at least one trained split.
        data (torch_geometric.data.Data): Its graph.
        samples, seed (int, optional): As in :func:`phgcn.attention_error`.

    Returns:
        One row per layer and head: ``layer``, ``head``, ``spread`` (the deviation of a coordinate, in units of 1/λ), and for
        each method ``deviation``, ``interval`` and ``gradient_cosine``.  No rows where the model has no global attention.
    """
    with observe_attention() as calls:
        logits(run, choose_trial(run), data)
    return [row for layer, call in enumerate(calls) for row in _layer_rows(layer, call, samples, seed)]


def _layer_rows(layer: int, call: AttentionCall, samples: int, seed: int) -> list[dict[str, Any]]:
    heads = count_heads(call.positions, call.values)
    positions, values = add_heads(call.positions, heads), add_heads(call.values, heads)
    rest: dict[str, Any] = {"decay": call.decay, "batch": call.batch, "queries": call.queries, "query_batch": call.query_batch}
    dim = call.positions.size(-1)
    measured = {
        method: attention_error(positions, values, **rest, method=method, backend=call.backend, samples=samples, seed=seed)
        for method in METHODS
        if dim <= MAX_DIMENSION
    }
    spread = _spread(positions, call.decay)
    return [
        {
            "layer": layer,
            "head": head,
            "spread": float(spread[head]),
            **{
                method: {
                    "deviation": float(error.deviation[head]),
                    "interval": error.interval[:, head].tolist(),
                    "gradient_cosine": float(error.gradient_cosine[head]),
                }
                for method, error in measured.items()
            },
        }
        for head in range(heads)
    ]


def _spread(positions: Tensor, decay: float | Tensor) -> Tensor:
    """Returns the standard deviation of the coordinates (N, H, D), in units of 1/λ, for each head."""
    away = positions.double() - positions.double().mean(dim=0)
    return away.square().mean(dim=(0, 2)).sqrt() * torch.as_tensor(decay, dtype=torch.float64, device=positions.device)
