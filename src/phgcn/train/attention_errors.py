r"""The errors of approximate attention on the embeddings of a trained network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..accuracy import attention_error
from ..calls import AttentionCall, add_heads, count_heads
from ..functional import observe_attention
from ..lattice.scheme import MAX_DIMENSION
from .prediction import choose_trial, trial_model
from .run import Run

METHODS: tuple[Any, ...] = ("lattice", "lattice-fine", "separable")


def attention_errors(
    run: Run, data: Data, samples: int = 512, seed: int = 0
) -> list[dict[str, Any]]:
    """Measures all approximate methods on the embeddings of the best trained model.

    Args:
        run (Run): A run with at least one trained split.
        data (torch_geometric.data.Data): Its graph.
        samples, seed (int, optional): As in :func:`phgcn.attention_error`.

    Returns:
        A row per layer and head: ``layer``, ``head``, ``spread`` (the deviation of a coordinate, in
        units of 1/λ), and for each method ``deviation``, ``interval`` and ``gradient_cosine``.
    """
    with observe_attention() as calls:
        trial_model(run, choose_trial(run), data).logits()
    layers = [_layer_rows(layer, call, samples, seed) for layer, call in enumerate(calls)]
    return [row for rows in layers for row in rows]


def _layer_rows(layer: int, call: AttentionCall, samples: int, seed: int) -> list[dict[str, Any]]:
    heads = count_heads(call.positions, call.values)
    positions, values = add_heads(call.positions, heads), add_heads(call.values, heads)
    rest: dict[str, Any] = {
        name: getattr(call, name)
        for name in ("decay", "batch", "queries", "query_batch", "backend")
    }
    rest |= {"samples": samples, "seed": seed}
    rows: list[dict[str, Any]] = [
        {"layer": layer, "head": head, "spread": spread}
        for head, spread in enumerate(_spread(positions, call.decay).tolist())
    ]
    for method in METHODS if call.positions.size(-1) <= MAX_DIMENSION else ():
        error = attention_error(positions, values, method=method, **rest)
        for head, row in enumerate(rows):
            row[method] = {
                "deviation": float(error.deviation[head]),
                "interval": error.interval[:, head].tolist(),
                "gradient_cosine": float(error.gradient_cosine[head]),
            }
    return rows


def _spread(positions: Tensor, decay: float | Tensor) -> Tensor:
    """Returns the standard deviation of coordinates (N, H, D) per head, in units of 1/λ."""
    positions = positions.double()
    deviation = (positions - positions.mean(dim=0)).square().mean(dim=(0, 2)).sqrt()
    return deviation * torch.as_tensor(decay, dtype=torch.float64, device=positions.device)
