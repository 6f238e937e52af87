r"""The strongest targets of global attention, with exact weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_index
from ..exact.reference import distances

PAIRS = 2**20
"""Upper bound of the score matrix of one step, in pairs of nodes: bounds the memory."""


def top_attention(
    positions: Tensor,
    decay: float | Tensor,
    k: int = 10,
    nodes: Tensor | None = None,
    batch: Tensor | None = None,
    keys: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Finds the ``k`` strongest targets of nodes, and their softmax weights among all nodes of the same graph.

    Args:
        positions (torch.Tensor): The embeddings.
        decay (float or torch.Tensor): The coefficient :math:`\lambda`, or one per head.
        k (int, optional): How many targets of each node. (default: :obj:`10`)
        nodes (torch.Tensor, optional): The nodes that are asked for. (default: :obj:`None`, all)
        batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`, one graph)
        keys (torch.Tensor, optional): The nodes that are attended to, by others than themselves, as with
            :class:`phgcn.nn.LabelAttention`. (default: :obj:`None`, all nodes, by themselves too)

    Shapes:
        - **positions:** :math:`(N, H, D)`, **decay:** a number or :math:`(H,)`
        - **nodes:** :math:`(M,)`, **batch:** :math:`(N,)`, **keys:** :math:`(K,)`
        - **output:** targets and weights, both :math:`(M, H, k)`, strongest first; -1 and 0 beyond the graph's last node
    """
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"k is {k!r}; allowed: a positive integer")
    check_index("batch", batch, positions, "x")
    count, heads = positions.shape[:2]
    scaled = (positions * (decay.view(-1, 1) if isinstance(decay, Tensor) else decay)).transpose(0, 1)
    nodes = torch.arange(count, device=positions.device) if nodes is None else _check_nodes(nodes, count)
    targets = torch.full((len(nodes), heads, k), -1, dtype=torch.int64, device=positions.device)
    weights = positions.new_zeros(len(nodes), heads, k)
    others = torch.arange(count, device=positions.device) if keys is None else _check_nodes(keys, count, "keys")
    if len(nodes) == 0 or len(others) == 0:
        return targets, weights
    step = max(1, PAIRS // len(others))
    for start in range(0, len(nodes), step):
        rows = nodes[start : start + step]
        for head in range(heads):
            score = -distances(scaled[head, rows], scaled[head, others])
            if batch is not None:
                score = score.masked_fill(batch[rows].unsqueeze(1) != batch[others], -torch.inf)
            if keys is not None:
                score = score.masked_fill(rows.unsqueeze(1) == others, -torch.inf)
            best, index = score.topk(min(k, len(others)), dim=1)
            place = slice(start, start + len(rows)), head, slice(best.size(1))
            targets[place] = others[index].masked_fill(best == -torch.inf, -1)
            weights[place] = score.softmax(dim=1).nan_to_num().gather(1, index)
    return targets, weights


def _check_nodes(nodes: Tensor, count: int, name: str = "nodes") -> Tensor:
    """Checks node numbers and returns them as int64."""
    nodes = torch.as_tensor(nodes)
    if nodes.dtype not in (torch.int64, torch.int32) or nodes.dim() != 1:
        raise ValueError(f"{name} is {nodes.dtype} of shape {tuple(nodes.shape)}; allowed: a vector of int64 or int32")
    bad = (nodes < 0) | (nodes >= count)
    if bool(bad.any()):
        raise ValueError(f"{name} has {int(nodes[bad][0])}; allowed: 0 to {count - 1}, as x has {count} rows")
    return nodes.long()
