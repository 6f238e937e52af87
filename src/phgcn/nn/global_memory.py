"""Positions and values of all nodes of a large graph, for training on parts of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_positive, refusal
from .checks import check_node_ids


class GlobalMemory(torch.nn.Module):
    """Positions and values of all nodes of a graph that is trained in parts, for global attention.

    The nodes of a batch attend to each other, with gradients, and to the nodes of earlier batches
    as these were then, without gradients: historical embeddings, as in the `"GNNAutoScale"
    <https://arxiv.org/abs/2106.05609>`_ paper. Each call takes time in proportion to the nodes of
    the whole graph.

    .. code-block:: python

        attention = GlobalAttention(64, 8, heads=4)
        memory = GlobalMemory(data.num_nodes, 8, heads=4)
        data.n_id = torch.arange(data.num_nodes)
        for batch in RandomNodeLoader(data, num_parts=10):
            out = attention(batch.x, memory=memory, n_id=batch.n_id)

    Args:
        num_nodes (int): Number of nodes of the whole graph.
        channels (int): Size of each value of each head: ``out_channels`` of
            :class:`phgcn.nn.GlobalAttention`, ``channels / heads`` of
            :class:`phgcn.nn.GlobalBlock`.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        embedding_dim (int, optional): Size of the positions. (default: :obj:`4`)
    """

    positions: Tensor
    values: Tensor
    seen: Tensor

    def __init__(
        self, num_nodes: int, channels: int, heads: int = 1, embedding_dim: int = 4
    ) -> None:
        super().__init__()
        check_positive(num_nodes=num_nodes, channels=channels)
        check_positive(heads=heads, embedding_dim=embedding_dim)
        self.register_buffer("positions", torch.zeros(num_nodes, heads, embedding_dim))
        self.register_buffer("values", torch.zeros(num_nodes, heads, channels))
        self.register_buffer("seen", torch.zeros(num_nodes, dtype=torch.bool))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return self.seen.size(0)

    def reset_parameters(self) -> None:
        """Forgets all nodes."""
        for buffer in (self.positions, self.values, self.seen):
            buffer.zero_()

    def refresh(self, positions: Tensor, values: Tensor, n_id: Any) -> tuple[Tensor, Tensor]:
        """Stores the rows of a batch. Returns positions and values of all stored nodes, with
        gradients for the nodes of the batch.

        Args:
            positions (torch.Tensor): The positions of the batch's nodes.
            values (torch.Tensor): Their values.
            n_id (torch.Tensor): Their numbers in the whole graph, each once.

        Shapes:
            - **positions:** :math:`(M, H, D)`, **values:** :math:`(M, H, C)`, **n_id:**
              :math:`(M,)`
            - **output:** :math:`(N, H, D)` and :math:`(N, H, C)`, fewer rows until all nodes have
              been stored
        """
        check_node_ids(n_id, positions, self.num_nodes)
        index, everywhere = (n_id.long(),), []
        sides = ("positions", self.positions, positions), ("values", self.values, values)
        for name, stored, rows in sides:
            if rows.shape[1:] != stored.shape[1:]:
                problem = f"{name} of the batch are {tuple(rows.shape[1:])} of each node"
                allowed = tuple(stored.shape[1:])
                raise ValueError(f"{problem}; allowed: {allowed}, as in the memory")
        for _, stored, rows in sides:
            fresh = rows.to(stored.dtype)
            with torch.no_grad():
                stored.index_put_(index, fresh.detach())
            everywhere.append(stored.index_put(index, fresh))
        self.seen.index_fill_(0, index[0], True)
        if not bool(self.seen.all()):
            everywhere = [rows[self.seen] for rows in everywhere]
        return everywhere[0], everywhere[1]

    def __repr__(self) -> str:
        _, heads, channels = self.values.shape
        return f"{self.__class__.__name__}({self.num_nodes}, {channels}, heads={heads})"


def gather_keys(
    positions: Tensor,
    values: Tensor,
    batch: Tensor | None,
    memory: GlobalMemory | None,
    n_id: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns positions (N, H, D) and values (N, H, C) of the keys. A memory's keys are all nodes
    of its graph, and the queries' positions (M, H, D) come third."""
    if memory is None:
        return positions, values, None
    if batch is not None:
        raise refusal("batch is given beside a memory", "None, as a memory is of one graph")
    return *memory.refresh(positions, values, n_id), positions.to(memory.positions.dtype)
