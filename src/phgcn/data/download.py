r"""Downloads known graphs through PyG's dataset classes."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import numpy as np

from .check import UNLABELLED, ArrayGraph, GraphFileError, bad, check_graph
from .names import KnownGraph
from .npz import write_npz

# Class sizes of Cornell, ascending.  Until July 2022 the source gave the features and labels of
# Texas under its name.
CORNELL_CLASSES = [16, 17, 30, 38, 82]


def download(known: KnownGraph, root: Path, cache: Path) -> Path:
    """Downloads a graph into the cache, and returns its file."""
    wanted, file = root / known.file, cache / known.file
    elsewhere = "set PHGCN_DATA to its folder" if root == cache else f"in {cache}"
    here = f"there is no such file; put it there, or {elsewhere}"
    if known.dataset is None:
        none = f"PyG has no download for {known.name}: its source is {known.source}"
        raise bad(wanted, f"{here}; {none}")
    try:
        graph = _fetch(known, file)
    except GraphFileError:
        raise
    except Exception as error:  # a network fails in many ways, and so does each dataset class
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        failed = f"downloading {known.name} through PyG's {known.dataset} failed ({reason[:160]})"
        raise bad(wanted, f"{here}; {failed}") from error
    try:
        write_npz(file, graph)
    except OSError as error:
        what = f"the downloaded graph {error.strerror}"
        raise bad(file, what, "a folder that can be written, by XDG_CACHE_HOME") from error
    return file


def _fetch(known: KnownGraph, target: Path) -> ArrayGraph:
    """Gets the graph from PyG and compares it with the published counts."""
    from .saved import from_mapping

    dataset = getattr(importlib.import_module("torch_geometric.datasets"), known.dataset or "")
    with tempfile.TemporaryDirectory(prefix="phgcn-") as folder:
        data = dataset(root=folder, **known.arguments)[0]
    graph = check_graph(from_mapping(target, data.to_dict()))
    # PyG gives class 0 to unlabelled nodes, which are those without features
    if known.name == "citeseer":
        graph.labels[np.asarray(graph.features.sum(axis=1)).ravel() == 0] = UNLABELLED
    _check_counts(known, graph)
    return graph


def _check_counts(known: KnownGraph, graph: ArrayGraph) -> None:
    """Refuses a download with other counts than the published ones, and the uncorrected Cornell."""
    nodes, features = graph.features.shape
    features -= known.name == "actor"  # published as 931, the highest index
    classes = int(graph.labels.max()) + 1
    counts = nodes, features, classes
    published = known.published.nodes, known.published.features, known.published.classes
    if counts != published:
        what = f"the download has {counts} nodes, features and classes"
        raise bad(graph.path, what, f"{published}, as published for {known.name}")
    sizes = np.sort(np.bincount(graph.labels[graph.labels >= 0])).tolist()
    if known.name == "cornell" and sizes != CORNELL_CLASSES:
        what = f"the download has classes of {sizes} nodes, so it is not the corrected Cornell"
        raise bad(graph.path, what, f"{CORNELL_CLASSES}; the uncorrected one is cornell-2020")
