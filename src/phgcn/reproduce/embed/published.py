r"""The neighbourhoods that the authors of Geom-GCN published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...data.check import bad
from ...data.load import graph_root, read_known
from ...data.names import known_graph
from ...data.npz import DAMAGE
from .neighbourhood import QUADRANTS, Neighbourhood

if TYPE_CHECKING:
    from torch_geometric.data import Data

FOLDER = "geom_gcn"
RENUMBERED = {"cornell_2020": "cornell"}
"""Graphs with the edges of another, row by row, but other numbers of the nodes."""
KEYS = {"pairs": "iu", "in_latent_space": "b", "relation": "iu"}


def published(data: Data, method: str, root: str | Path | None = None) -> Neighbourhood:
    r"""Reads the published neighbourhoods of a graph, from ``<root>/geom_gcn/<graph>_<method>.npz``.

    Args:
        data (torch_geometric.data.Data): The graph; its name says which file, and its edges must be those of the file.
        method (str): The embedding that they were computed with.
        root (str or Path, optional): The folder of the named graphs. (default: :obj:`None`, as in
            :func:`phgcn.data.load_graph`)
    """
    name = str(data.name).replace("-", "_")
    twin = RENUMBERED.get(name, name)
    path = graph_root(root) / FOLDER / f"{twin}_{method}.npz"
    if not path.is_file():
        raise bad(path, f"no neighbourhoods were published for {data.name}, or their file is missing",
                  allowed="neighbourhood=computed, or the file of docs/geom-gcn.md")  # fmt: skip
    neighbourhood = _read(path)
    count, edges = int(data.num_nodes), data.edge_index.numpy().T
    if len(neighbourhood.pairs) and not 0 <= neighbourhood.pairs.min() <= neighbourhood.pairs.max() < count:
        raise bad(path, f"pairs has node {neighbourhood.pairs.max()}", allowed=f"0 to {count - 1}, the nodes of {data.name}")
    if twin != name:
        neighbourhood = replace(neighbourhood, pairs=_numbers(twin, name, count, root)[neighbourhood.pairs])
    keys = [np.unique(pairs.astype(np.int64) @ [count, 1]) for pairs in (neighbourhood.pairs[~neighbourhood.latent], edges)]
    if not np.array_equal(keys[0], keys[1]):
        allowed = f"{len(keys[1])} pairs, the edges of {data.name} in both directions"
        raise bad(path, f"the {len(keys[0])} neighbours in the graph are not those of {data.name}", allowed=allowed)
    return neighbourhood


def _numbers(twin: str, name: str, count: int, root: str | Path | None) -> NDArray:
    """Maps each node of a twin to its number in the other graph."""
    numbers = np.arange(count)
    numbers[_rows(twin, root)] = _rows(name, root)
    return numbers


def _rows(name: str, root: str | Path | None) -> NDArray:
    """Reads the edges of a known graph, in the order of its file."""
    known = known_graph(name)
    assert known is not None
    return read_known(known, root).edges


def _read(path: Path) -> Neighbourhood:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in KEYS}
    except DAMAGE as error:
        raise bad(path, f"no file of neighbourhoods, or a damaged one ({error})") from None
    count = len(arrays["pairs"])
    for key, kinds in KEYS.items():
        shape = (count, 2) if key == "pairs" else (count,)
        if arrays[key].dtype.kind not in kinds or arrays[key].shape != shape:
            what = f"{key} is {arrays[key].dtype} of shape {arrays[key].shape}"
            raise bad(path, what, allowed=f"{'bool' if kinds == 'b' else 'integers'} of shape {shape}")
    if count and arrays["relation"].max() >= QUADRANTS:
        raise bad(path, f"relation is {arrays['relation'].max()}", allowed=f"0 to {QUADRANTS - 1}")
    return Neighbourhood(arrays["pairs"], arrays["in_latent_space"], arrays["relation"])
