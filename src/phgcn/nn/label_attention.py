"""Attention to labelled nodes, with their labels as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch_geometric.nn.inits import zeros

from ..backends import BackendName
from ..checks import check_graph_numbers, check_index, check_positive
from ..functional import Method
from ..kernels import Kernel
from ..tolerance import describe_tolerance
from .checks import blame_inputs, check_features, check_input_size
from .distance_attention import DistanceAttention, linear_map
from .global_memory import GlobalMemory

LABEL_DECAY = 4.0  # the decay that attention to labels begins with


class LabelAttention(DistanceAttention):
    r"""Computes the mean label of the labelled nodes near each node, never its own label.

    .. math::
        \mathbf{a}_i = \sum_{h=1}^H s_h \sum_{j \in \mathcal{K},\, j \neq i} \alpha^h_{ij}
        \mathbf{y}_j, \qquad
        \alpha^h_{ij} \propto \exp(-\lambda_h \lVert \mathbf{P}^h \mathbf{x}_i -
        \mathbf{P}^h \mathbf{x}_j \rVert)

    with the labels :math:`\mathbf{y}_j` of the keys :math:`\mathcal{K}` and learned shares
    :math:`s_h` of heads that sum to 1.

    In each training step, draw random labelled nodes as keys, and take the loss of the others:

    .. code-block:: python

        keys = attention.draw_keys(labelled)
        shares, others = attention(x, y, labelled, keys=keys), labelled & ~keys
        loss = F.nll_loss(torch.log(0.99 * shares + 0.01 / classes)[others], y[others])

    Without ``keys``, all labelled nodes are keys: nodes without a label attend to all of them, and
    two halves of the labelled nodes attend to each other. No output depends on the node's own
    label.

    Args:
        channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first
            input.
        out_channels (int): Number of classes, or of labels of each node; 1 for numbers.
        heads (int, optional): Number of attention heads. (default: :obj:`4`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{P} \mathbf{x}_i`.
            (default: :obj:`4`)
        key_share (float, optional): The share of labelled nodes that :meth:`draw_keys` draws.
            (default: :obj:`0.6`)
        decay, learn_decay, method, backend, tolerance, process_group, kernel (optional): As in
            :class:`phgcn.nn.GlobalAttention`; by default :math:`\lambda` is learned from 4 on.

    Shapes:
        - **input:** node features :math:`(N, F)`; labels :math:`(N,)`, integers for classes, floats
          for numbers, or :math:`(N, C)` for several labels per node; masks ``labelled`` and
          ``keys`` :math:`(N,)`; the graph of each node :math:`(N,)`, in any order
        - **output:** :math:`(N, C)`: shares of classes, or means of numbers and several labels; 0
          for nodes without a key, and for the nodes in ``keys``
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
        decay: float = LABEL_DECAY,
        learn_decay: bool = True,
        method: Method = "auto",
        backend: BackendName = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
        kernel: str | Kernel = "exponential",
    ) -> None:
        settings = (method, backend, tolerance, process_group, kernel)
        super().__init__(heads, embedding_dim, decay, learn_decay, *settings)
        check_input_size("channels", channels)
        check_positive(out_channels=out_channels)
        if not 0 < key_share < 1:
            raise ValueError(f"key_share is {key_share!r}; allowed: numbers between 0 and 1")
        self.channels = channels
        self.out_channels = out_channels
        self.key_share = key_share
        self.lin_position = linear_map(channels, heads * embedding_dim)
        self.head_shares = Parameter(torch.empty(heads))
        kept = {"positions": (0, heads, embedding_dim), "values": (0, out_channels)}
        for name, shape in kept.items():
            self.register_buffer(f"kept_{name}", torch.zeros(shape), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
        self.lin_position.reset_parameters()
        self.decay.reset_parameters()
        zeros(self.head_shares)

    def draw_keys(self, labelled: Tensor) -> Tensor:
        """Draws the keys of a training step as a mask (N,): random labelled nodes, never all."""
        if len(labelled) == 0:  # a process without nodes
            return labelled
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
        memory: GlobalMemory | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            y (torch.Tensor, optional): The labels; only labels of ``labelled`` nodes are used.
                (default: :obj:`None`, all nodes attend to the keys of :meth:`keep_keys`)
            labelled (torch.Tensor, optional): Mask of the nodes whose labels may be used, needed
                with ``y``.
            batch (torch.Tensor, optional): The graph of each node, in any order; attention never
                crosses graphs. Not used with kept keys. (default: :obj:`None`, one graph)
            keys (torch.Tensor, optional): Mask of the labelled nodes that are keys and have no
                output. (default: :obj:`None`, all, labelled nodes in two halves)
            memory (GlobalMemory, optional): All nodes of a large graph, by :meth:`make_memory`;
                ``x`` is a part of it and attends also to labelled nodes outside of the part.
                Without ``keys``, labelled nodes attend only to these.
            n_id (torch.Tensor, optional): The numbers of the nodes in the large graph.
        """
        positions = self.positions(x)
        if y is not None:
            labelled = check_mask("labelled", labelled, positions)
            keys = None if keys is None else check_mask("keys", keys, positions)
            check_index("batch", batch, positions, "x")
            check_graph_numbers(batch=batch)
            values = encode_labels(y, labelled, self.out_channels).to(positions.dtype)
            known = _Known(positions, values)
            if memory is not None:
                known, batch = _recall(memory, positions, values, labelled, n_id), None
            pairs = _pair(known, labelled, keys, batch)
        elif len(self.kept_positions) == 0:
            raise ValueError("y is None; allowed: labels, or None after keep_keys")
        else:
            everyone = torch.arange(len(positions), device=positions.device)
            pairs = _Pairs(self.kept_positions, self.kept_values, everyone)
        with blame_inputs(x=x):
            out = self.attend(
                pairs.key_positions,
                pairs.values,
                batch=pairs.batch,
                queries=positions[pairs.queries],
                query_batch=pairs.query_batch,
            )
        out = torch.einsum("mhc,h->mc", out, F.softmax(self.head_shares, dim=0).to(out.dtype))
        return out.new_zeros(len(positions), self.out_channels).index_copy(0, pairs.queries, out)

    def positions(self, x: Tensor) -> Tensor:
        r"""Computes the embeddings :math:`\mathbf{P} \mathbf{x}_i`, :math:`(N, H, D)`."""
        check_features(x, self.lin_position.in_channels, self.lin_position.weight)
        return self.as_positions(self.lin_position(x))

    @torch.no_grad()
    def keep_keys(self, x: Tensor, y: Tensor, labelled: Tensor) -> None:
        """Keeps the positions and labels of the labelled nodes, for calls with nodes of another
        graph; they are not part of the state dict."""
        positions = self.positions(x)
        values = encode_labels(y, check_mask("labelled", labelled, positions), self.out_channels)
        self.set_keys(positions[labelled], values[labelled])

    def set_keys(self, positions: Tensor, values: Tensor) -> None:
        """Sets positions (K, H, D) and labels (K, C) that another module has kept."""
        for name, rows in (("positions", positions), ("values", values)):
            kept = getattr(self, f"kept_{name}")
            shape, allowed = tuple(rows.shape[1:]), tuple(kept.shape[1:])
            if shape != allowed:
                raise ValueError(f"{name} of keys are {shape}; allowed: {allowed}")
            setattr(self, f"kept_{name}", rows.detach().to(kept))

    def make_memory(self, num_nodes: int) -> GlobalMemory:
        """Makes a memory of all nodes of one graph, to train on parts of it. Its values are labels
        and a column that is 1 for labelled nodes."""
        return GlobalMemory(num_nodes, self.out_channels + 1, self.heads, self.embedding_dim)

    def __repr__(self) -> str:
        heads = f"heads={self.heads}, embedding_dim={self.embedding_dim}"
        rest = describe_tolerance(self.tolerance)
        return f"{self.__class__.__name__}({self.channels}, {self.out_channels}, {heads}{rest})"


class _Pairs(NamedTuple):
    """Positions (K, H, D) and labels (K, C) of keys, indices of queries (M,), and the clouds of
    keys (K,) and queries (M,), if there are several."""

    key_positions: Tensor
    values: Tensor
    queries: Tensor
    batch: Tensor | None = None
    query_batch: Tensor | None = None


class _Known(NamedTuple):
    """Positions (S, H, D) and labels (S, C) of nodes that may be keys. With a memory also their
    numbers in the part, -1 outside of it, and the mask of the labelled ones outside, both (S,)."""

    positions: Tensor
    values: Tensor
    own: Tensor | None = None
    outside: Tensor | None = None

    def keys(self, mask: Tensor) -> Tensor:
        """Returns the indices of the nodes in a mask of the part, and of those outside."""
        if self.own is not None and self.outside is not None:
            mask = self.outside | ((self.own >= 0) & mask[self.own.clamp(min=0)])
        return mask.nonzero().flatten()


def _recall(
    memory: GlobalMemory, positions: Tensor, values: Tensor, labelled: Tensor, n_id: Tensor | None
) -> _Known:
    """Stores the nodes of a part in the memory. Returns all nodes that are stored there."""
    rows = torch.cat([values, labelled.unsqueeze(1).to(values.dtype)], dim=1)
    rows = rows.unsqueeze(1).expand(-1, memory.values.size(1), -1)
    known, stored = memory.refresh(positions, rows, n_id)
    own = torch.full_like(memory.seen, -1, dtype=torch.int64)
    own[n_id] = torch.arange(len(positions), device=own.device)
    own = own[memory.seen]
    return _Known(known, stored[:, 0, :-1], own, (own < 0) & (stored[:, 0, -1] > 0))


def _pair(known: _Known, labelled: Tensor, keys: Tensor | None, batch: Tensor | None) -> _Pairs:
    """Pairs each query with the keys that it may read: the given ``keys``, else all labelled nodes.
    Labelled queries read the other half of the labelled nodes, with a memory the nodes outside of
    the part."""
    if keys is not None:
        pairs = [(keys & labelled, ~keys)]
    elif known.own is not None:
        pairs = [(labelled, ~labelled), (torch.zeros_like(labelled), labelled)]
    else:
        half = draw_half(labelled)
        other = labelled & ~half
        pairs = [(labelled, ~labelled), (half, other), (other, half)]
    index = [known.keys(mask) for mask, _ in pairs]
    queries = [mask.nonzero().flatten() for _, mask in pairs]
    clouds: list[Tensor | None] = [None, None]
    if batch is not None or len(pairs) > 1:
        clouds = [_number_clouds(nodes, batch) for nodes in (index, queries)]
    chosen = torch.cat(index)
    return _Pairs(known.positions[chosen], known.values[chosen], torch.cat(queries), *clouds)


def _number_clouds(parts: Sequence[Tensor], batch: Tensor | None) -> Tensor:
    """Numbers the clouds of joined parts of nodes, each part of each graph a cloud."""
    cloud = torch.cat([torch.full_like(part, number) for number, part in enumerate(parts)])
    return cloud if batch is None else len(parts) * batch[torch.cat(list(parts))].long() + cloud


def draw_half(labelled: Tensor) -> Tensor:
    """Draws a mask (N,) of half of the labelled nodes, the same in every call."""
    order = torch.randperm(int(labelled.sum()), generator=torch.Generator().manual_seed(0))
    half = torch.zeros_like(labelled)
    half[labelled.nonzero().flatten()[order[: len(order) // 2].to(labelled.device)]] = True
    return half


def encode_labels(y: Tensor, labelled: Tensor, channels: int) -> Tensor:
    """Encodes labels as values (N, C), classes one-hot; 0 for nodes that are not ``labelled``."""
    if not isinstance(y, Tensor) or y.dim() not in (1, 2) or len(y) != len(labelled):
        shape, count = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__, len(labelled)
        raise ValueError(f"y has shape {shape}; allowed: ({count},) or ({count}, {channels})")
    if y.is_floating_point() or y.dim() == 2:
        values = y.view(len(y), -1)
    else:
        known = torch.where(labelled, y.long(), 0)
        if bool(((known < 0) | (known >= channels)).any()):
            classes = y[labelled].unique().tolist()
            raise ValueError(f"y has classes {classes}; allowed: 0 to {channels - 1}")
        values = F.one_hot(known, channels)
    if values.size(1) != channels:
        raise ValueError(f"y has {values.size(1)} columns; allowed: {channels}, as out_channels")
    return torch.where(labelled.unsqueeze(1), values, 0)


def check_mask(name: str, mask: Tensor | None, rows: Tensor) -> Tensor:
    """Refuses everything but a mask with one entry per row."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != rows.shape[:1]:
        found = type(mask).__name__
        if isinstance(mask, Tensor):
            found = f"{mask.dtype} of shape {tuple(mask.shape)}"
        raise ValueError(f"{name} is {found}; allowed: a mask, bool of shape ({len(rows)},)")
    return mask
