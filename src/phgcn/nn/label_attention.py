r"""Attention to labelled nodes, with their labels as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import zeros

from ..checks import blame_inputs, check_choices, check_features, check_index, check_sizes
from ..functional import Backend, Method, global_attention
from ..tolerance import describe_tolerance, make_tolerance
from .decay import Decay

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class LabelAttention(torch.nn.Module):
    r"""Gives each node the mean label of the labelled nodes that are like it, never its own.

    .. math::
        \mathbf{a}_i = \sum_{h=1}^H s_h \sum_{j \in \mathcal{K},\, j \neq i} \alpha^h_{ij} \mathbf{y}_j, \qquad
        \alpha^h_{ij} \propto \exp(-\lambda_h \lVert \mathbf{P}^h \mathbf{x}_i - \mathbf{P}^h \mathbf{x}_j \rVert)

    with the labels :math:`\mathbf{y}_j` of the keys :math:`\mathcal{K}` and learned shares :math:`s_h` of heads that sum to 1.

    In training, draw a random part of the labelled nodes as keys in each step, and take the loss of the others:

    .. code-block:: python

        keys = attention.draw_keys(labelled)
        shares = attention(x, y, labelled, keys=keys)
        loss = F.nll_loss(torch.log(0.99 * shares + 0.01 / classes)[labelled & ~keys], y[labelled & ~keys])

    Without ``keys``, all labelled nodes are: nodes without a label attend to all of them, and the labelled nodes are divided
    into two halves that attend to each other.  So no output depends on the node's own label.

    Args:
        channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first input.
        out_channels (int): Number of classes, or of labels of each node; 1 for numbers.
        heads (int, optional): Number of attention heads. (default: :obj:`4`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{P} \mathbf{x}_i`. (default: :obj:`4`)
        key_share (float, optional): The share of labelled nodes that :meth:`draw_keys` draws. (default: :obj:`0.6`)
        decay (float, optional): The coefficient :math:`\lambda`. (default: :obj:`4.0`)
        learn_decay (bool, optional): If set to :obj:`True`, :math:`\lambda` is learned for each head, from ``decay`` on.
            (default: :obj:`True`)
        method, backend, tolerance, process_group (optional): As in :class:`phgcn.nn.GlobalAttention`.

    Shapes:
        - **input:** node features :math:`(N, F)`; labels :math:`(N,)`, integers for classes, floats for numbers, or
          :math:`(N, C)` floats for several labels per node; masks ``labelled`` and ``keys`` :math:`(N,)`; the graph of each
          node :math:`(N,)`, in any order
        - **output:** :math:`(N, C)`: for classes their shares, for numbers and several labels the means; 0 where a node has no
          key to attend to, and for the nodes in ``keys``
    """

    kept_positions: Tensor
    kept_values: Tensor

    def __init__(
        self,
        channels: int,
        out_channels: int,
        heads: int = 4,
        embedding_dim: int = 4,
        *,
        key_share: float = 0.6,
        decay: float = 4.0,
        learn_decay: bool = True,
        method: Method = "auto",
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        check_sizes(channels, out_channels=out_channels, heads=heads, embedding_dim=embedding_dim)
        check_choices(method, backend)
        if not 0 < key_share < 1:
            raise ValueError(f"key_share is {key_share!r}; allowed: numbers between 0 and 1")
        self.channels = channels
        self.out_channels = out_channels
        self.heads = heads
        self.embedding_dim = embedding_dim
        self.key_share = key_share
        self.method = method
        self.backend = backend
        self.tolerance = make_tolerance(tolerance, method, heads)
        self.process_group = process_group
        self.lin_position = Linear(channels, heads * embedding_dim, bias=False, weight_initializer="glorot")
        self.decay = Decay("decay", decay, heads, learn_decay)
        self.head_shares = Parameter(torch.empty(heads))
        self.register_buffer("kept_positions", torch.zeros(0, heads, embedding_dim), persistent=False)
        self.register_buffer("kept_values", torch.zeros(0, out_channels), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        self.lin_position.reset_parameters()
        self.decay.reset_parameters()
        zeros(self.head_shares)

    def draw_keys(self, labelled: Tensor) -> Tensor:
        """Draws the keys of a training step: a random part of the labelled nodes, never all of them, as a mask :math:`(N,)`."""
        drawn = torch.rand(len(labelled), device=labelled.device)
        last = torch.where(labelled, drawn, -1.0).argmax()
        return labelled & (drawn < self.key_share).index_fill(0, last.view(1), False)

    def forward(
        self,
        x: Tensor,
        y: Tensor | None = None,
        labelled: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        keys: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            y (torch.Tensor, optional): The labels; those of other nodes than ``labelled`` are not looked at. (default:
                :obj:`None`, all nodes attend to what :meth:`keep_keys` has kept)
            labelled (torch.Tensor, optional): Mask of the nodes whose labels may be used, of all but test nodes for example.
                Needed with ``y``. (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of each node, in any order; attention never crosses graphs. Not looked at
                where kept keys are attended to. (default: :obj:`None`, one graph)
            keys (torch.Tensor, optional): Mask of the labelled nodes that are keys, which get no output then. (default:
                :obj:`None`, all, labelled nodes in two halves)
        """
        positions = self.positions(x)
        if y is None:
            if len(self.kept_positions) == 0:
                raise ValueError("y is None; allowed: labels, or None after keep_keys")
            everyone = torch.arange(len(positions), device=positions.device)
            pairs = _Pairs(self.kept_positions, self.kept_values, everyone, None, None)
        else:
            values = encode_labels(y, labelled, positions, self.out_channels)
            check_index("batch", batch, positions, "x")
            pairs = _pair(positions, values, _checked_mask("labelled", labelled, positions), keys, batch)
        with blame_inputs(x=x):
            out = self._attend(pairs, positions)
        return out.new_zeros(len(positions), self.out_channels).index_copy(0, pairs.queries, out)

    def positions(self, x: Tensor) -> Tensor:
        r"""Computes the embeddings :math:`\mathbf{P} \mathbf{x}_i` that distances are taken between, :math:`(N, H, D)`."""
        check_features(x, self.lin_position.in_channels, self.lin_position.weight)
        positions: Tensor = self.lin_position(x).view(-1, self.heads, self.embedding_dim)
        return positions

    def _attend(self, pairs: _Pairs, positions: Tensor) -> Tensor:
        """Computes the mean labels of the queries, (M, C)."""
        out: Any = global_attention(
            pairs.key_positions,
            pairs.values,
            decay=self.decay(),
            batch=pairs.batch,
            queries=positions[pairs.queries],
            query_batch=pairs.query_batch,
            method=self.method,
            backend=self.backend,
            tolerance=self.tolerance,
            group=self.process_group,
        )
        return torch.einsum("mhc,h->mc", out, F.softmax(self.head_shares, dim=0).to(out.dtype))

    @torch.no_grad()
    def keep_keys(self, x: Tensor, y: Tensor, labelled: Tensor) -> None:
        """Keeps the positions and labels of the labelled nodes, for calls with nodes of another graph.  They are not part of
        the state dict, as their number is that of the labelled nodes."""
        positions = self.positions(x)
        values = encode_labels(y, labelled, positions, self.out_channels)
        self.set_keys(positions[labelled], values[labelled])

    def set_keys(self, positions: Tensor, values: Tensor) -> None:
        """Sets the keys that :meth:`keep_keys` has kept in another module: positions (K, H, D) and labels (K, C)."""
        for name, rows, kept in (("positions", positions, self.kept_positions), ("values", values, self.kept_values)):
            if rows.shape[1:] != kept.shape[1:]:
                raise ValueError(f"{name} of keys are {tuple(rows.shape[1:])}; allowed: {tuple(kept.shape[1:])}")
        self.kept_positions = positions.detach().to(self.kept_positions)
        self.kept_values = values.detach().to(self.kept_values)

    def __repr__(self) -> str:
        sizes = f"{self.channels}, {self.out_channels}, heads={self.heads}, embedding_dim={self.embedding_dim}"
        return f"{self.__class__.__name__}({sizes}{describe_tolerance(self.tolerance)})"


class _Pairs(NamedTuple):
    """Who attends to whom: the positions of keys (K, H, D), their labels (K, C), the indices of the nodes that attend (M,), and
    the clouds of both (K,) and (M,), if there are several."""

    key_positions: Tensor
    values: Tensor
    queries: Tensor
    batch: Tensor | None
    query_batch: Tensor | None


def _pair(positions: Tensor, values: Tensor, labelled: Tensor, keys: Tensor | None, batch: Tensor | None) -> _Pairs:
    """Pairs the nodes with keys: others than ``keys`` with these, or without ``keys`` in three clouds."""
    if keys is not None:
        _checked_mask("keys", keys, positions)
        index, queries = (mask.nonzero().flatten() for mask in (keys & labelled, ~keys))
        if batch is None:
            return _Pairs(positions[index], values[index], queries, None, None)
        return _Pairs(positions[index], values[index], queries, batch[index], batch[queries])
    half = draw_half(labelled)
    other = labelled & ~half
    parts = [(labelled, ~labelled), (half, other), (other, half)]  # those who are attended to, those who attend
    index, queries = (torch.cat([part[side].nonzero().flatten() for part in parts]) for side in (0, 1))
    clouds = []
    for side, nodes in enumerate((index, queries)):
        counts = torch.stack([part[side].sum() for part in parts])
        cloud = torch.repeat_interleave(torch.arange(3, device=nodes.device), counts)
        clouds.append(cloud if batch is None else 3 * batch[nodes].long() + cloud)
    return _Pairs(positions[index], values[index], queries, *clouds)


def draw_half(labelled: Tensor) -> Tensor:
    """Draws one half of the labelled nodes (N,), the same in every call."""
    order = torch.randperm(int(labelled.sum()), generator=torch.Generator().manual_seed(0))
    half = torch.zeros_like(labelled)
    half[labelled.nonzero().flatten()[order[: len(order) // 2].to(labelled.device)]] = True
    return half


def encode_labels(y: Tensor, labelled: Tensor | None, positions: Tensor, channels: int) -> Tensor:
    """Encodes labels as values (N, C): classes as 1 and 0, others as they are; 0 for nodes that are not ``labelled``."""
    if labelled is None:
        raise ValueError("labelled is None beside y; allowed: a mask of the nodes whose labels may be used")
    labelled = _checked_mask("labelled", labelled, positions)
    if not isinstance(y, Tensor) or y.dim() not in (1, 2) or len(y) != len(positions):
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y has shape {shape}; allowed: ({len(positions)},) or ({len(positions)}, {channels})")
    if y.is_floating_point():
        values = y.to(positions.dtype).view(len(y), -1)
    else:
        known = torch.where(labelled, y.long(), 0)
        if y.dim() == 2 or (len(y) > 0 and not 0 <= int(known.min()) <= int(known.max()) < channels):
            raise ValueError(f"y has classes {y[labelled].unique().tolist()}; allowed: 0 to {channels - 1}")
        values = F.one_hot(known, channels).to(positions.dtype)
    if values.size(1) != channels:
        raise ValueError(f"y has {values.size(1)} columns; allowed: {channels}, as out_channels")
    return torch.where(labelled.unsqueeze(1), values, 0.0)


def _checked_mask(name: str, mask: Tensor | None, rows: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != rows.shape[:1]:
        found = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} is {found}; allowed: a mask, bool of shape ({len(rows)},)")
    return mask
