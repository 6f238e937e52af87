import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.datasets
from graph_files import npz_arrays, write_arrays
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, is_undirected

from phgcn.data import GRAPHS, GraphFileError, load_graph, metric_of, public_masks, splits, table
from phgcn.data.load import user_cache
from phgcn.data.overview import count_edges

SHARED = Path(os.environ.get("PHGCN_DATA", "/nowhere"))
HERE = [name for name, graph in GRAPHS.items() if (SHARED / graph.file).is_file()]


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of the user, and no PHGCN_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PHGCN_DATA", raising=False)
    return tmp_path / "cache" / "phgcn" / "graphs"


def named(folder: Path, classes: list[str], file: str = "roman_empire.npz") -> None:
    """A small graph under a known name, which its class names tell apart."""
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / file, npz_arrays() | {"class_names": np.array(classes)})


# Where a name is looked up


def test_a_name_is_looked_up_in_the_argument_then_the_variable_then_the_cache(
    tmp_path, own_cache, monkeypatch
):
    assert user_cache() == own_cache
    named(own_cache, ["cache", ""])
    assert load_graph("roman-empire").classes[0] == "cache"
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path / "variable"))
    assert load_graph("roman-empire").classes[0] == "cache"
    named(tmp_path / "variable", ["variable", ""])
    assert load_graph("roman-empire").classes[0] == "variable"
    named(tmp_path / "argument", ["argument", ""])
    assert load_graph("roman-empire", tmp_path / "argument").classes[0] == "argument"
    assert load_graph("Roman_Empire", str(tmp_path / "argument")).name == "roman-empire"


def test_a_name_is_stronger_than_a_file_of_the_same_name(tmp_path, own_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named(own_cache, ["cache", ""])
    named(tmp_path, ["here", ""], "roman-empire")
    assert load_graph("roman-empire").classes[0] == "cache"


@pytest.mark.parametrize("wrong", [None, 3, ("a",), ("a", "b", "c"), ["a", "b"]])
def test_what_is_neither_a_name_nor_a_path_is_refused(wrong):
    said = r"name_or_path is .*; allowed: a name, a path, or a tuple of two paths"
    with pytest.raises(ValueError, match=said):
        load_graph(wrong)


def test_control_characters_in_a_path_do_not_reach_the_terminal(tmp_path):
    with pytest.raises(GraphFileError) as caught:
        load_graph(tmp_path / "a\x1b[31m\n.npz")
    assert str(caught.value).isprintable()


# Downloads, through a dataset class that stands in for PyG's


def stand_in(monkeypatch, class_name: str, data: Data, calls: list) -> None:
    class Dataset:
        def __init__(self, root: str, **arguments: str) -> None:
            assert Path(root).is_dir()
            calls.append(arguments)

        def __getitem__(self, index: int) -> Data:
            assert index == 0
            return data

    monkeypatch.setattr(torch_geometric.datasets, class_name, Dataset)


def texas_like(labels: list[int] | None = None) -> Data:
    y = torch.tensor(labels if labels is not None else [number % 5 for number in range(183)])
    x = (torch.arange(183 * 1703).reshape(183, 1703) % 97 == 0).float()
    role = torch.arange(183)[:, None].expand(-1, 10) % 3
    edges = torch.tensor([[0, 1, 2, 2], [1, 0, 0, 2]])
    masks = {"train_mask": role == 0, "val_mask": role == 1, "test_mask": role == 2}
    return Data(x=x, y=y, edge_index=edges, **masks)


def test_a_graph_that_is_not_here_is_downloaded_once_and_kept(own_cache, monkeypatch):
    calls: list = []
    stand_in(monkeypatch, "WebKB", texas_like(), calls)
    first, second = load_graph("texas"), load_graph("texas")
    assert calls == [{"name": "texas"}]
    assert [file.name for file in own_cache.iterdir()] == ["texas.npz"]
    assert torch.equal(first.x.to_dense(), texas_like().x)
    assert torch.equal(second.x.to_dense(), texas_like().x)
    assert first.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert torch.equal(load_graph("texas", directed=True).edge_index, texas_like().edge_index)
    assert torch.equal(first.train_mask, texas_like().train_mask)
    assert len(splits(first.y, "geom", masks=public_masks(first))) == 10


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PHGCN_DATA", raising=False)
    stand_in(monkeypatch, "WebKB", texas_like(), [])
    said = r"texas.npz: the downloaded graph cannot be written \(Not a directory\)"
    with pytest.raises(GraphFileError, match=said):
        load_graph("texas")


def test_a_download_that_is_another_graph_is_refused_and_not_kept(own_cache, monkeypatch):
    edges = torch.zeros(2, 0).long()
    other = Data(x=torch.ones(3, 2), y=torch.tensor([0, 1, 0]), edge_index=edges)
    stand_in(monkeypatch, "WebKB", other, [])
    said = r"the download has \(3, 2, 2\) nodes.*allowed: \(183, 1703, 5\)"
    with pytest.raises(GraphFileError, match=said):
        load_graph("texas")
    assert not own_cache.exists()


def test_cornell_with_the_labels_of_texas_is_refused(own_cache, monkeypatch):
    labels = [0] * 33 + [1] + [2] * 18 + [3] * 101 + [4] * 30
    stand_in(monkeypatch, "WebKB", texas_like(labels), [])
    said = r"not the corrected Cornell.*the uncorrected one is cornell-2020"
    with pytest.raises(GraphFileError, match=said):
        load_graph("cornell")


def test_citeseer_downloaded_has_the_nodes_without_features_unlabelled(own_cache, monkeypatch):
    x = torch.zeros(3327, 3703)
    x[:, 0] = 1
    x[[5, 70]] = 0
    data = Data(x=x, y=torch.arange(3327) % 6, edge_index=torch.zeros(2, 0).long())
    calls: list = []
    stand_in(monkeypatch, "Planetoid", data, calls)
    assert (load_graph("citeseer").y == -1).nonzero().flatten().tolist() == [5, 70]
    assert calls == [{"name": "citeseer", "split": "geom-gcn"}]


def test_without_a_network_the_line_says_where_the_file_belongs(tmp_path, own_cache, monkeypatch):
    class Offline:
        def __init__(self, root: str, **arguments: str) -> None:
            raise OSError("Name or service not known\nand more")

    monkeypatch.setattr(torch_geometric.datasets, "HeterophilousGraphDataset", Offline)
    with pytest.raises(GraphFileError) as caught:
        load_graph("roman-empire", tmp_path / "data")
    message = str(caught.value)
    missing = f"there is no such file; put it there, or in {own_cache}"
    assert message.startswith(f"{tmp_path / 'data' / 'roman_empire.npz'}: {missing}")
    assert "HeterophilousGraphDataset failed (Name or service not known)" in message
    assert message.isprintable()


def test_a_graph_that_pyg_does_not_have_says_where_it_is_from(own_cache):
    said = r"chameleon_filtered.npz: there is no such file.*yandex-research/heterophilous"
    with pytest.raises(GraphFileError, match=said):
        load_graph("chameleon-filtered")


def test_every_download_names_a_class_of_pyg_and_takes_its_arguments():
    import inspect

    for graph in GRAPHS.values():
        if graph.dataset is None:
            assert graph.source
        else:
            dataset = getattr(torch_geometric.datasets, graph.dataset)
            inspect.signature(dataset).bind(root="", **graph.arguments)


# What is known of the graphs


def test_edges_are_counted_in_four_ways():
    edges = np.array([[0, 1], [1, 0], [0, 1], [2, 2], [3, 1], [1, 2]])
    counts = {"rows": 6, "half the rows": 3, "directed": 4, "undirected": 3}
    assert {way: count_edges(edges, 4, way) for way in counts} == counts


def test_metrics_follow_the_graphs():
    assert {metric_of(name) for name in ("texas", "my own")} == {"accuracy"}
    assert {metric_of(name) for name in ("minesweeper", "Tolokers", "questions")} == {"roc_auc"}


def test_the_table_has_every_graph_and_only_counts_what_is_here(own_cache):
    named(own_cache, ["a", "b"])
    rows = {row.name: row for row in table()}
    assert list(rows) == list(GRAPHS)
    assert rows["roman-empire"].found == (6, 3, 3, 2)
    assert rows["roman-empire"].path == own_cache / "roman_empire.npz"
    assert rows["texas"].found is None and rows["texas"].path is None
    assert rows["texas"].published == (183, 309, 1703, 5)


@pytest.mark.skipif(not HERE, reason="PHGCN_DATA is not set to a folder with the published graphs")
class TestPublishedGraphs:
    def test_counts_are_those_published_but_for_actor(self):
        for row in table():
            if row.found and row.name != "actor":
                assert row.found == row.published, row.name
        actor = next(row for row in table() if row.name == "actor")
        assert actor.found is None or actor.found == (7600, 33391, 932, 5)

    @pytest.mark.parametrize("name", HERE)
    def test_it_loads_undirected_loop_free_and_with_its_ten_splits(self, name):
        data = load_graph(name)
        assert is_undirected(data.edge_index) and not contains_self_loops(data.edge_index)
        assert data.x.shape[0] == data.num_nodes == len(data.y) == len(data.node_id)
        assert data.num_classes == GRAPHS[name].published.classes == len(data.classes)
        for split in splits(data.y, GRAPHS[name].masks, masks=public_masks(data)):
            assert not (split.train & split.val).any()
            assert not (split.test & (split.train | split.val)).any()
            assert (data.y[split.train | split.val | split.test] >= 0).all()
        for protocol in ("paper", "balanced"):
            assert len(splits(data.y, protocol)) == 10

    def test_nodes_outside_every_mask_stay_in_the_graph_and_in_no_set(self):
        data = load_graph("cora")
        split = splits(data.y, "geom", masks=public_masks(data))[0]
        assert int((~(split.train | split.val | split.test)).sum()) == 223
        assert data.num_nodes == 2708

    def test_unlabelled_nodes_of_citeseer_are_in_no_set(self):
        data = load_graph("citeseer", sparse=True)
        assert int((data.y == -1).sum()) == 15
        assert data.x.layout == torch.sparse_csr
        found = splits(data.y, "geom", masks=public_masks(data))
        assert max(int((s.train | s.val | s.test).sum()) for s in found) == 3312
