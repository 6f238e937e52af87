"""A network for tables: an MLP on the columns of a row, and attention to the labels of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch_geometric.nn import MLP

from ..backends import BackendName
from ..checks import check_choice
from ..functional import Method
from .checks import check_dropout, check_features, check_sizes
from .label_attention import LABEL_DECAY
from .label_path import LabelPath, check_columns
from .periodic_features import PeriodicFeatures

PARTS = ("network", "labels", "both")
PERIODIC_COLUMNS = 64  # up to so many numeric columns are given periodic features: each adds 16


class TableNetwork(torch.nn.Module):
    """Predicts the rows of a table by an MLP on their columns plus attention to labelled rows.

    Both read numeric columns, their :class:`phgcn.nn.PeriodicFeatures`, and categories. In
    training, pass the mask of keys that :meth:`draw_keys` draws and take the loss of the other
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
        coordinates (list of int, optional): Columns of coordinates. Four more heads attend by
            distances on the map, with learned scales.
        heads (int, optional): Number of attention heads. (default: :obj:`8`)
        embedding_dim (int, optional): Size of the positions. (default: :obj:`4`)
        dropout (float, optional): Dropout probability of the hidden samples of the MLP. (default:
            :obj:`0.0`)
        key_share, decay, method, backend, tolerance, process_group (optional): As in
            :class:`phgcn.nn.LabelAttention`.

    Shapes:
        - **input:** columns :math:`(N, F)`, dense or :obj:`torch.sparse`; labels, ``labelled`` and
          ``keys`` as in :class:`phgcn.nn.LabelAttention`
        - **output:** :math:`(N, C)`
    """

    # a row needs only labels of others: a training can compute some rows at a time
    rows_alone = True

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
        decay: float = LABEL_DECAY,
        method: Method = "auto",
        backend: BackendName = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        sizes = {"out_channels": out_channels, "hidden_channels": hidden_channels}
        check_sizes(in_channels, **sizes, num_layers=num_layers)
        check_choice("parts", parts, PARTS)
        check_dropout(dropout=dropout)
        numeric = range(max(in_channels, 0)) if numeric is None else numeric
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.parts = parts
        coordinates = check_columns("coordinates", coordinates, in_channels)
        self.numeric = check_columns("numeric", numeric, in_channels)
        if len(self.numeric) > PERIODIC_COLUMNS:
            self.numeric = []
        self.periodic = PeriodicFeatures(len(self.numeric))
        width = in_channels + len(self.numeric) * self.periodic.out_channels
        self.mlp = None
        if parts != "labels":
            widths = [width, *[hidden_channels] * (num_layers - 1), out_channels]
            self.mlp = MLP(widths, dropout=dropout, norm=None)
        self.label_path = None
        if parts != "network":
            self.label_path = LabelPath(
                width,
                out_channels,
                task,
                coordinates=coordinates,
                heads=heads,
                embedding_dim=embedding_dim,
                key_share=key_share,
                decay=decay,
                method=method,
                backend=backend,
                tolerance=tolerance or None,
                process_group=process_group,
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
        for module in (self.periodic, self.mlp, self.label_path):
            if module is not None:
                module.reset_parameters()

    def draw_keys(self, labelled: Tensor) -> Tensor | None:
        """Draws the keys of a training step (:meth:`phgcn.nn.LabelAttention.draw_keys`);
        :obj:`None` without attention."""
        return None if self.label_path is None else self.label_path.draw_keys(labelled)

    def forward(
        self,
        x: Tensor,
        edge_index: Any = None,
        *,
        y: Tensor | None = None,
        labelled: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The columns.
            edge_index (optional): Not used; rows have no edges.
            y, labelled, keys (torch.Tensor, optional): As in :class:`phgcn.nn.LabelAttention`; the
                output of keys is the MLP's.
        """
        check_features(x, self.in_channels, self.periodic.weight)
        features = x = x if x.layout == torch.strided else x.to_dense()
        if self.numeric:
            features = torch.cat([x, self.periodic(x[:, self.numeric])], dim=1)
        out = x.new_zeros(len(x), self.out_channels) if self.mlp is None else self.mlp(features)
        if self.label_path is None:
            return out
        result: Tensor = out + self.label_path(features, x, y, labelled, keys=keys)
        return result

    def undecayed_parameters(self) -> Iterator[Parameter]:
        """Yields the parameters without weight decay: frequencies, decays, shares and scales."""
        yield self.periodic.frequency
        if self.label_path is not None:
            yield from self.label_path.undecayed_parameters()

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}"
        return f"{self.__class__.__name__}({sizes}, parts={self.parts!r})"
