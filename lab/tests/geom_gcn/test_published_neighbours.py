import os
from pathlib import Path

import numpy as np
import pytest
import torch
from small_graphs import small_graph

from phgcn.data import load_graph
from phgcn_lab.geom_gcn import METHODS, Neighbourhood, as_edges, related_edges
from phgcn_lab.geom_gcn.neighbours import published

DATA = Path(os.environ.get("PHGCN_DATA", "/nowhere"))
named = pytest.mark.skipif(
    not (DATA / "geom_gcn" / "texas_isomap.npz").is_file(), reason="PHGCN_DATA holds no geom_gcn"
)


def write(folder, name, method, pairs, latent, relation):
    (folder / "geom_gcn").mkdir(exist_ok=True)
    path = folder / "geom_gcn" / f"{name}_{method}.npz"
    np.savez(path, pairs=pairs, in_latent_space=latent, relation=relation)


def of_graph(data, latent=((0, 1), (1, 0))):
    """Neighbourhoods with the edges of a graph, and some pairs in latent space."""
    edges = data.edge_index.numpy().T
    pairs = np.concatenate([edges, latent]).astype(np.int32)
    return pairs, np.arange(len(pairs)) >= len(edges), (np.arange(len(pairs)) % 4).astype(np.uint8)


def test_a_pair_of_both_spaces_counts_once_and_each_node_has_itself():
    pairs = np.array([[0, 1], [1, 0], [0, 1], [2, 0]])
    found = Neighbourhood(pairs, np.array([True, False, False, True]), np.array([2, 1, 3, 0]))
    edge_index, relation = as_edges(found, 3)
    rows = {(a, b): r for a, b, r in zip(*edge_index.tolist(), relation.tolist(), strict=True)}
    assert rows == {(0, 1): 6, (1, 0): 1, (2, 0): 4, (0, 0): 8, (1, 1): 8, (2, 2): 8}
    assert len(relation) == 6
    none = Neighbourhood(pairs[:0], np.empty(0, bool), np.empty(0, np.uint8))
    assert as_edges(none, 2)[0].tolist() == [[0, 1], [0, 1]]


def test_published_neighbourhoods_are_read_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path))
    data = small_graph()
    write(tmp_path, "small", "isomap", *of_graph(data))
    found = published(data, "isomap")
    assert found.latent.sum() == 2
    edge_index, relation = related_edges(data, "isomap")
    assert torch.equal(edge_index[:, relation == 8][0], torch.arange(60))
    assert int((relation < 4).sum()) + int(((relation >= 4) & (relation < 8)).sum()) == len(
        {tuple(pair) for pair in found.pairs.tolist()}
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda p, latent, r: (p[1:], latent[1:], r[1:]), "are not those of small"),
        (lambda p, latent, r: (p + 1, latent, r), "pairs has node 60; allowed: 0 to 59"),
        (lambda p, latent, r: (p, latent, r + 1), "relation is 4; allowed: 0 to 3"),
        (lambda p, latent, r: (p, latent[1:], r), "in_latent_space is bool of shape"),
        (lambda p, latent, r: (p.astype(float), latent, r), "pairs is float64"),
        (lambda p, latent, r: (p.astype(object), latent, r), "no file of neighbourhoods"),
    ],
)
def test_a_wrong_file_of_neighbourhoods_is_named(spoil, said, tmp_path):
    data = small_graph()
    write(tmp_path, "small", "isomap", *spoil(*of_graph(data)))
    with pytest.raises(ValueError, match=f"small_isomap.npz: .*{said}"):
        published(data, "isomap", tmp_path)


def test_neighbourhoods_that_were_not_published_and_damaged_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no neighbourhoods were published for small"):
        published(small_graph(), "isomap", tmp_path)
    (tmp_path / "geom_gcn").mkdir()
    (tmp_path / "geom_gcn" / "small_isomap.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="no file of neighbourhoods, or a damaged one"):
        published(small_graph(), "isomap", tmp_path)


def test_an_unknown_embedding_is_named():
    with pytest.raises(ValueError, match="method is 'tsne'"):
        related_edges(small_graph(), "tsne")


@named
@pytest.mark.parametrize("name", ["texas", "cornell", "wisconsin", "cornell-2020"])
@pytest.mark.parametrize("method", METHODS)
def test_what_was_published_belongs_to_our_graphs(name, method):
    data = load_graph(name)
    edge_index, relation = related_edges(data, method)
    linked = {tuple(edge) for edge in data.edge_index.T.tolist()}
    of_graph = {tuple(edge) for edge in edge_index.T[relation < 4].tolist()}
    assert of_graph <= linked and int(relation.max()) == 8
    assert len(of_graph) >= 0.8 * len(linked)  # the others are neighbours in latent space too
