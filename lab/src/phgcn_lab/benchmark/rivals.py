r"""The rivals: PyG's SGFormer, Polynormer, GPS layer and LINKX with our names of arguments, H2GCN.

What is computed is PyG's; added are a dense copy of sparse features, and that the normalised edges
of :class:`~torch_geometric.nn.conv.GCNConv` are kept while the edges stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import ModuleList
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, GPSConv, Linear, SAGEConv
from torch_geometric.nn import models as pyg

from phgcn.data.load import csr_tensor


class Rival(torch.nn.Module):
    """The base of all rivals: what :class:`phgcn.train.Training` needs of a model."""

    _edges: Tensor | None = None  # those that the layers' normalised edges belong to

    def prepare(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Returns dense features, and lets GCN layers normalise the edges anew if these have
        changed.
        """
        if edge_index is not self._edges:
            for layer in self.modules():
                if isinstance(layer, GCNConv):
                    forget_edges(layer)
            self._edges = edge_index
        return x if x.layout == torch.strided else x.to_dense()


@torch.no_grad()
def forget_edges(layer: GCNConv) -> None:
    """Lets a GCN layer keep the next edges that it normalises.  Only a reset makes PyG's layer
    forget those it has kept: its parameters and the random numbers are put back afterwards."""
    layer.cached = True
    kept = {name: value.clone() for name, value in layer.state_dict().items()}
    with torch.random.fork_rng():
        layer.reset_parameters()
    layer.load_state_dict(kept)


class PyGModel(Rival):
    """A model of PyG that takes the batch vector of a single graph."""

    build: ClassVar[Callable[..., Any]]
    names: ClassVar[dict[str, tuple[str, ...]]]  # what PyG calls our arguments
    fixed: ClassVar[dict[str, Any]]

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, **arguments: Any
    ) -> None:
        super().__init__()
        theirs = {name: value for key, value in arguments.items() for name in self.names[key]}
        sizes = in_channels, hidden_channels, out_channels
        self.model = type(self).build(*sizes, **{**self.fixed, **theirs})

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        batch = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        out: Tensor = self.model(self.prepare(x, edge_index), edge_index, batch)
        return out


class SGFormer(PyGModel):
    """Linear attention beside a GCN, added with a fixed weight."""

    build = pyg.SGFormer
    names: ClassVar = {
        "num_layers": ("gnn_num_layers",),
        "attention_layers": ("trans_num_layers",),
        "dropout": ("gnn_dropout", "trans_dropout"),
        "graph_weight": ("graph_weight",),
    }
    fixed: ClassVar = {"trans_num_layers": 1}


class Polynormer(PyGModel):
    """Has one head, as PyG's version with more fails in PyG 2.8.

    Its recipe trains the local layers first: ``local_epochs`` of the training, which calls
    :meth:`set_global`.
    """

    build = pyg.Polynormer
    names: ClassVar = {
        "num_layers": ("local_layers",),
        "local_attention": ("local_attn",),
        **{name: (name,) for name in ("global_layers", "global_dropout", "dropout", "in_dropout")},
    }
    fixed: ClassVar = {"local_attn": True}

    def __init__(self, *sizes: int, **arguments: Any) -> None:
        super().__init__(*sizes, **arguments)
        self.set_global(True)

    def set_global(self, on: bool) -> None:
        """Switches attention on or off, as PyG's own example does."""
        self.model._global = on


class GPS(Rival):
    """GPS layers with Performer attention, without positional encodings."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 3,
        local: str = "gcn",
        heads: int = 4,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lin_in = Linear(in_channels, hidden_channels)
        self.lin_out = Linear(hidden_channels, out_channels)
        head = {"head_channels": hidden_channels // heads}
        performer: dict[str, Any] = {"attn_type": "performer", "attn_kwargs": head}
        layers = [_local_layer(local, hidden_channels) for _ in range(num_layers)]
        self.convs = ModuleList(
            GPSConv(hidden_channels, layer, heads, dropout, **performer) for layer in layers
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(self.prepare(x, edge_index), self.dropout, self.training)
        x = self.lin_in(x).relu()
        for conv in self.convs:
            x = conv(x, edge_index)
        out: Tensor = self.lin_out(F.dropout(x, self.dropout, self.training))
        return out


def _local_layer(name: str, channels: int) -> torch.nn.Module:
    """Makes a layer of PyG; GIN with the two-layer MLP of its paper."""
    layers: dict[str, Any] = {"gcn": GCNConv, "sage": SAGEConv, "gat": GATConv, "gin": GINConv}
    if name not in layers:
        raise ValueError(f"local is {name!r}; allowed for gps: {', '.join(layers)}")
    if name != "gin":
        layer: torch.nn.Module = layers[name](channels, channels)
        return layer
    first, second = (torch.nn.Linear(channels, channels) for _ in range(2))
    gin: torch.nn.Module = GINConv(torch.nn.Sequential(first, torch.nn.ReLU(), second))
    return gin


class LINKX(Rival):
    """An MLP of the node's row of the adjacency matrix and of its features."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.5,
        *,
        num_nodes: int,
    ) -> None:
        super().__init__()
        sizes = num_nodes, in_channels, hidden_channels, out_channels
        self.model = pyg.LINKX(*sizes, num_layers, dropout=dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.model(self.prepare(x, edge_index), edge_index)
        return out


class H2GCN(Rival):
    r"""The network of the `"Beyond Homophily in Graph Neural Networks"
    <https://arxiv.org/abs/2006.11468>`_ paper: the node, its neighbours and those exactly two steps
    away are kept apart, and all rounds are concatenated.

    .. math::
        H_0 = \mathrm{relu}(X W), \quad H_{k+1} = [\bar{A}_1 H_k, \bar{A}_2 H_k], \quad
        Y = [H_0, \ldots, H_K]\, V

    with the symmetrically normalised adjacencies of one step and of two.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.num_layers, self.dropout = num_layers, dropout
        self.embed = Linear(in_channels, hidden_channels)
        self.classify = Linear(hidden_channels * (2 ** (num_layers + 1) - 1), out_channels)

    def forward(self, x: Tensor, one: Tensor, two: Tensor) -> Tensor:
        x = F.dropout(self.prepare(x, one), self.dropout, self.training)
        rounds = [self.embed(x).relu()]
        for _ in range(self.num_layers):
            rounds.append(torch.cat([_product(hops, rounds[-1]) for hops in (one, two)], dim=1))
        out: Tensor = self.classify(
            F.dropout(torch.cat(rounds, dim=1), self.dropout, self.training)
        )
        return out


class _Product(torch.autograd.Function):
    """Multiplies a symmetric CSR matrix (N, N), not learned, by a dense one (N, C)."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradients[0]


def _product(matrix: Tensor, x: Tensor) -> Tensor:
    product: Tensor = _Product.apply(matrix, x)  # type: ignore[no-untyped-call]
    return product


def one_and_two_hops(data: Data, seed: int) -> tuple[Tensor, Tensor]:
    r"""Returns the normalised adjacencies of one step and of exactly two, :math:`D^{-1/2} A
    D^{-1/2}` without self-loops.

    Edges are taken in both directions, as the matrices must be symmetric.

    Shapes:
        - **output:** two CSR matrices :math:`(N, N)`
    """
    import numpy as np
    from scipy.sparse import coo_array, diags_array, eye_array

    count = int(data.num_nodes)
    source, target = data.edge_index.numpy()
    one = coo_array((np.ones(len(source)), (source, target)), shape=(count, count)).tocsr()
    one = _ones(one + one.T - diags_array((one + one.T).diagonal()))
    reached = _ones(one @ one + one + eye_array(count))
    two = _ones(reached - one - eye_array(count))
    scales = [diags_array(1 / np.sqrt(np.maximum(hops.sum(axis=1), 1))) for hops in (one, two)]
    first, second = (
        csr_tensor((s @ hops @ s).astype(np.float32))
        for s, hops in zip(scales, (one, two), strict=True)
    )
    return first, second


def _ones(matrix: Any) -> Any:
    matrix = matrix.tocsr()
    matrix.eliminate_zeros()
    matrix.data[:] = 1
    return matrix
