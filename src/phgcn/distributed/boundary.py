"""The edges of one rank's nodes, and the features of their sources on other ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .collectives import Ranks, exchange_rows


@dataclass(frozen=True, eq=False)
class PartEdges:
    """All edges that end in the nodes of this rank: what layers and models take in place of
    ``edge_index``.

    Sources on other ranks are *boundary nodes*, numbered behind the :math:`N_r` nodes of this rank,
    in the order of their ranks.

    Args:
        nodes (int): How many nodes this rank has, :math:`N_r`.
        edge_index (torch.Tensor): Sources, from 0 to :math:`N_r + B_r - 1`, then targets, from 0 to
            :math:`N_r - 1`, :math:`(2, E_r)`.
        sent (torch.Tensor): Which of this rank's nodes are boundary nodes of rank 0, then of rank 1
            and so on.
        send, receive (list of int): How many boundary nodes each other rank has of this one, and
            this one of each.
        ranks (Ranks): The processes.
    """

    nodes: int
    edge_index: Tensor
    sent: Tensor
    send: list[int]
    receive: list[int]
    ranks: Ranks

    def count(self, nodes: int) -> int:
        """Returns the number of nodes with those on the boundary, :math:`N_r + B_r`."""
        return nodes + sum(self.receive)

    def extend(self, x: Tensor) -> Tensor:
        """Appends the rows of boundary nodes to this rank's rows, differentiably: :math:`(N_r +
        B_r, *)`.

        Every rank must call it. Sparse features become dense.
        """
        rows = x if x.layout == torch.strided else x.to_dense()
        return torch.cat(
            [rows, exchange_rows(rows, self.sent, self.send, self.receive, self.ranks)]
        )

    def extend_all(self, *tensors: Tensor) -> list[Tensor]:
        """Extends tensors, :math:`(N_r, *)`, whose shapes differ in the last dimension only, in one
        exchange."""
        joined = self.extend(torch.cat(tensors, dim=-1))
        return list(joined.split([t.size(-1) for t in tensors], dim=-1))

    def reverse(self) -> Any:
        """Refuses to reverse the edges: those from the nodes of this rank are not here."""
        raise ValueError("edge_index is a PartEdges; allowed for flow='target_to_source': a tensor")

    def select(self, edges: Tensor) -> PartEdges:
        """Returns a subset of the edges."""
        return replace(self, edge_index=self.edge_index[:, edges])

    def to(self, device: str | torch.device) -> PartEdges:
        """Moves the edges to a device."""
        return replace(self, edge_index=self.edge_index.to(device), sent=self.sent.to(device))
