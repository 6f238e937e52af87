"""Statistics of global attention: the spread of embeddings, the nodes that each head attends
to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from ..checks import check_decay, check_index, check_positive
from ..distributed.collectives import OneRank, Ranks
from ..functional import observe_attention
from .top_attention import exponents, row_slices

Statistics = dict[str, Any]  # numbers by name, those of heads as lists, ready for JSON


@torch.no_grad()
def attention_statistics(
    positions: Tensor,
    decay: float | Tensor,
    *,
    batch: Tensor | None = None,
    samples: int = 512,
    seed: int = 0,
    itself: bool = True,
    group: ProcessGroup | None = None,
) -> Statistics:
    r"""Describes the global attention of each head, exactly for a sample of nodes.

    A head with one effective node is the identity, and a head with all nodes is the mean: neither
    attends.

    Args:
        positions (torch.Tensor): The embeddings.
        decay (float or torch.Tensor): The coefficient :math:`\lambda`, or one per head.
        batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`, one graph)
        samples (int, optional): The most nodes in the sample. (default: :obj:`512`)
        seed (int, optional): The seed of the sample. (default: :obj:`0`)
        itself (bool, optional): Whether a node attends to itself too. (default: :obj:`True`)
        group (ProcessGroup, optional): Processes that share the nodes; all return the statistics of
            all nodes. (default: :obj:`None`)

    Shapes:
        - **positions:** :math:`(N, H, D)`, **decay:** a number or :math:`(H,)`, **batch:**
          :math:`(N,)`

    Returns:
        A dictionary of lists, one number for each head:

        - ``decay``: the coefficient :math:`\lambda`
        - ``distance``: the root mean square of the nodes' distances to the mean of their graph
        - ``spread``: the ``distance`` in units of :math:`1 / \lambda`
        - ``effective_nodes``: the exponential of the entropy of a node's attention, median over
          nodes
        - ``self_share``: a node's attention to itself, median over nodes

    Takes time in proportion to ``samples`` times all nodes, and little memory."""
    check_index("batch", batch, positions, "positions")
    check_decay(decay, positions.size(1), positions.device)
    check_positive(samples=samples)
    heads = positions.size(1)
    decays = torch.as_tensor(decay, dtype=torch.float64, device=positions.device).expand(heads)
    ranks = OneRank() if group is None else Ranks(group)
    described = _describe(positions.double(), decays, batch, samples, seed, ranks)
    if not itself:
        described = _without_itself(described)
    distance = described[..., 0].mean(dim=1).sqrt()
    effective, share = described[..., 1:].quantile(0.5, dim=1).T
    return {
        "decay": decays.tolist(),
        "distance": distance.tolist(),
        "spread": (distance * decays).tolist(),
        "effective_nodes": effective.tolist(),
        "self_share": share.tolist(),
    }


def _describe(
    positions: Tensor,
    decays: Tensor,
    batch: Tensor | None,
    samples: int,
    seed: int,
    ranks: OneRank | Ranks,
) -> Tensor:
    """Computes for a sample of the nodes of all ranks the squared distance to the mean of their
    graph, the exponential of the entropy of their attention, and their attention to themselves, (H,
    M, 3). Each rank sums over its own nodes."""
    heads, dim = positions.shape[1:]
    counts = [len(rows) for rows in ranks.gather(positions[:, 0, :0])]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed))
    nodes = order[:samples].sort().values.to(positions.device) - sum(counts[: ranks.rank])
    nodes = nodes[(nodes >= 0) & (nodes < len(positions))]
    sampled = torch.cat(ranks.gather(positions[nodes]))
    if len(sampled) == 0:
        return positions.new_full((heads, 1, 3), torch.nan)
    graphs = None if batch is None else torch.cat(ranks.gather(batch[nodes]))
    sums = positions.new_empty(heads, len(sampled), 3 + dim)
    for rows in row_slices(len(sampled), heads * len(positions)):
        same = positions.new_ones(len(sampled[rows]), len(positions))
        if batch is not None and graphs is not None:
            same = (graphs[rows, None] == batch).double()
        score = exponents(sampled[rows], positions, decays)
        weight = same * score.exp()
        count, total = same.sum(dim=1).expand(heads, -1), same @ positions.transpose(0, 1)
        numbers = [count, weight.sum(dim=2), (weight * score).sum(dim=2)]
        sums[:, rows] = torch.cat([torch.stack(numbers, dim=2), total], dim=2)
    sums = ranks.sum(sums)
    count, weight, log_weight, total = sums[..., 0], sums[..., 1], sums[..., 2], sums[..., 3:]
    mean = total / count.unsqueeze(-1)
    square = (sampled.transpose(0, 1) - mean).square().sum(dim=-1)
    entropy = weight.log() - log_weight / weight
    return torch.stack([square, entropy.exp(), 1 / weight], dim=-1)


def _without_itself(described: Tensor) -> Tensor:
    """Recomputes effective nodes and own share of (H, M, 3) for attention to other nodes."""
    square, effective, share = described.unbind(dim=-1)
    others = (1 - share).clamp(min=1e-12)
    entropy = (effective.log() - torch.special.entr(share)) / others + others.log()
    return torch.stack([square, entropy.exp(), torch.zeros_like(share)], dim=-1)


class GlobalStatistics:
    """Gives a model with layers of global attention the method :meth:`global_statistics`."""

    def _global_layers(self) -> list[Any]:
        """Returns the layers of global attention in the order of their calls."""
        raise NotImplementedError

    @torch.no_grad()
    def global_statistics(
        self: Any,
        x: Tensor,
        edge_index: Any,
        batch: Tensor | None = None,
        samples: int = 512,
        seed: int = 0,
        **edge_values: Tensor,
    ) -> list[Statistics]:
        """Measures global attention: returns for each of its layers ``layer``, from 0 on, the
        statistics of :func:`phgcn.nn.attention_statistics` and, of a gated layer, the root mean
        square of the ``gate``.

        Args:
            x, edge_index, batch: As in :meth:`forward`.
            samples (int, optional): Number of nodes in the sample. (default: :obj:`512`)
            seed (int, optional): Seed of the sample. (default: :obj:`0`)
            **edge_values (optional): ``edge_attr``, ``edge_weight`` and labels, as in
                :meth:`forward`.
        """
        layers, training = self._global_layers(), self.training
        with observe_attention() as calls:
            self.eval()(x, edge_index, batch, **edge_values)
        self.train(training)
        rest: Any = {"samples": samples, "seed": seed, "group": self.process_group}
        found = []
        for index, (layer, call) in enumerate(zip(layers, calls, strict=False)):
            itself = not getattr(layer, "others_only", False)
            statistics = attention_statistics(
                call.positions, call.decay, batch=call.batch, itself=itself, **rest
            )
            gate = getattr(layer, "gate", None)
            gated = {} if gate is None else {"gate": float(gate.square().mean().sqrt())}
            found.append({"layer": index, **statistics, **gated})
        return found
