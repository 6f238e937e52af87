r"""Lists the graphs known by name: published counts, metric, public masks, and the PyG class that downloads each."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

EdgeCount = Literal["half the rows", "rows", "directed", "undirected"]


class Counts(NamedTuple):
    """The columns of the paper's Table 1."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class KnownGraph:
    r"""A graph known by name.

    Args:
        name (str): Its name, with hyphens.
        published (Counts): The published counts: those of the paper's Table 1 for its seven graphs, else those of the work
            that made the graph.
        edge_count (str): How the published edges were counted, see :func:`phgcn.data.table`.
        masks (str, optional): The protocol that the public masks belong to, ``"geom"`` or ``"official"``. (default:
            :obj:`None`, no public masks)
        metric (str): ``"accuracy"`` or ``"roc_auc"``. (default: :obj:`"accuracy"`)
        dataset (str, optional): The class of :mod:`torch_geometric.datasets` that downloads it. (default: :obj:`None`, none)
        arguments (dict): Arguments of that class, other than ``root``.
        source (str): Where to find the file if PyG has no class for it.
    """

    name: str
    published: Counts
    edge_count: EdgeCount
    masks: Literal["geom", "official"] | None = None
    metric: Literal["accuracy", "roc_auc"] = "accuracy"
    dataset: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)
    source: str = ""

    @property
    def file(self) -> str:
        """Name of its file."""
        return self.name.replace("-", "_") + ".npz"


YANDEX = "https://github.com/yandex-research/heterophilous-graphs"
GEOM_2020 = "https://github.com/graphdml-uiuc-jlu/geom-gcn as of September 2020"


def _citation(name: str, *counts: int) -> KnownGraph:
    arguments = {"name": name, "split": "geom-gcn"}
    return KnownGraph(name, Counts(*counts), "half the rows", "geom", dataset="Planetoid", arguments=arguments)


def _webkb(name: str, *counts: int) -> KnownGraph:
    return KnownGraph(name, Counts(*counts), "directed", "geom", dataset="WebKB", arguments={"name": name})


def _wikipedia(name: str, *counts: int) -> KnownGraph:
    return KnownGraph(name, Counts(*counts), "rows", "geom", dataset="WikipediaNetwork", arguments={"name": name})


def _filtered(name: str, *counts: int) -> KnownGraph:
    return KnownGraph(name, Counts(*counts), "undirected", "official", source=YANDEX)


def _heterophilous(name: str, *counts: int, metric: Literal["accuracy", "roc_auc"] = "accuracy") -> KnownGraph:
    arguments = {"name": name.capitalize()}
    return KnownGraph(
        name, Counts(*counts), "undirected", "official", metric, dataset="HeterophilousGraphDataset", arguments=arguments
    )


def _copurchase(name: str, dataset: str, pyg_name: str, *counts: int) -> KnownGraph:
    return KnownGraph(name, Counts(*counts), "undirected", dataset=dataset, arguments={"name": pyg_name})


# Columns: nodes, edges, features, classes.
GRAPHS: dict[str, KnownGraph] = {
    graph.name: graph
    for graph in (
        _citation("cora", 2708, 5429, 1433, 7),
        _citation("citeseer", 3327, 4732, 3703, 6),
        _citation("pubmed", 19717, 44338, 500, 3),
        _webkb("cornell", 183, 295, 1703, 5),
        KnownGraph("cornell-2020", Counts(183, 295, 1703, 5), "directed", "geom", source=GEOM_2020),
        _webkb("texas", 183, 309, 1703, 5),
        _webkb("wisconsin", 251, 499, 1703, 5),
        KnownGraph("actor", Counts(7600, 33544, 931, 5), "rows", "geom", dataset="Actor"),
        _wikipedia("chameleon", 2277, 36101, 2325, 5),
        _filtered("chameleon-filtered", 890, 8854, 2325, 5),
        _wikipedia("squirrel", 5201, 217073, 2089, 5),
        _filtered("squirrel-filtered", 2223, 46998, 2089, 5),
        _heterophilous("minesweeper", 10000, 39402, 7, 2, metric="roc_auc"),
        _heterophilous("roman-empire", 22662, 32927, 300, 18),
        _heterophilous("amazon-ratings", 24492, 93050, 300, 5),
        _heterophilous("tolokers", 11758, 519000, 10, 2, metric="roc_auc"),
        _heterophilous("questions", 48921, 153540, 301, 2, metric="roc_auc"),
        _copurchase("coauthor-cs", "Coauthor", "CS", 18333, 81894, 6805, 15),
        _copurchase("coauthor-physics", "Coauthor", "Physics", 34493, 247962, 8415, 5),
        _copurchase("amazon-computers", "Amazon", "Computers", 13752, 245861, 767, 10),
        _copurchase("amazon-photo", "Amazon", "Photo", 7650, 119081, 745, 8),
    )
}
"""The graphs known by name."""


def known_graph(name: str) -> KnownGraph | None:
    """Looks up a graph by name, with hyphens or underscores and in any case; returns :obj:`None` if it is not known."""
    return GRAPHS.get(name.lower().replace("_", "-"))


def similar_names(name: str) -> list[str]:
    """Suggests up to two known names that are spelled nearly like this one."""
    return difflib.get_close_matches(name.lower().replace("_", "-"), GRAPHS, n=2, cutoff=0.6)


def metric_of(name: str) -> Literal["accuracy", "roc_auc"]:
    """Returns the metric of a graph; ``"accuracy"`` if the graph is not known."""
    graph = known_graph(name)
    return graph.metric if graph else "accuracy"
