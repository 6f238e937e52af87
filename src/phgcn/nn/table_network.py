r"""A network for tables: what the columns of a row say, and what the labels of the rows like it
say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import MLP

from ..checks import check_choice, check_dropout, check_features, check_sizes
from ..functional import Backend, Method
from .decay import Decay
from .label_attention import LabelAttention
from .label_outputs import LabelOutputs
from .periodic_features import PeriodicFeatures

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

PARTS = ("network", "labels", "both")
PERIODIC_COLUMNS = 64
"""Up to so many numeric columns are given periodic features: each adds 16."""
MAP_SCALES = (1.0, 3.0, 9.0, 27.0)
"""The scales of coordinates in the heads that attend on the map, at the start."""


class TableNetwork(torch.nn.Module):
    r"""Predicts the rows of a table: by an MLP on their columns, by the labels of the rows that
    they attend to, or by both.

    Numeric columns are read as they are and by :class:`phgcn.nn.PeriodicFeatures`. All features are
    mapped to the positions of
    :class:`phgcn.nn.LabelAttention`, and to an MLP. The sum of both is the output.

    In training, pass the mask of keys that :meth:`draw_keys` draws and take the loss of the other
    labelled rows.

    Args:
        in_channels (int): Number of columns.
        out_channels (int): Number of classes or of labels per row; 1 for numbers.
        hidden_channels (int, optional): Size of each hidden sample of the MLP. (default:
            :obj:`256`)
        num_layers (int, optional): Number of linear maps of the MLP. (default: :obj:`3`)
        parts (str, optional): ``"network"``, the MLP; ``"labels"``, the attention; or ``"both"``.
            (default: :obj:`"both"`)
        task (str, optional): ``"classification"``, ``"regression"`` or ``"multilabel"``; see
            :class:`phgcn.nn.LabelOutputs`. (default: :obj:`"classification"`)
        numeric (list of int, optional): The numeric columns, with mean 0 and deviation 1; others
            are categories as 0 and 1. (default: :obj:`None`, all columns)
        coordinates (list of int, optional): Columns that are coordinates. Four more heads attend by
            distances on the map, with learned scales. (default: none)
        heads (int, optional): Number of attention heads. (default: :obj:`8`)
        embedding_dim (int, optional): Size of the positions. (default: :obj:`4`)
        dropout (float, optional): Dropout probability of the hidden samples of the MLP. (default:
            :obj:`0.0`)
        key_share, decay, method, backend, tolerance, process_group (optional): As in
            :class:`phgcn.nn.LabelAttention`.

    Shapes:
        - **input:** columns :math:`(N, F)`, dense or :obj:`torch.sparse`; labels, ``labelled`` and
          ``keys`` as in
          :class:`phgcn.nn.LabelAttention`
        - **output:** :math:`(N, C)`
    """

    rows_alone = True
    """A row needs no other but for labels, so that a training can compute some rows at a time."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 256,
        num_layers: int = 3,
        parts: str = "both",
        task: str = "classification",
        *,
        numeric: Sequence[int] | None = None,
        coordinates: Sequence[int] = (),
        heads: int = 8,
        embedding_dim: int = 4,
        dropout: float = 0.0,
        key_share: float = 0.7,
        decay: float = 4.0,
        method: Method = "auto",
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        sizes = {"out_channels": out_channels, "hidden_channels": hidden_channels, "num_layers": num_layers}
        check_sizes(in_channels, **sizes)
        check_choice("parts", parts, PARTS)
        check_dropout("dropout", dropout)
        numeric = range(max(in_channels, 0)) if numeric is None else numeric
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.parts = parts
        self.coordinates = _checked_columns("coordinates", coordinates, in_channels)
        self.numeric = _checked_columns("numeric", numeric, in_channels)
        if len(self.numeric) > PERIODIC_COLUMNS:
            self.numeric = []
        self.periodic = PeriodicFeatures(len(self.numeric))
        width = in_channels + len(self.numeric) * self.periodic.out_channels
        self.outputs = None if parts == "network" else LabelOutputs(task)
        self.mlp = None
        if parts != "labels":
            widths = [width, *[hidden_channels] * (num_layers - 1), out_channels]
            self.mlp = MLP(widths, dropout=dropout, norm=None)
        attend = partial(
            LabelAttention, key_share=key_share, decay=decay, method=method, backend=backend, tolerance=tolerance or None,
            process_group=process_group,
        )  # fmt: skip
        attentions = [] if parts == "network" else [attend(width, out_channels, heads, embedding_dim)]
        if attentions and self.coordinates:
            dims = len(self.coordinates)
            attentions.append(attend(dims, out_channels, len(MAP_SCALES), dims))
        self.attentions = torch.nn.ModuleList(attentions)
        self.shares = Parameter(torch.empty(len(self.attentions)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        modules: list[Any] = [self.periodic, self.mlp, *self.attentions, self.outputs]
        for module in modules:
            if module is not None:
                module.reset_parameters()
        torch.nn.init.zeros_(self.shares)
        for attention in self._layers()[1:]:
            axes = torch.eye(len(self.coordinates))
            with torch.no_grad():
                attention.lin_position.weight.copy_(torch.cat([scale * axes for scale in MAP_SCALES]))

    def _layers(self) -> list[LabelAttention]:
        return [cast(LabelAttention, layer) for layer in self.attentions]

    def attention_shares(self) -> list[float]:
        """Returns the share of each layer of attention in the mean label."""
        shares: list[float] = F.softmax(self.shares.detach(), dim=0).tolist()
        return shares

    def draw_keys(self, labelled: Tensor) -> Tensor | None:
        """Draws the keys of a training step, as :meth:`phgcn.nn.LabelAttention.draw_keys`;
        :obj:`None` without attention."""
        layers = self._layers()
        return layers[0].draw_keys(labelled) if layers else None

    def forward(
        self,
        x: Tensor,
        edge_index: Any = None,
        *,
        y: Tensor | None = None,
        labelled: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The columns.
            edge_index (optional): Not looked at, as rows have no edges. (default: :obj:`None`)
            y (torch.Tensor, optional): The labels. (default: :obj:`None`, rows attend to kept keys)
            labelled (torch.Tensor, optional): Mask of the rows whose labels may be used. (default:
                :obj:`None`)
            keys (torch.Tensor, optional): Mask of the rows that are keys, whose output is that of
                the MLP. (default:
                :obj:`None`, as in :class:`phgcn.nn.LabelAttention`)
        """
        check_features(x, self.in_channels, self.periodic.weight)
        x = x if x.layout == torch.strided else x.to_dense()
        features = self._features(x)
        out = x.new_zeros(len(x), self.out_channels) if self.mlp is None else self.mlp(features)
        if self.outputs is None:
            return out
        inputs = [features, x[:, self.coordinates]]
        means = [read(part, y, labelled, keys=keys) for read, part in zip(self._layers(), inputs, strict=False)]
        mean = torch.einsum("anc,a->nc", torch.stack(means), F.softmax(self.shares, dim=0))
        result: Tensor = out + self.outputs(mean)
        return result

    def _features(self, x: Tensor) -> Tensor:
        """Appends the periodic features of numeric columns."""
        return torch.cat([x, self.periodic(x[:, self.numeric])], dim=1) if self.numeric else x

    def undecayed_parameters(self) -> Iterator[Parameter]:
        """Yields the parameters that weight decay should leave alone: frequencies, decays, shares
        and scales."""
        yield self.periodic.frequency
        yield self.shares
        if self.outputs is not None:
            yield self.outputs.scale
        for attention in self._layers():
            yield attention.head_shares
        for module in self.modules():
            if isinstance(module, Decay):
                yield from module.parameters()

    def recordable(self, x: Tensor) -> bool:
        """Returns False: the number of keys differs between steps, which a CUDA graph does not
        allow."""
        return False

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, parts={self.parts!r})"


def _checked_columns(name: str, columns: Sequence[int], count: int) -> list[int]:
    for column in columns:
        if not 0 <= column < count:
            raise ValueError(f"{name} has {column}; allowed: columns from 0 to {count - 1}")
    return list(columns)
