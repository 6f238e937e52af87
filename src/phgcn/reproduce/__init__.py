r"""The paper's experiments and its rivals, behind ``phgcn reproduce`` and ``phgcn embed``.

This package knows the library; the library does not know it.  Importing it registers the models of Geom-GCN and the rivals of
:mod:`phgcn.reproduce.benchmark`, so that :mod:`phgcn.train` and the command line can train them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..registry import ModelEntry, register
from . import benchmark as benchmark

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data


def _prepare_edges(embedding: str, data: Data, settings: Mapping[str, Any], seed: int) -> tuple[Tensor, ...]:
    """Computes or reads the neighbourhoods of an embedding: edges ``(2, E)`` and the relation of each ``(E,)``."""
    from .embed import related_edges

    return related_edges(data, embedding, settings["neighbourhood"], seed)


for _letter, _embedding in (("i", "isomap"), ("p", "poincare"), ("s", "struc2vec")):
    register(
        ModelEntry(
            f"geom-gcn-{_letter}",
            f"Geom-GCN-{_letter.upper()}",
            "phgcn.reproduce.geom_gcn:GeomGCN",
            settings=("hidden_channels", "num_layers", "dropout", "norm"),
            prepare_edges=partial(_prepare_edges, _embedding),
            edge_settings=("neighbourhood",),
        )
    )
