import builtins
import sys

import numpy as np
import pytest
from planes import line
from small_graphs import small_graph

from phgcn.reproduce.embed import cache, related_edges
from phgcn.reproduce.embed.cache import cached_file, embedding


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "phgcn" / "embeddings"


@pytest.fixture
def counted(monkeypatch):
    """An embedding that says how often it was computed."""
    calls = []

    def place(edges, count, seed):
        calls.append((count, seed))
        return np.random.default_rng(seed).normal(size=(count, 2))

    monkeypatch.setitem(cache.EMBED, "isomap", place)
    return calls


def test_an_embedding_is_computed_once_for_each_graph_and_seed(counted, own_cache):
    first = embedding(line(5), 5, "isomap")
    assert first.path.parent == own_cache and first.path.is_file()
    again = embedding(line(5), 5, "isomap")
    assert np.array_equal(first.positions, again.positions) and again.seconds == first.seconds
    embedding(line(5), 6, "isomap")
    embedding(line(5), 5, "isomap", seed=1)
    assert counted == [(5, 0), (6, 0), (5, 1)]
    embedding(line(5), 5, "isomap", again=True)
    assert counted[3:] == [(5, 0)]
    assert not list(own_cache.glob(".*"))


def test_a_damaged_file_is_named(counted):
    path = embedding(line(5), 5, "isomap").path
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"isomap-.*\.npz: no embedding, or a damaged one.*--again"):
        embedding(line(5), 5, "isomap")
    np.savez(path, positions=np.zeros((4, 2)), seconds=0.0)
    with pytest.raises(ValueError, match=r"positions has shape \(4, 2\); allowed: \(5, 2\)"):
        embedding(line(5), 5, "isomap")


def test_an_interrupted_write_leaves_nothing(counted, own_cache, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="cannot be written"):
        embedding(line(5), 5, "isomap")
    assert not list(own_cache.iterdir())


@pytest.mark.parametrize(("method", "seed", "said"), [("tsne", 0, "method is 'tsne'"), ("isomap", -1, "seed is -1")])
def test_wrong_choices_are_named(method, seed, said):
    with pytest.raises(ValueError, match=said):
        embedding(line(5), 5, method, seed)


@pytest.mark.parametrize(("method", "package"), [("isomap", "scikit-learn"), ("poincare", "gensim"), ("struc2vec", "gensim")])
def test_a_missing_package_is_named_in_one_line(method, package, monkeypatch):
    from phgcn.reproduce import extra

    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    text = rf"the embedding {method} needs the package {package}: pip install 'phgcn\[reproduce\]'"
    with pytest.raises(ValueError, match=text):
        related_edges(small_graph(), method)


def test_the_room_imports_without_the_packages(monkeypatch):
    real = builtins.__import__

    def refusing(name, *rest):
        if name.split(".")[0] in ("sklearn", "gensim"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refusing)
    for name in [name for name in sys.modules if name.startswith("phgcn.reproduce.embed")]:
        monkeypatch.delitem(sys.modules, name)
    import phgcn.reproduce.embed.cache  # noqa: F401


def test_the_file_depends_on_the_edges():
    assert cached_file(line(5), 5, "isomap", 0) != cached_file(line(5)[2:], 5, "isomap", 0)
