r"""A strong local network with global attention behind gates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear

from ..checks import check_choice, check_dropout, check_features, check_sizes
from ..distributed.norm import synchronise_norms
from ..functional import Backend, Method
from .attention_statistics import Statistics, attention_statistics, first_inputs
from .decay import Decay
from .global_block import GlobalBlock
from .global_memory import GlobalMemory
from .graph_input import GraphInput, read_graph
from .label_attention import LabelAttention
from .label_outputs import LabelOutputs
from .local_block import NORMS, LocalBlock
from .local_conv import Local, LocalEdges, edge_features, local_recordable, make_local, prepare_edges
from .models import drop_features

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

BODIES = ("residual", "polynomial")
JUMPS = ("last", "sum", "cat")
LABEL_SCALE = 0.1
"""What is made of labels is multiplied by this at the start."""

PLACES = ("top", "each", "input")


class GlobalGNN(torch.nn.Module):
    r"""A linear map, ``num_layers`` local layers with residuals and norms, global attention behind gates, a linear map.

    With ``global_layers=0`` it is the classic network of the `"Classic GNNs are Strong Baselines"
    <https://arxiv.org/abs/2406.08993>`_ paper, each layer

    .. math::
        \mathbf{x}^{\prime} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\mathrm{conv}(\mathbf{x}) +
        \mathbf{W} \mathbf{x}))).

    Global attention (:class:`phgcn.nn.GlobalBlock`) has gates that start at 0.  So the network with it starts as the one
    without, bit for bit, for the same seed: global parts are drawn last, and leave torch's random generator as it was.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first input.
        hidden_channels (int): Size of each hidden sample, all heads together.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of local layers. (default: :obj:`2`)
        local (str or class, optional): The local layer: PyG's ``"gcn"``, ``"sage"``, ``"gat"`` or ``"gin"``; ``"sgc"``, GCN's
            sum over neighbours without weights; ``"eda"``, which is :class:`phgcn.nn.EDAConv`; ``"none"``, a linear map of each
            node alone; or any layer's class, called with the sizes of input and output. (default: :obj:`"gcn"`)
        body (str, optional): ``"residual"``, the layers above; or ``"polynomial"``, those of `"Polynormer"
            <https://arxiv.org/abs/2403.01232>`_ (:class:`phgcn.nn.local_block.LocalBlock`), whose outputs are summed.
            (default: :obj:`"residual"`)
        norm (str, optional): ``"batch"``, ``"layer"`` (over the channels of each node), or :obj:`None`.
            (default: :obj:`"batch"`)
        jk (str, optional): What follows the layers gets: ``"last"``, the output of the last, in a polynomial body the sum; the
            ``"sum"`` of all and of what the first layer gets; or all these concatenated, ``"cat"``. (default: :obj:`"last"`)
        global_layers (int, optional): Number of global blocks at the top; with ``global_at="each"``, any positive number
            stands for one in each layer, with ``"input"`` for one. (default: :obj:`0`)
        global_at (str, optional): ``"top"``, after the local layers; ``"each"``, in each layer, added before its norm; or
            ``"input"``, which reads the input features without dropout and is added to the output of the first linear map.
            (default: :obj:`"top"`)
        dropout (float, optional): Dropout probability of the output of the first linear map and of each layer.
            (default: :obj:`0.5`)
        global_dropout (float, optional): Dropout probability in global attention. (default: :obj:`0.0`)
        input_dropout (float, optional): Dropout probability of the input features. (default: :obj:`0.0`)
        edge_dim (int, optional): Size of the features of edges, for the local layers ``"gat"`` and ``"eda"``.
            (default: :obj:`None`)
        residual (bool, optional): If set to :obj:`False`, :math:`\mathbf{W} \mathbf{x}` is left out. (default: :obj:`True`)
        heads (int, optional): Number of heads of global attention, and of the local layers ``"gat"`` and ``"eda"``, each with
            ``hidden_channels / heads`` channels. (default: :obj:`4`)
        labels (bool, optional): If set to :obj:`True`, each node also gets the mean label of the labelled nodes that it attends
            to by the features before the last linear map (:class:`phgcn.nn.LabelAttention`), never its own. It is added to the
            output as :class:`phgcn.nn.label_outputs.LabelOutputs` says. (default: :obj:`False`)
        task (str, optional): What is predicted, for ``labels``: ``"classification"``, ``"regression"`` or ``"multilabel"``.
            (default: :obj:`"classification"`)
        key_share (float, optional): The share of labelled nodes that :meth:`draw_keys` draws. (default: :obj:`0.6`)
        embedding_dim, decay, learn_decay, mass, method, backend, tolerance (optional): As in :class:`phgcn.nn.GlobalBlock`;
            a tolerance of 0 is none.
        process_group (ProcessGroup, optional): As in :class:`phgcn.nn.GlobalBlock`; batch norms are then over the nodes of all
            processes, and ``edge_index`` may be a :class:`phgcn.distributed.PartEdges`. (default: :obj:`None`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO; edge indices :math:`(2, E)`, or
          the other formats that :class:`phgcn.nn.EDAConv` takes; the graph of each node :math:`(N,)`, in any order
        - **output:** node features :math:`(N, F_{out})`
    """

    use_global: bool
    """Whether global attention is computed; without it, the network is its local part. True at the start."""

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
        decay: float = 1.0,
        learn_decay: bool = True,
        mass: bool = False,
        labels: bool = False,
        task: str = "classification",
        key_share: float = 0.6,
        method: Method = "auto",
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        sizes = {"hidden_channels": hidden_channels, "out_channels": out_channels, "num_layers": num_layers, "heads": heads}
        check_sizes(in_channels, **sizes)
        if not isinstance(global_layers, int) or global_layers < 0:
            raise ValueError(f"global_layers is {global_layers!r}; allowed: a non-negative integer")
        check_choice("body", body, BODIES)
        check_choice("norm", norm, (*NORMS, None))
        check_choice("jk", jk, JUMPS)
        check_choice("global_at", global_at, PLACES)
        for name, share in (("dropout", dropout), ("global_dropout", global_dropout), ("input_dropout", input_dropout)):
            check_dropout(name, share)
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
        convs = (make_local(local, hidden_channels, heads, backend, edge_dim) for _ in range(num_layers))
        layers = [LocalBlock(hidden_channels, conv, residual, norm, dropout, body == "polynomial") for conv in convs]
        self.local_blocks = torch.nn.ModuleList(layers)
        width = (num_layers + 1) * hidden_channels if jk == "cat" else hidden_channels
        self.lin_out = Linear(width, out_channels)
        blocks = {"each": num_layers * min(1, global_layers), "input": min(1, global_layers), "top": global_layers}[global_at]
        size = width if global_at == "top" else hidden_channels
        read = in_channels if global_at == "input" else None
        attention = heads, embedding_dim, decay, learn_decay, mass, global_dropout, method, backend, tolerance or None
        self.process_group = process_group
        with torch.random.fork_rng(devices=[]):
            self.global_blocks = torch.nn.ModuleList(
                [GlobalBlock(size, *attention, process_group, read) for _ in range(blocks)]
            )
            self.attentions = torch.nn.ModuleList()
            self.outputs = LabelOutputs(task, scale=LABEL_SCALE) if labels else None
            if labels:
                rest: Any = {
                    "method": method,
                    "backend": backend,
                    "tolerance": tolerance or None,
                    "process_group": process_group,
                }
                self.attentions.append(LabelAttention(width, out_channels, heads, embedding_dim, key_share=key_share, **rest))
        self.memories = torch.nn.ModuleList()
        if process_group is not None:
            synchronise_norms(self, process_group)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        modules: list[Any] = [self.lin_in, *self.local_blocks, self.lin_out]
        for module in modules:
            module.reset_parameters()
        with torch.random.fork_rng(devices=[]):
            late: list[Any] = [*self.global_blocks, *self.attentions, *([] if self.outputs is None else [self.outputs])]
            for module in late:
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
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor or Data): The node features; or a PyG :class:`~torch_geometric.data.Data` or
                :class:`~torch_geometric.data.Batch`, which holds all that follows.
            edge_index (torch.Tensor, optional): The edges: sources and targets, as a tensor or
                :class:`torch_geometric.EdgeIndex`, or the transposed adjacency matrix in a :obj:`torch.sparse` layout, whose
                values are not used. (default: :obj:`None`, those of the object)
            batch (torch.Tensor, optional): The graph of each node, in any order; attention never crosses graphs.
                (default: :obj:`None`, one graph)
            edge_attr (torch.Tensor, optional): The features of the edges, for the local layers ``"gat"`` and ``"eda"`` with
                ``edge_dim``, or a class that takes them. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of the edges, for the local layers ``"gcn"``, ``"sgc"`` and
                ``"eda"``, or a class that takes them. (default: :obj:`None`)
            n_id (torch.Tensor, optional): The numbers of the nodes in the graph of :meth:`remember`. (default: :obj:`None`,
                ``x`` is the whole graph)
            y, labelled, keys (torch.Tensor, optional): With ``labels``, as in :class:`phgcn.nn.LabelAttention`; the nodes in
                ``keys`` get no labels. (default: :obj:`None`)
        """
        if self.outputs is not None and n_id is not None:
            raise ValueError("n_id is given to a network with labels; allowed: None, as labels are of the whole graph")
        takes = (*self.takes, *(("n_id",) if len(self.memories) > 0 else ()))
        given = read_graph(GraphInput(x, edge_index, edge_attr, edge_weight, batch, n_id), takes)
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
            if self.outputs is not None and self.use_global:
                attention = cast(LabelAttention, self.attentions[0])
                read = F.layer_norm(hidden, hidden.shape[1:])
                added = self.outputs(attention(read, y, labelled, given.batch, keys=keys))
                out = out + (added if keys is None else torch.where(keys.unsqueeze(1), 0.0, added))
        return out

    def draw_keys(self, labelled: Tensor) -> Tensor | None:
        """Draws the keys of a training step, as :meth:`phgcn.nn.LabelAttention.draw_keys`; :obj:`None` without labels."""
        return None if self.outputs is None else cast(LabelAttention, self.attentions[0]).draw_keys(labelled)

    def _apply_body(self, x: Tensor, edges: LocalEdges, given: GraphInput) -> Tensor:
        """Applies the local layers and joins their outputs, and but for ``"last"`` their input."""
        blocks = self._active_blocks(given) if self.global_at == "each" else []
        summed = self.jk == "sum" or self.body == "polynomial"
        outputs = [] if self.jk == "last" else [x]
        for layer, active in zip_longest(self.local_blocks, blocks):
            update = None if active is None else active[0].update(x, given.batch, active[1], given.n_id)
            x = layer(x, edges, update)
            if self.jk == "cat":
                outputs.append(x)
            else:
                outputs = [outputs[0] + x if summed and outputs else x]
        return torch.cat(outputs, dim=1) if self.jk == "cat" else outputs[0]

    def remember(self, num_nodes: int) -> None:
        r"""Gives each global block a :class:`phgcn.nn.GlobalMemory` of all nodes of one graph, to train on parts of it: called
        with ``n_id``, the network attends to the whole graph, called without to the nodes given.

        Args:
            num_nodes (int): Number of nodes of the whole graph.
        """
        blocks: list[Any] = list(self.global_blocks)
        memories = [GlobalMemory(num_nodes, b.channels // b.heads, b.heads, b.embedding_dim) for b in blocks]
        self.memories = torch.nn.ModuleList(memories).to(self.lin_out.weight)

    @property
    def takes(self) -> tuple[str, ...]:
        """Which features of edges the model takes."""
        return edge_features(self._first_conv())

    def _first_conv(self) -> Any:
        """Returns a local layer, from which can be told how all of them take edges."""
        return cast(LocalBlock, self.local_blocks[0]).conv

    def _active_blocks(self, given: GraphInput) -> list[tuple[Any, Any]]:
        """Returns the global blocks with their memories, or :obj:`None` for a call with the whole graph; none while they are
        switched off."""
        if not self.use_global:
            return []
        memories = [None] * len(self.global_blocks) if given.n_id is None else self.memories
        return list(zip(self.global_blocks, memories, strict=True))

    def set_global(self, on: bool) -> None:
        """Switches global attention on or off, to train the local network first."""
        self.use_global = on

    def undecayed_parameters(self) -> Iterator[Parameter]:
        """Yields the parameters that weight decay should leave alone: gates, decays and those of norms."""
        for module in self.modules():
            if isinstance(module, GlobalBlock):
                yield module.gate
            elif isinstance(module, LabelAttention):
                yield module.head_shares
            elif isinstance(module, (Decay, LabelOutputs, *NORMS.values())):
                yield from module.parameters()

    def recordable(self, x: Tensor) -> bool:
        r"""Tells whether a pass over ``x`` can be captured into a CUDA graph, in which no kernel may wait for the host.

        So it is for dense features, the local layers ``"gcn"``, ``"sgc"``, ``"sage"``, ``"gin"``, ``"eda"`` and ``"none"``, and
        global attention that is summed exactly.
        """
        if self.outputs is not None or not x.is_cuda or x.layout != torch.strided:
            return False
        local = local_recordable(self._first_conv(), len(x), self.backend)
        return local and all(block.recordable(len(x)) for block, _ in self._active_blocks(GraphInput(x)))

    @torch.no_grad()
    def global_statistics(
        self,
        x: Tensor,
        edge_index: Any,
        batch: Tensor | None = None,
        samples: int = 512,
        seed: int = 0,
        **edge_values: Tensor,
    ) -> list[Statistics]:
        r"""Tells whether global attention is used: for each global block, the statistics of
        :func:`phgcn.nn.attention_statistics`, its ``layer`` (from 0) and the size of its ``gate`` (root mean square).

        Args:
            x, edge_index, batch: As in :meth:`forward`.
            samples (int, optional): How many nodes are looked at. (default: :obj:`512`)
            seed (int, optional): Which nodes. (default: :obj:`0`)
            **edge_values (optional): ``edge_attr``, ``edge_weight`` and labels, as in :meth:`forward`.
        """
        blocks = [block for block, _ in self._active_blocks(GraphInput(x))]
        if not blocks:
            return []
        inputs = first_inputs([block.lin_position for block in blocks], self, (x, edge_index, batch), edge_values)
        found = []
        for layer, (block, normed) in enumerate(zip(blocks, inputs, strict=True)):
            positions = block.lin_position(normed).view(-1, block.heads, block.embedding_dim)
            statistics = attention_statistics(
                positions, block.decay(), batch=batch, samples=samples, seed=seed, group=self.process_group
            )
            found.append({"layer": layer, **statistics, "gate": float(block.gate.square().mean().sqrt())})
        return found

    def __repr__(self) -> str:
        local = self.local if isinstance(self.local, str) else getattr(self.local, "__name__", repr(self.local))
        sizes = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}, num_layers={self.num_layers}"
        attention = f"global_layers={self.global_layers}, global_at={self.global_at}"
        return f"{self.__class__.__name__}({sizes}, local={local}, body={self.body}, {attention})"
