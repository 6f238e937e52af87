r"""What heads attend to, where the nodes lie on several ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from ..exact.reference import distances
from .collectives import Ranks

PAIRS = 2**22
"""Pairs of sampled and other nodes that are held at a time."""


def describe_over_ranks(
    positions: Tensor, decays: Tensor, batch: Tensor | None, samples: int, seed: int, group: ProcessGroup
) -> Tensor:
    """Computes, for a sample of the nodes of all ranks, the squared distance to the mean of their graph, the exponential of the
    entropy of their attention, and their attention to themselves: (H, samples, 3), the same on all ranks.

    Nodes are numbered rank by rank.  Each rank sums over its own nodes; the sums are added up.
    """
    ranks = Ranks(group)
    counts = ranks.gather_equal(torch.tensor([len(positions)], device=positions.device)).flatten().tolist()
    begin = sum(counts[: ranks.rank])
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed))
    nodes = order[:samples].sort().values.to(positions.device) - begin
    mine = nodes[(nodes >= 0) & (nodes < len(positions))]
    sampled = torch.cat(ranks.gather(positions[mine].double()))
    graphs = None if batch is None else torch.cat(ranks.gather(batch[mine]))
    sums = torch.stack([_sums(positions[:, h].double(), sampled[:, h], decays[h], batch, graphs) for h in range(len(decays))])
    sums = ranks.sum(sums)
    count, weight, log_weight, total = sums[..., 0], sums[..., 1], sums[..., 2], sums[..., 3:]
    square = (sampled.transpose(0, 1) - total / count.unsqueeze(-1)).square().sum(dim=-1)
    entropy = weight.log() - log_weight / weight
    return torch.stack([square, entropy.exp(), 1 / weight], dim=-1)


def _sums(points: Tensor, sampled: Tensor, decay: Tensor, batch: Tensor | None, graphs: Tensor | None) -> Tensor:
    """Sums over the nodes of this rank that share a sampled node's graph, in one head: how many there are, their attention
    weights, these times their logarithms, and their positions, (M, 3 + D)."""
    parts = [points.new_empty(0, 3 + points.size(1))]
    step = max(1, PAIRS // max(1, len(points)))
    for begin in range(0, len(sampled), step):
        some = sampled[begin : begin + step]
        same = torch.ones(len(some), len(points), dtype=points.dtype, device=points.device)
        if batch is not None and graphs is not None:
            same = (graphs[begin : begin + step, None] == batch).to(points.dtype)
        score = -decay * distances(some, points)
        weight = same * score.exp()
        numbers = torch.stack([same.sum(dim=1), weight.sum(dim=1), (weight * score).sum(dim=1)], dim=1)
        parts.append(torch.cat([numbers, same @ points], dim=1))
    return torch.cat(parts)
