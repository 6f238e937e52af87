r"""The published neighbours of Geom-GCN, in the graph and in latent space, with their quadrants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phgcn.data.check import bad
from phgcn.data.load import graph_root, read_known
from phgcn.data.names import known_graph

from ..arrays import AnyInts, Ints

if TYPE_CHECKING:
    from torch_geometric.data import Data

METHODS = ("isomap", "poincare", "struc2vec")
"""The embeddings of the graph that Geom-GCN uses."""
QUADRANTS = 4
FOLDER = "geom_gcn"
RENUMBERED = {"cornell_2020": "cornell"}
"""Graphs with the edges of another, row by row, but other numbers of the nodes."""
KEYS = {"pairs": "iu", "in_latent_space": "b", "relation": "iu"}


@dataclass(frozen=True)
class Neighbourhood:
    pairs: AnyInts  # (K, 2), the centre, then its neighbour
    latent: NDArray[
        np.bool_
    ]  # (K,), whether they are neighbours in latent space, else in the graph
    quadrant: AnyInts  # (K,), 0 to 3: in which one the neighbour lies, seen from the centre


def related_edges(data: Data, method: str) -> tuple[Tensor, Tensor]:
    """Reads the edges (2, E) of both neighbourhoods of a graph, and their relations (E,).

    Relations 0 to 3 are the quadrants around neighbours in the graph, 4 to 7 those around
    neighbours in latent space, 8 is the node itself. ``method`` is ``"isomap"``, ``"poincare"`` or
    ``"struc2vec"``.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    return as_edges(published(data, method), int(data.num_nodes))


def as_edges(neighbourhood: Neighbourhood, count: int) -> tuple[Tensor, Tensor]:
    """Converts pairs to edges and relations, as the code of Geom-GCN's authors does.

    A pair of both the graph and latent space counts once, as one of latent space. Each node has an
    edge to itself, with a relation of its own.
    """
    relation = neighbourhood.quadrant.astype(np.int64) + QUADRANTS * neighbourhood.latent
    key = neighbourhood.pairs.astype(np.int64) @ np.array([count, 1])
    order = np.lexsort((relation, key))
    # of equal pairs, that of latent space
    last = np.append(np.diff(key[order]) != 0, True)[: len(key)]
    kept, nodes = order[last], torch.arange(count)
    edges = torch.from_numpy(np.ascontiguousarray(neighbourhood.pairs[kept].T.astype(np.int64)))
    self_relation = torch.full((count,), 2 * QUADRANTS)
    relations = torch.cat([torch.from_numpy(relation[kept]), self_relation])
    return torch.cat([edges, nodes.expand(2, -1)], dim=1), relations


def published(data: Data, method: str, root: str | Path | None = None) -> Neighbourhood:
    """Reads ``<root>/geom_gcn/<graph>_<method>.npz``, which must have the edges of the graph."""
    name = str(data.name).replace("-", "_")
    twin = RENUMBERED.get(name, name)
    path = graph_root(root) / FOLDER / f"{twin}_{method}.npz"
    if not path.is_file():
        problem = f"no neighbourhoods were published for {data.name}, or their file is missing"
        raise bad(path, problem, allowed="the graphs and files of docs/paper.md")
    found, count = _read(path), int(data.num_nodes)
    if len(found.pairs) and not 0 <= found.pairs.min() <= found.pairs.max() < count:
        allowed = f"0 to {count - 1}, the nodes of {data.name}"
        raise bad(path, f"pairs has node {found.pairs.max()}", allowed=allowed)
    if twin != name:
        found = replace(found, pairs=_numbers(twin, name, count, root)[found.pairs])
    in_graph, edges = (
        np.unique(pairs.astype(np.int64) @ [count, 1])
        for pairs in (found.pairs[~found.latent], data.edge_index.numpy().T)
    )
    if not np.array_equal(in_graph, edges):
        problem = f"the {len(in_graph)} neighbours in the graph are not those of {data.name}"
        allowed = f"{len(edges)} pairs, the edges of {data.name} in both directions"
        raise bad(path, problem, allowed=allowed)
    return found


def _numbers(twin: str, name: str, count: int, root: str | Path | None) -> Ints:
    numbers = np.arange(count)
    numbers[_rows(twin, root)] = _rows(name, root)
    return numbers


def _rows(name: str, root: str | Path | None) -> AnyInts:
    known = known_graph(name)
    assert known is not None
    return read_known(known, root).edges


def _read(path: Path) -> Neighbourhood:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in KEYS}
    except Exception as error:  # numpy and zipfile raise errors of any type on a damaged file
        raise bad(path, f"no file of neighbourhoods, or a damaged one ({error})") from None
    count = len(arrays["pairs"])
    for key, kinds in KEYS.items():
        shape = (count, 2) if key == "pairs" else (count,)
        if arrays[key].dtype.kind not in kinds or arrays[key].shape != shape:
            what = f"{key} is {arrays[key].dtype} of shape {arrays[key].shape}"
            kind = "bool" if kinds == "b" else "integers"
            raise bad(path, what, allowed=f"{kind} of shape {shape}")
    if count and arrays["relation"].max() >= QUADRANTS:
        raise bad(path, f"relation is {arrays['relation'].max()}", allowed=f"0 to {QUADRANTS - 1}")
    return Neighbourhood(arrays["pairs"], arrays["in_latent_space"], arrays["relation"])
