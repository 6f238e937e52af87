"""The graphs known by name: published counts, metric, public masks, and the PyG class that
downloads each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
