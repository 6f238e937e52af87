"""The exact weights of global attention: rows of exponents, and the targets of largest weight."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..checks import check_index, check_positive, refusal

PAIRS = 2**22  # most pairs of points whose exponents are held at a time, which bounds the memory


def row_slices(rows: int, width: int) -> Iterator[slice]:
    """Yields slices of ``rows`` rows, so that a slice of a matrix (rows, width) fits in memory."""
    step = max(1, PAIRS // max(1, width))
    return (slice(start, start + step) for start in range(0, rows, step))


def exponents(queries: Tensor, keys: Tensor, decay: float | Tensor) -> Tensor:
    r"""Computes :math:`-\lambda_h \lVert \mathbf{q}_i - \mathbf{k}_j \rVert`, (H, M, N), of queries
    (M, H, D) and keys (N, H, D), half types in float32."""
    wide = torch.promote_types(queries.dtype, torch.float32)
    queries, keys = (side.to(wide).transpose(0, 1) for side in (queries, keys))
    distance = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")
    return -torch.as_tensor(decay, device=distance.device).to(wide).view(-1, 1, 1) * distance


def top_attention(
    positions: Tensor,
    decay: float | Tensor,
    k: int = 10,
    nodes: Tensor | None = None,
    batch: Tensor | None = None,
    keys: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Finds the ``k`` targets of each node with the largest softmax weights among all nodes of its
    graph.

    Args:
        positions (torch.Tensor): The embeddings.
        decay (float or torch.Tensor): The coefficient :math:`\lambda`, or one per head.
        k (int, optional): The number of targets per node. (default: :obj:`10`)
        nodes (torch.Tensor, optional): The nodes that attend. (default: :obj:`None`, all)
        batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`, one graph)
        keys (torch.Tensor, optional): The targets, which do not attend to themselves, as in
            :class:`phgcn.nn.LabelAttention`. (default: :obj:`None`, all nodes, also themselves)

    Shapes:
        - **positions:** :math:`(N, H, D)`, **decay:** a number or :math:`(H,)`
        - **nodes:** :math:`(M,)`, **batch:** :math:`(N,)`, **keys:** :math:`(K,)`
        - **output:** targets and weights, both :math:`(M, H, k)`, in order of weight; -1 and 0
          after the graph's last node
    """
    check_positive(k=k)
    check_index("batch", batch, positions, "x")
    count, heads = positions.shape[:2]
    everyone = torch.arange(count, device=positions.device)
    nodes = everyone if nodes is None else _check_nodes("nodes", nodes, count)
    others = everyone if keys is None else _check_nodes("keys", keys, count)
    weights = positions.new_zeros(len(nodes), heads, k)
    targets = torch.full_like(weights, -1, dtype=torch.int64)
    found = min(k, len(others))
    for part in row_slices(len(nodes), heads * len(others)):
        rows = nodes[part]
        score = exponents(positions[rows], positions[others], decay)
        if batch is not None:
            score.masked_fill_(batch[rows].unsqueeze(1) != batch[others], -torch.inf)
        if keys is not None:
            score.masked_fill_(rows.unsqueeze(1) == others, -torch.inf)
        best, index = score.topk(found, dim=2)
        share = score.softmax(dim=2).nan_to_num().gather(2, index)
        targets[part, :, :found] = others[index].masked_fill(best == -torch.inf, -1).transpose(0, 1)
        weights[part, :, :found] = share.transpose(0, 1).to(weights.dtype)
    return targets, weights


def _check_nodes(name: str, nodes: Tensor, count: int) -> Tensor:
    """Checks node numbers and returns them as int64."""
    nodes = torch.as_tensor(nodes)
    if nodes.dtype not in (torch.int64, torch.int32) or nodes.dim() != 1:
        found = f"{name} is {nodes.dtype} of shape {tuple(nodes.shape)}"
        raise refusal(found, "a vector of int64 or int32")
    bad = (nodes < 0) | (nodes >= count)
    if bool(bad.any()):
        found = f"{name} has {int(nodes[bad][0])}"
        raise refusal(found, f"0 to {count - 1}, as x has {count} rows")
    return nodes.long()
