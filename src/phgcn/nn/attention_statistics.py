r"""Whether global attention is used: how wide embeddings are spread, and to how many nodes each head attends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import check_decay, check_index
from ..distributed.statistics import describe_over_ranks
from ..exact.reference import distances
from .top_attention import PAIRS

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Statistics = dict[str, Any]
"""Numbers by name, those of heads as lists, ready for JSON."""


@torch.no_grad()
def attention_statistics(
    positions: Tensor,
    decay: float | Tensor,
    *,
    batch: Tensor | None = None,
    samples: int = 512,
    seed: int = 0,
    group: ProcessGroup | None = None,
) -> Statistics:
    r"""Describes the global attention of each head, exactly for a sample of nodes.

    A head that attends to nearly one node is the identity, and one that attends to nearly all is the mean: neither is attention
    worth the name.

    Args:
        positions (torch.Tensor): The embeddings.
        decay (float or torch.Tensor): The coefficient :math:`\lambda`, or one per head.
        batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`, one graph)
        samples (int, optional): How many nodes are looked at; all, if there are no more. (default: :obj:`512`)
        seed (int, optional): Which nodes are looked at. (default: :obj:`0`)
        group (ProcessGroup, optional): Processes that share the nodes out among them; all get the same statistics, of all
            nodes. (default: :obj:`None`, this process alone)

    Shapes:
        - **positions:** :math:`(N, H, D)`, **decay:** a number or :math:`(H,)`, **batch:** :math:`(N,)`

    Returns:
        A dictionary of lists, one number for each head:

        - ``decay``: the coefficient :math:`\lambda`
        - ``distance``: the root mean square of the nodes' distances to the mean of their graph
        - ``spread``: the same in units of :math:`1 / \lambda`
        - ``effective_nodes``: the exponential of the entropy of a node's attention, median over nodes
        - ``self_share``: a node's attention to itself, median over nodes

    Takes time in proportion to ``samples`` times all nodes, and never holds such a matrix.
    """
    check_index("batch", batch, positions, "positions")
    check_decay(decay, positions.size(1), positions.device)
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples is {samples!r}; allowed: a positive integer")
    count, heads, _ = positions.shape
    decays = torch.as_tensor(decay, dtype=torch.float64, device=positions.device).expand(heads)
    # For each head and node: the squared distance to the mean, the effective nodes, the share on itself.
    if group is not None:
        described = describe_over_ranks(positions, decays, batch, samples, seed, group)
    else:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        nodes = order[:samples].sort().values.to(positions.device)
        rows = [_describe(positions[:, head].double(), decays[head], nodes, batch) for head in range(heads)]
        described = torch.stack(rows) if count > 0 else positions.new_full((heads, 1, 3), torch.nan)
    distance = described[..., 0].mean(dim=1).sqrt()
    effective, share = described[..., 1:].double().quantile(0.5, dim=1).T
    return {
        "decay": decays.tolist(),
        "distance": distance.tolist(),
        "spread": (distance * decays).tolist(),
        "effective_nodes": effective.tolist(),
        "self_share": share.tolist(),
    }


def _describe(points: Tensor, decay: Tensor, nodes: Tensor, batch: Tensor | None) -> Tensor:
    """Computes the three numbers of each of some nodes, (M, 3), in the cloud (N, D) of one head."""
    described = [points.new_empty(0, 3)]
    for part in nodes.split(max(1, PAIRS // max(1, len(points)))):
        same = torch.ones_like(points[:, 0]).expand(len(part), -1) if batch is None else (batch[part, None] == batch).double()
        mean = same @ points / same.sum(dim=1, keepdim=True)
        score = (-decay * distances(points[part], points)).masked_fill(same == 0, -torch.inf)
        total = score.logsumexp(dim=1)
        entropy = torch.special.entr(torch.exp(score - total.unsqueeze(1))).sum(dim=1)
        square = (points[part] - mean).square().sum(dim=1)
        described.append(torch.stack([square, entropy.exp(), torch.exp(-total)], dim=1))
    return torch.cat(described)


def first_inputs(
    modules: Sequence[torch.nn.Module], model: torch.nn.Module, inputs: Sequence[Any], options: Mapping[str, Any] | None = None
) -> list[Tensor]:
    """Runs a model once in evaluation mode; returns the first argument that each of its ``modules`` was called with."""
    seen: dict[torch.nn.Module, Tensor] = {}

    def keep(module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        seen[module] = arguments[0]

    handles = [module.register_forward_pre_hook(keep) for module in modules]
    training = model.training
    try:
        model.eval()(*inputs, **(options or {}))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return [seen[module] for module in modules]
