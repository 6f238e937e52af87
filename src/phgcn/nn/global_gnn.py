"""A strong local network with global attention behind gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch_geometric.nn import Linear

from ..backends import BackendName
from ..checks import check_choice
from ..distributed.norm import synchronise_norms
from ..functional import Method
from .attention_statistics import GlobalStatistics
from .checks import check_dropout, check_features, check_sizes
from .distance_attention import Decay
from .global_block import GlobalBlock
from .global_memory import GlobalMemory
from .graph_input import GraphInput, read_graph
from .label_attention import LABEL_DECAY
from .label_path import LabelPath, check_columns
from .local_conv import (
    NORMS,
    Local,
    LocalBlock,
    LocalEdges,
    edge_features,
    make_local,
    prepare_edges,
)
from .models import drop_features

BODIES = ("residual", "polynomial")
JUMPS = ("last", "sum", "cat")
PLACES = ("top", "each", "input")
LABEL_SCALE = 0.1  # the scale of label outputs at the start


class GlobalGNN(GlobalStatistics, torch.nn.Module):
    r"""A linear map, ``num_layers`` local layers with residuals and norms, global attention behind
    gates, a linear map.

    With ``global_layers=0`` it is the classic network of the `"Classic GNNs are Strong Baselines"
    <https://arxiv.org/abs/2406.08993>`_ paper, each layer

    .. math::
        \mathbf{x}^{\prime} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(
        \mathrm{conv}(\mathbf{x}) +
        \mathbf{W} \mathbf{x}))).

    The gates of global attention (:class:`phgcn.nn.GlobalBlock`) start at 0, and its parameters are
    drawn last, without a change of torch's random generator. For the same seed, networks with and
    without it start with the same bits.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first
            input.
        hidden_channels (int): Size of each hidden sample, all heads together.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of local layers. (default: :obj:`2`)
        local (str or class, optional): The local layer: PyG's ``"gcn"``, ``"sage"``, ``"gat"`` or
            ``"gin"``; ``"sgc"``, GCN's sum over neighbours without weights; ``"eda"``,
            :class:`phgcn.nn.EDAConv`; ``"none"``, a linear map; or any layer's class, called with
            the sizes of input and output. (default: :obj:`"gcn"`)
        body (str, optional): ``"residual"``, the layers above; or ``"polynomial"``, the layers of
            `"Polynormer" <https://arxiv.org/abs/2403.01232>`_, whose outputs are summed. (default:
            :obj:`"residual"`)
        norm (str, optional): ``"batch"``, ``"layer"`` (over the channels of each node), or
            :obj:`None`. (default: :obj:`"batch"`)
        jk (str, optional): The output of the body: ``"last"``, the output of the last layer, in a
            polynomial body the sum; or the input of the first layer and all outputs, as ``"sum"``
            or concatenated, ``"cat"``. (default: :obj:`"last"`)
        global_layers (int, optional): Number of global blocks at the top; with
            ``global_at="each"`` any positive number is one in each layer, with ``"input"`` one.
            (default: :obj:`0`)
        global_at (str, optional): ``"top"``, after the local layers; ``"each"``, in each layer,
            before its norm; or ``"input"``, from the input features without dropout to the output
            of the first linear map. (default: :obj:`"top"`)
        dropout (float, optional): Dropout probability of the output of the first linear map and of
            each layer. (default: :obj:`0.5`)
        global_dropout (float, optional): Dropout probability in global attention. (default:
            :obj:`0.0`)
        input_dropout (float, optional): Dropout probability of the input features. (default:
            :obj:`0.0`)
        edge_dim (int, optional): Size of the features of edges, for the local layers ``"gat"`` and
            ``"eda"``. (default: :obj:`None`)
        residual (bool, optional): Whether layers add :math:`\mathbf{W} \mathbf{x}`. (default:
            :obj:`True`)
        heads (int, optional): Number of heads of global attention, and of the local layers
            ``"gat"`` and ``"eda"``, each with ``hidden_channels / heads`` channels. (default:
            :obj:`4`)
        labels (bool, optional): If set to :obj:`True`, each node also gets the mean label of the
            labelled nodes that it attends to (:class:`phgcn.nn.LabelAttention`), never its own: by
            the features before the last linear map, with ``global_at="input"`` by the input
            features. :class:`phgcn.nn.LabelOutputs` adds it to the output. (default: :obj:`False`)
        coordinates (list of int, optional): With ``labels``, features that are coordinates on a
            map: four more heads attend by distances on it, with learned scales.
        task, key_share (optional): With ``labels``, as in :class:`phgcn.nn.LabelOutputs` and
            :class:`phgcn.nn.LabelAttention`. (default: :obj:`"classification"`, :obj:`0.6`)
        decay (float, optional): The coefficient of distances of global blocks and of attention to
            labels. (default: :obj:`None`, 1 for global blocks and 4 for labels)
        learn_decay (bool, optional): If set to :obj:`True`, the decays are learned for each head,
            from ``decay`` on. (default: :obj:`True`)
        embedding_dim, mass, method, backend, tolerance (optional): As in
            :class:`phgcn.nn.GlobalBlock`; a tolerance of 0 is none.
        process_group (ProcessGroup, optional): As in :class:`phgcn.nn.GlobalBlock`. Batch norms are
            over the nodes of all processes, and ``edge_index`` may be a
            :class:`phgcn.distributed.PartEdges`. (default: :obj:`None`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO;
          edge indices :math:`(2, E)`, or other formats of :class:`phgcn.nn.EDAConv`; the graph of
          each node :math:`(N,)`, in any order
        - **output:** node features :math:`(N, F_{out})`
    """

    use_global: bool  # whether global attention is computed; True at the start

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        local: Local = "gcn",
        body: str = "residual",
        norm: str | None = "batch",
        jk: str = "last",
        global_layers: int = 0,
        global_at: str = "top",
        dropout: float = 0.5,
        global_dropout: float = 0.0,
        *,
        input_dropout: float = 0.0,
        edge_dim: int | None = None,
        residual: bool = True,
        heads: int = 4,
        embedding_dim: int = 4,
        decay: float | None = None,
        learn_decay: bool = True,
        mass: bool = False,
        labels: bool = False,
        coordinates: Sequence[int] = (),
        task: str = "classification",
        key_share: float = 0.6,
        method: Method = "auto",
        backend: BackendName = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        sizes = {"hidden_channels": hidden_channels, "out_channels": out_channels}
        check_sizes(in_channels, **sizes, num_layers=num_layers, heads=heads)
        if not isinstance(global_layers, int) or global_layers < 0:
            raise ValueError(f"global_layers is {global_layers!r}; allowed: a non-negative integer")
        check_choice("body", body, BODIES)
        check_choice("norm", norm, (*NORMS, None))
        check_choice("jk", jk, JUMPS)
        check_choice("global_at", global_at, PLACES)
        check_dropout(dropout=dropout, global_dropout=global_dropout, input_dropout=input_dropout)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.local = local
        self.body = body
        self.jk = jk
        self.global_layers = global_layers
        self.global_at = global_at
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.backend = backend
        self.use_global = True

        self.lin_in = Linear(in_channels, hidden_channels)
        self.local_blocks = torch.nn.ModuleList()
        for _ in range(num_layers):
            conv = make_local(local, hidden_channels, heads, backend, edge_dim)
            options = (residual, norm, dropout, body == "polynomial")
            self.local_blocks.append(LocalBlock(hidden_channels, conv, *options))
        width = (num_layers + 1) * hidden_channels if jk == "cat" else hidden_channels
        self.lin_out = Linear(width, out_channels)
        one = min(1, global_layers)
        blocks = {"each": num_layers * one, "input": one, "top": global_layers}[global_at]
        size = width if global_at == "top" else hidden_channels
        read = in_channels if global_at == "input" else None
        attention: Any = {
            "heads": heads,
            "embedding_dim": embedding_dim,
            "learn_decay": learn_decay,
            "method": method,
            "backend": backend,
            "tolerance": tolerance or None,
            "process_group": process_group,
        }
        own: Any = {"decay": 1.0 if decay is None else decay, "mass": mass, "in_channels": read}
        self.process_group = process_group
        with torch.random.fork_rng(devices=[]):
            self.global_blocks = torch.nn.ModuleList(
                GlobalBlock(size, dropout=global_dropout, **own, **attention) for _ in range(blocks)
            )
            self.label_path = None
            if labels:
                self.label_path = LabelPath(
                    read or width,
                    out_channels,
                    task,
                    LABEL_SCALE,
                    check_columns("coordinates", coordinates, in_channels),
                    key_share=key_share,
                    decay=LABEL_DECAY if decay is None else decay,
                    **attention,
                )
        self.memories = torch.nn.ModuleList()
        if process_group is not None:
            synchronise_norms(self, process_group)

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
        modules: list[Any] = [self.lin_in, *self.local_blocks, self.lin_out]
        for module in modules:
            module.reset_parameters()
        late: list[Any] = [*self.global_blocks, self.label_path]
        with torch.random.fork_rng(devices=[]):
            for module in late:
                if module is not None:
                    module.reset_parameters()

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        batch: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        n_id: Tensor | None = None,
        y: Tensor | None = None,
        labelled: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x, edge_index, batch (optional): As in :meth:`phgcn.nn.PHGCNConv.forward`; values of a
                sparse ``edge_index`` are edge features with ``edge_dim``, else edge weights if the
                local layer takes them, except ``"eda"``.
            edge_attr (torch.Tensor, optional): The features of edges, for the local layers
                ``"gat"`` and ``"eda"`` with ``edge_dim``, or a class that takes them.
            edge_weight (torch.Tensor, optional): The weights of edges, for the local layers
                ``"gcn"``, ``"sgc"`` and ``"eda"``, or a class that takes them.
            n_id (torch.Tensor, optional): The numbers of the nodes in the graph of
                :meth:`remember`. (default: :obj:`None`, ``x`` is the whole graph)
            y, labelled, keys (torch.Tensor, optional): With ``labels``, as in
                :class:`phgcn.nn.LabelAttention`; the nodes in ``keys`` get no labels.
        """
        labels = self.label_path if self.use_global else None
        remembers = self.memories or (self.label_path is not None and self.label_path.memories)
        takes = (*self.takes, *(("n_id",) if remembers else ()))
        attends = self.use_global and (labels is not None or len(self.global_blocks) > 0)
        given = GraphInput(x, edge_index, edge_attr, edge_weight, batch, n_id)
        given = read_graph(given, takes, crosses=type(self).__name__ if attends else None)
        with given.blame():
            check_features(given.x, self.lin_in.in_channels, self.lin_in.weight)
            edges = prepare_edges(self._first_conv(), given, self.backend)
            hidden = self.lin_in(drop_features(given.x, self.input_dropout, self.training))
            if self.global_at == "input":
                for block, memory in self._active_blocks(given):
                    hidden = hidden + block.update(given.x, given.batch, memory, given.n_id)
            hidden = self._apply_body(F.dropout(hidden, self.dropout, self.training), edges, given)
            if self.global_at == "top":
                for block, memory in self._active_blocks(given):
                    hidden = block(hidden, given.batch, memory=memory, n_id=given.n_id)
            out: Tensor = self.lin_out(hidden)
            if labels is not None:
                at_input = self.global_at == "input"
                read = given.x if at_input else F.layer_norm(hidden, hidden.shape[1:])
                own = (y, labelled, given.batch)
                out = out + labels(read, given.x, *own, keys=keys, n_id=given.n_id)
        return out

    def draw_keys(self, labelled: Tensor) -> Tensor | None:
        """Draws the keys of a training step (:meth:`phgcn.nn.LabelAttention.draw_keys`);
        :obj:`None` without labels."""
        return None if self.label_path is None else self.label_path.draw_keys(labelled)

    def _apply_body(self, x: Tensor, edges: LocalEdges, given: GraphInput) -> Tensor:
        """Applies the local layers and joins their outputs by ``jk``."""
        blocks = self._active_blocks(given) if self.global_at == "each" else []
        summed = self.jk == "sum" or self.body == "polynomial"
        outputs = [] if self.jk == "last" else [x]
        for layer, active in zip_longest(self.local_blocks, blocks):
            update = None
            if active is not None:
                block, memory = active
                update = block.update(x, given.batch, memory, given.n_id)
            x = layer(x, edges, update)
            if self.jk == "cat":
                outputs.append(x)
            else:
                outputs = [outputs[0] + x if summed and outputs else x]
        return torch.cat(outputs, dim=1) if self.jk == "cat" else outputs[0]

    def remember(self, num_nodes: int) -> None:
        """Gives each global block and the attention to labels a :class:`phgcn.nn.GlobalMemory` of
        all nodes of one graph, to train on parts of it. Calls with ``n_id`` attend to the whole
        graph, calls without to their nodes only.

        Args:
            num_nodes (int): Number of nodes of the whole graph.
        """
        blocks: list[Any] = list(self.global_blocks)
        memories = [
            GlobalMemory(num_nodes, b.channels // b.heads, b.heads, b.embedding_dim) for b in blocks
        ]
        self.memories = torch.nn.ModuleList(memories).to(self.lin_out.weight)
        if self.label_path is not None:
            self.label_path.remember(num_nodes)

    @property
    def takes(self) -> tuple[str, ...]:
        """The edge features that the model takes, by argument."""
        return edge_features(self._first_conv())

    def _first_conv(self) -> Any:
        return cast(LocalBlock, self.local_blocks[0]).conv

    def _active_blocks(self, given: GraphInput) -> list[tuple[Any, Any]]:
        """Returns the switched-on global blocks, with memories in calls with ``n_id`` only."""
        if not self.use_global:
            return []
        memories = [None] * len(self.global_blocks) if given.n_id is None else self.memories
        return list(zip(self.global_blocks, memories, strict=True))

    def set_global(self, on: bool) -> None:
        """Switches global attention on or off, to train the local network first."""
        self.use_global = on

    def undecayed_parameters(self) -> Iterator[Parameter]:
        """Yields the parameters without weight decay: gates, decays, shares, scales and norms."""
        for module in (*self.local_blocks.modules(), *self.global_blocks.modules()):
            if isinstance(module, GlobalBlock):
                yield module.gate
            elif isinstance(module, (Decay, *NORMS.values())):
                yield from module.parameters()
        if self.label_path is not None:
            yield from self.label_path.undecayed_parameters()

    def _global_layers(self) -> list[Any]:
        return list(self.global_blocks) if self.use_global else []

    def __repr__(self) -> str:
        local = self.local
        if not isinstance(local, str):
            local = getattr(local, "__name__", repr(local))
        sizes = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}"
        body = f"num_layers={self.num_layers}, local={local}, body={self.body}"
        attention = f"global_layers={self.global_layers}, global_at={self.global_at}"
        return f"{self.__class__.__name__}({sizes}, {body}, {attention})"
