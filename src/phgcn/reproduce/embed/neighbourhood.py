r"""Neighbours in the graph and in latent space, each with the quadrant it lies in: what Geom-GCN sums over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arrays import AnyInts

if TYPE_CHECKING:
    from torch_geometric.data import Data

METHODS = ("isomap", "poincare", "struc2vec")
"""The embeddings of the graph that Geom-GCN uses."""
SOURCES = ("computed", "published")
"""Where a neighbourhood comes from: computed here, or the one that Geom-GCN's authors published."""
QUADRANTS = 4


@dataclass(frozen=True)
class Neighbourhood:
    r"""Pairs of nodes, each a neighbour of the other's.

    Shapes:
        - **pairs:** :math:`(K, 2)`, the centre, then its neighbour
        - **latent:** :math:`(K,)`, whether they are neighbours in latent space, else in the graph
        - **quadrant:** :math:`(K,)`, 0 to 3: in which one the neighbour lies, seen from the centre
    """

    pairs: AnyInts
    latent: NDArray[np.bool_]
    quadrant: AnyInts


def related_edges(data: Data, method: str, source: str = "computed", seed: int = 0) -> tuple[Tensor, Tensor]:
    r"""Computes the edges of both neighbourhoods of a graph, and their relations, for
    :class:`phgcn.reproduce.geom_gcn.GeomGCN`.

    Args:
        data (torch_geometric.data.Data): The graph.
        method (str): The embedding: ``"isomap"``, ``"poincare"`` or ``"struc2vec"``.
        source (str, optional): ``"computed"``: embeds the graph, or takes the embedding from the cache. ``"published"``: the
            neighbourhoods that Geom-GCN's authors published for this graph. (default: :obj:`"computed"`)
        seed (int, optional): What the embedding's random numbers follow from. (default: :obj:`0`)

    Returns:
        The edges :math:`(2, E)` and their relations :math:`(E,)`: 0 to 3 are the quadrants around neighbours in the graph, 4
        to 7 those around neighbours in latent space, 8 is the node itself.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    if source not in SOURCES:
        raise ValueError(f"source is {source!r}; allowed: {', '.join(SOURCES)}")
    if source == "published":
        from .published import published

        neighbourhood = published(data, method)
    else:
        from .latent import computed

        neighbourhood = computed(data, method, seed)
    return as_edges(neighbourhood, int(data.num_nodes))


def as_edges(neighbourhood: Neighbourhood, count: int) -> tuple[Tensor, Tensor]:
    r"""Converts pairs to edges and relations, as the code of Geom-GCN's authors does.

    Features go from the centre to its neighbour.  For two nodes that are neighbours of each other this is as good as the
    other way round: only the quadrants change their names.  A pair of both the graph and latent space counts once, as one
    of latent space.  Each node also has an edge to itself, with a relation of its own.
    """
    relation = neighbourhood.quadrant.astype(np.int64) + QUADRANTS * neighbourhood.latent
    key = neighbourhood.pairs.astype(np.int64) @ np.array([count, 1])
    order = np.lexsort((relation, key))
    last = np.append(np.diff(key[order]) != 0, True)[: len(key)]  # of equal pairs, that of latent space
    kept, nodes = order[last], torch.arange(count)
    edges = torch.from_numpy(np.ascontiguousarray(neighbourhood.pairs[kept].T.astype(np.int64)))
    self_relation = torch.full((count,), 2 * QUADRANTS)
    return torch.cat([edges, nodes.expand(2, -1)], dim=1), torch.cat([torch.from_numpy(relation[kept]), self_relation])
