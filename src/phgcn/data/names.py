"""The graphs known by name: published counts, metric, public masks, and the download by a PyG
class."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from .check import UNLABELLED, ArrayGraph, GraphFileError, bad, check_graph
from .npz import write_npz

EdgeCount = Literal["half the rows", "rows", "directed", "undirected"]
Masks = Literal["geom", "official"]
Metric = Literal["accuracy", "roc_auc"]


class Counts(NamedTuple):
    """The columns of the paper's Table 1."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class KnownGraph:
    """A graph known by name.

    Args:
        name (str): Its name, with hyphens.
        published (Counts): The published counts: of the paper's Table 1 for its seven graphs, else
            of the graph's first publication.
        edge_count (str): The way to count edges, see :func:`phgcn.data.table`.
        masks (str, optional): The protocol of the public masks, ``"geom"`` or ``"official"``.
            (default: :obj:`None`, no public masks)
        metric (str): ``"accuracy"`` or ``"roc_auc"``. (default: :obj:`"accuracy"`)
        dataset (str, optional): The class of :mod:`torch_geometric.datasets` that downloads it.
            (default: :obj:`None`, none)
        arguments (dict): Arguments of that class, other than ``root``.
        source (str): The place of the file if PyG has no class for it.
    """

    name: str
    published: Counts
    edge_count: EdgeCount
    masks: Masks | None = None
    metric: Metric = "accuracy"
    dataset: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)
    source: str = ""

    @property
    def file(self) -> str:
        """The name of its file."""
        return self.name.replace("-", "_") + ".npz"


YANDEX = "https://github.com/yandex-research/heterophilous-graphs"
GEOM_2020 = "https://github.com/graphdml-uiuc-jlu/geom-gcn as of September 2020"


def _downloaded(
    dataset: str, edge_count: EdgeCount, masks: Masks | None = None, split: str | None = None
) -> Callable[..., KnownGraph]:
    """Returns a function that makes the entry of a graph of one class of PyG, by its name there."""

    def entry(name: str, pyg_name: str, *counts: int, metric: Metric = "accuracy") -> KnownGraph:
        arguments = {"name": pyg_name} | ({"split": split} if split else {})
        return KnownGraph(name, Counts(*counts), edge_count, masks, metric, dataset, arguments)

    return entry


_citation = _downloaded("Planetoid", "half the rows", "geom", split="geom-gcn")
_webkb = _downloaded("WebKB", "directed", "geom")
_wikipedia = _downloaded("WikipediaNetwork", "rows", "geom")
_heterophilous = _downloaded("HeterophilousGraphDataset", "undirected", "official")
_coauthor = _downloaded("Coauthor", "undirected")
_amazon = _downloaded("Amazon", "undirected")


def _filtered(name: str, *counts: int) -> KnownGraph:
    return KnownGraph(name, Counts(*counts), "undirected", "official", source=YANDEX)


# Columns: nodes, edges, features, classes.
GRAPHS: dict[str, KnownGraph] = {
    graph.name: graph
    for graph in (
        _citation("cora", "cora", 2708, 5429, 1433, 7),
        _citation("citeseer", "citeseer", 3327, 4732, 3703, 6),
        _citation("pubmed", "pubmed", 19717, 44338, 500, 3),
        _webkb("cornell", "cornell", 183, 295, 1703, 5),
        KnownGraph("cornell-2020", Counts(183, 295, 1703, 5), "directed", "geom", source=GEOM_2020),
        _webkb("texas", "texas", 183, 309, 1703, 5),
        _webkb("wisconsin", "wisconsin", 251, 499, 1703, 5),
        KnownGraph("actor", Counts(7600, 33544, 931, 5), "rows", "geom", dataset="Actor"),
        _wikipedia("chameleon", "chameleon", 2277, 36101, 2325, 5),
        _filtered("chameleon-filtered", 890, 8854, 2325, 5),
        _wikipedia("squirrel", "squirrel", 5201, 217073, 2089, 5),
        _filtered("squirrel-filtered", 2223, 46998, 2089, 5),
        _heterophilous("minesweeper", "Minesweeper", 10000, 39402, 7, 2, metric="roc_auc"),
        _heterophilous("roman-empire", "Roman-empire", 22662, 32927, 300, 18),
        _heterophilous("amazon-ratings", "Amazon-ratings", 24492, 93050, 300, 5),
        _heterophilous("tolokers", "Tolokers", 11758, 519000, 10, 2, metric="roc_auc"),
        _heterophilous("questions", "Questions", 48921, 153540, 301, 2, metric="roc_auc"),
        _coauthor("coauthor-cs", "CS", 18333, 81894, 6805, 15),
        _coauthor("coauthor-physics", "Physics", 34493, 247962, 8415, 5),
        _amazon("amazon-computers", "Computers", 13752, 245861, 767, 10),
        _amazon("amazon-photo", "Photo", 7650, 119081, 745, 8),
    )
}
"""The graphs known by name."""


def known_graph(name: str) -> KnownGraph | None:
    """Finds a graph by name, in any case and with hyphens or underscores."""
    return GRAPHS.get(name.lower().replace("_", "-"))


def metric_of(name: str) -> Metric:
    """Returns the metric of a graph; ``"accuracy"`` if the graph is not known."""
    graph = known_graph(name)
    return graph.metric if graph else "accuracy"


# Class sizes of Cornell, ascending. Until July 2022 the source gave the features and labels of
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
