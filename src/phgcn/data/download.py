r"""Known graphs that are not on this machine yet, through PyG's own dataset classes."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import numpy as np

from .check import UNLABELLED, ArrayGraph, GraphFileError, bad, checked
from .names import KnownGraph
from .npz import write_npz

CORNELL_CLASSES = [16, 17, 30, 38, 82]
"""The sizes of Cornell's classes, ascending.  Until July 2022 the source gave Texas's features and labels under that name."""


def download(known: KnownGraph, root: Path, cache: Path) -> Path:
    """Downloads a graph into the cache and returns its file there."""
    wanted = root / known.file
    elsewhere = "set PHGCN_DATA to its folder" if root == cache else f"in {cache}"
    here = f"there is no such file; put it there, or {elsewhere}"
    if known.dataset is None:
        raise bad(wanted, f"{here}; PyG has no download for {known.name}: its source is {known.source}")
    try:
        graph = _downloaded(known, cache / known.file)
    except GraphFileError:
        raise
    except Exception as error:  # a network fails in many ways, and so does each dataset class
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise bad(wanted, f"{here}; downloading {known.name} through PyG's {known.dataset} failed ({reason[:160]})") from error
    try:
        write_npz(cache / known.file, graph)
    except OSError as error:
        what = f"the downloaded graph cannot be kept ({error.strerror})"
        raise bad(cache / known.file, what, allowed="a folder that can be written, by XDG_CACHE_HOME") from error
    return cache / known.file


def _downloaded(known: KnownGraph, target: Path) -> ArrayGraph:
    """The graph as PyG gives it, checked against the published counts."""
    from .saved import from_mapping

    dataset = getattr(importlib.import_module("torch_geometric.datasets"), known.dataset or "")
    with tempfile.TemporaryDirectory(prefix="phgcn-") as folder:
        data = dataset(root=folder, **known.arguments)[0]
    graph = checked(from_mapping(target, data.to_dict()))
    if known.name == "citeseer":  # PyG gives class 0 to the nodes without a label; they are those without features
        graph.labels[np.asarray(graph.features.sum(axis=1)).ravel() == 0] = UNLABELLED
    _compare(known, graph)
    return graph


def _compare(known: KnownGraph, graph: ArrayGraph) -> None:
    nodes, features = graph.features.shape
    features -= known.name == "actor"  # published as 931, the highest index
    classes = int(graph.labels.max()) + 1
    found, published = (nodes, features, classes), (known.published.nodes, known.published.features, known.published.classes)
    if found != published:
        what = f"the download has {found} nodes, features and classes"
        raise bad(graph.path, what, allowed=f"{published}, as published for {known.name}")
    sizes = np.sort(np.bincount(graph.labels[graph.labels >= 0])).tolist()
    if known.name == "cornell" and sizes != CORNELL_CLASSES:
        what = f"the download has classes of {sizes} nodes, so it is not the corrected Cornell"
        raise bad(graph.path, what, allowed=f"{CORNELL_CLASSES}; the uncorrected one is cornell-2020")
