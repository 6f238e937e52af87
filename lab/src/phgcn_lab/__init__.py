r"""The paper's experiments and its rivals, behind ``phgcn reproduce``.

This package knows the library; the library does not know it.  Importing it registers the models of
Geom-GCN and the rivals of :mod:`phgcn_lab.benchmark`, so that :mod:`phgcn.train` and the command
line can train them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from phgcn.registry import ModelEntry, register

from . import benchmark as benchmark

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data


def _read_edges(embedding: str, data: Data, seed: int) -> tuple[Tensor, ...]:
    """Reads the neighbourhoods of an embedding: edges ``(2, E)`` and the relation of each
    ``(E,)``."""
    from .geom_gcn import related_edges

    return related_edges(data, embedding)


for _letter, _embedding in (("i", "isomap"), ("p", "poincare"), ("s", "struc2vec")):
    register(
        ModelEntry(
            f"geom-gcn-{_letter}",
            f"Geom-GCN-{_letter.upper()}",
            "phgcn_lab.geom_gcn:GeomGCN",
            settings=("hidden_channels", "num_layers", "dropout", "norm"),
            prepare_edges=partial(_read_edges, _embedding),
        )
    )
