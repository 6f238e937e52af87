r"""Positions and values of all nodes of a large graph, for training on parts of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import check_node_ids, check_positive


class GlobalMemory(torch.nn.Module):
    r"""What global attention attends to in a graph that is trained in parts: the positions and values of all its nodes, as the
    batches that have passed left them.

    A batch attends with its own nodes, fresh and with gradients, and with all others as they were when they were last in a
    batch, which is before a few steps of training and without gradients: historical embeddings, as in the `"GNNAutoScale"
    <https://arxiv.org/abs/2106.05609>`_ paper.  Nodes that no batch has had yet are left out.  Each call takes time in
    proportion to the nodes of the whole graph, not of the batch alone.

    .. code-block:: python

        attention = GlobalAttention(64, 8, heads=4)
        memory = GlobalMemory(data.num_nodes, 8, heads=4)
        data.n_id = torch.arange(data.num_nodes)
        for batch in RandomNodeLoader(data, num_parts=10):
            out = attention(batch.x, memory=memory, n_id=batch.n_id)

    Args:
        num_nodes (int): Number of nodes of the whole graph.
        channels (int): Size of each value, of each head: ``out_channels`` of :class:`phgcn.nn.GlobalAttention`, or
            ``channels / heads`` of :class:`phgcn.nn.GlobalBlock`.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        embedding_dim (int, optional): Size of the positions. (default: :obj:`4`)
    """

    positions: Tensor
    values: Tensor
    seen: Tensor

    def __init__(self, num_nodes: int, channels: int, heads: int = 1, embedding_dim: int = 4) -> None:
        super().__init__()
        check_positive(num_nodes=num_nodes, channels=channels, heads=heads, embedding_dim=embedding_dim)
        self.register_buffer("positions", torch.zeros(num_nodes, heads, embedding_dim))
        self.register_buffer("values", torch.zeros(num_nodes, heads, channels))
        self.register_buffer("seen", torch.zeros(num_nodes, dtype=torch.bool))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return self.seen.size(0)

    def reset_parameters(self) -> None:
        r"""Forgets all nodes."""
        for buffer in (self.positions, self.values, self.seen):
            buffer.zero_()

    def refresh(self, positions: Tensor, values: Tensor, n_id: Any) -> tuple[Tensor, Tensor]:
        r"""Stores the rows of a batch; returns positions and values of all nodes that have been stored, those of the batch with
        gradients.

        Args:
            positions (torch.Tensor): The positions of the batch's nodes.
            values (torch.Tensor): Their values.
            n_id (torch.Tensor): Their numbers in the whole graph, each once, as PyG's loaders name them.

        Shapes:
            - **positions:** :math:`(M, H, D)`, **values:** :math:`(M, H, C)`, **n_id:** :math:`(M,)`
            - **output:** :math:`(N, H, D)` and :math:`(N, H, C)`, fewer rows until all nodes have been stored
        """
        check_node_ids(n_id, positions, self.num_nodes)
        for name, rows, stored in (("positions", positions, self.positions), ("values", values, self.values)):
            if rows.shape[1:] != stored.shape[1:]:
                shape, allowed = tuple(rows.shape[1:]), tuple(stored.shape[1:])
                raise ValueError(f"{name} of the batch are {shape} of each node; allowed: {allowed}, as in the memory")
        place, fresh = (n_id.long(),), (positions.to(self.positions.dtype), values.to(self.values.dtype))
        with torch.no_grad():
            for stored, rows in zip((self.positions, self.values), fresh, strict=True):
                stored.index_put_(place, rows.detach())
            self.seen.index_fill_(0, place[0], True)
        everywhere = self.positions.index_put(place, fresh[0]), self.values.index_put(place, fresh[1])
        if bool(self.seen.all()):
            return everywhere
        return everywhere[0][self.seen], everywhere[1][self.seen]

    def __repr__(self) -> str:
        _, heads, channels = self.values.shape
        return f"{self.__class__.__name__}({self.num_nodes}, {channels}, heads={heads})"


class Keys(NamedTuple):
    r"""What is attended to, and who attends.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`
        - **queries:** :math:`(M, H, D)`, or :obj:`None` where the keys attend to themselves
    """

    positions: Tensor
    values: Tensor
    queries: Tensor | None


def gather_keys(
    positions: Tensor, values: Tensor, batch: Tensor | None, memory: GlobalMemory | None, n_id: Tensor | None
) -> Keys:
    """Returns the nodes given, or with a memory all of the graph that they are a part of."""
    if memory is None:
        return Keys(positions, values, None)
    if batch is not None:
        raise ValueError("batch is given beside a memory; allowed: None, as a memory is of one graph")
    return Keys(*memory.refresh(positions, values, n_id), positions.to(memory.positions.dtype))
