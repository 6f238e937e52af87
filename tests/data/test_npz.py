import numpy as np
import pytest
import torch
from graph_files import npz_arrays, write_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from phgcn.data import GraphFileError, load_graph, save_graph
from phgcn.data.npz import size_limit


@pytest.mark.parametrize("dense", [False, True])
def test_a_file_gives_what_is_in_it(tmp_path, dense):
    data = load_graph(write_arrays(tmp_path / "own.npz", npz_arrays(dense=dense)))
    assert data.x.dtype == torch.float32
    assert data.x.tolist() == [[1, 0, 0], [0, 2, 0], [0, 0, 0], [1, 0, 3], [0, 1, 0], [0, 0, 0]]
    assert data.y.tolist() == [0, 1, 0, 1, 0, -1]
    assert data.edge_index.tolist() == [[0, 1, 1, 2, 2, 4], [1, 0, 2, 1, 4, 2]]
    assert (data.name, data.num_classes, data.num_nodes) == ("own", 2, 6)
    assert data.node_id == ["0", "1", "2", "3", "4", "5"]
    assert data.classes == ["0", "1"]
    assert data.train_mask.shape == (6, 2)
    assert data.train_mask[:, 1].tolist() == [False, False, True, True, False, False]
    assert data.val_mask[:, 0].tolist() == [False, False, True, True, False, False]
    assert data.test_mask[:, 0].tolist() == [False, False, False, False, True, False]


def test_directed_keeps_the_rows_of_the_file(tmp_path):
    arrays = npz_arrays()
    data = load_graph(write_arrays(tmp_path / "own.npz", arrays), directed=True)
    assert data.edge_index.T.tolist() == arrays["edges"].tolist()


def test_without_masks_there_are_no_mask_attributes(tmp_path):
    data = load_graph(write_arrays(tmp_path / "own.npz", npz_arrays(masks=False)))
    assert "train_mask" not in data


def test_features_are_ones_where_the_file_stores_no_values(tmp_path):
    arrays = npz_arrays()
    del arrays["features_data"]
    data = load_graph(write_arrays(tmp_path / "own.npz", arrays))
    assert data.x.sum() == 5


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, np.float16, np.float64])
def test_features_of_any_number_type_become_float32(tmp_path, kind):
    arrays = npz_arrays(dense=True)
    arrays["node_features"] = arrays["node_features"].astype(kind)
    data = load_graph(write_arrays(tmp_path / "own.npz", arrays))
    assert data.x.dtype == torch.float32
    assert data.x[0].tolist() == [1, 0, 0]


def test_indices_of_a_row_may_be_in_any_order(tmp_path):
    arrays = npz_arrays()
    arrays["features_indices"][2:4] = [2, 0]
    arrays["features_data"][2:4] = [3, 1]
    data = load_graph(write_arrays(tmp_path / "own.npz", arrays))
    assert data.x[3].tolist() == [1, 0, 3]


def wide_arrays(percent: int) -> dict[str, np.ndarray]:
    """A graph of as many features as the rule for sparse features asks for."""
    random = np.random.default_rng(0)
    features = random.random((50, 100)) < percent / 100
    edges = np.array([[0, 1], [2, 3]])
    return {"node_features": features, "node_labels": np.arange(50) % 3, "edges": edges}


def test_features_are_dense_unless_few_are_filled_and_sparse_ones_wanted_or_dense_ones_too_large(
    tmp_path, monkeypatch
):
    paths = {
        share: write_arrays(tmp_path / f"{share}.npz", wide_arrays(share)) for share in (5, 50)
    }

    def layouts(**options):
        found = {share: load_graph(path, **options).x for share, path in paths.items()}
        for share, x in found.items():
            assert np.array_equal(x.to_dense().numpy(), wide_arrays(share)["node_features"])
        return [x.layout for x in found.values()]

    assert layouts() == [torch.strided, torch.strided], "as in the scripts of PyG"
    assert layouts(sparse=True) == [torch.sparse_csr, torch.strided]
    monkeypatch.setattr("phgcn.data.load.MAX_DENSE_BYTES", 1000)
    assert layouts() == [torch.sparse_csr, torch.strided]


@pytest.mark.parametrize("percent", [5, 50])
@pytest.mark.parametrize("directed", [False, True])
def test_a_saved_graph_comes_back_the_same(tmp_path, percent, directed):
    arrays = wide_arrays(percent)
    arrays["unlabelled_nodes"] = np.array([3, 40])
    arrays["node_ids"] = np.array([f"node {i} é" for i in range(50)])
    arrays["class_names"] = np.array(["b", "a", "c", "never seen"])
    roles = np.random.default_rng(1).integers(0, 4, (2, 50))
    for role, name in enumerate(("train_masks", "val_masks", "test_masks")):
        arrays[name] = roles == role
    first = load_graph(write_arrays(tmp_path / "own.npz", arrays), directed=directed)
    save_graph(first, tmp_path / "new" / "own.npz")
    second = load_graph(tmp_path / "new" / "own.npz", directed=directed)
    assert first.keys() == second.keys()
    for key in first.keys():  # noqa: SIM118  not a dict
        one, other = first[key], second[key]
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype and one.layout == other.layout
            assert torch.equal(one.to_dense(), other.to_dense()), key
        else:
            assert one == other, key
    assert first.num_classes == 4
    assert first.y[3] == -1


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = write_arrays(tmp_path / "own.npz", npz_arrays())
    before, data = path.read_bytes(), load_graph(path)

    def full(file, **arrays):
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        save_graph(data, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_save_asks_for_the_ending(tmp_path):
    data = load_graph(write_arrays(tmp_path / "own.npz", npz_arrays()))
    with pytest.raises(ValueError, match=r"path is .*own.pt.*allowed: a name that ends in .npz"):
        save_graph(data, tmp_path / "own.pt")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_bytes_are_damaged_the_graph_loads_or_is_refused_in_one_line(
    tmp_path_factory, data
):
    path = tmp_path_factory.mktemp("damaged") / "own.npz"
    content = bytearray(write_arrays(path, npz_arrays()).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    size = len(content)
    path.write_bytes(content[: data.draw(st.sampled_from([size, size // 2, size - 7]))])
    try:
        load_graph(path)
    except GraphFileError as error:
        assert str(path) in str(error) and "\n" not in str(error)


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused_unread(tmp_path, monkeypatch):
    arrays = npz_arrays(dense=True)
    arrays["node_features"] = np.zeros((6, 100_000))  # 4.8 MB, a few kB when packed
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **arrays)
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was read"))
    said = r"own.npz: it unpacks to 0.0048 GB; allowed: up to 0.004 GB; `phgcn --max-gb`"
    with pytest.raises(GraphFileError, match=said):
        load_graph(path, max_gb=0.004)
    monkeypatch.setenv("PHGCN_MAX_GB", "0.004")
    with pytest.raises(GraphFileError, match=r"up to 0.004 GB"):
        load_graph(path)
    monkeypatch.undo()
    assert load_graph(path, max_gb=0.005).num_nodes == 6


def test_the_limit_is_half_of_the_memory_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("PHGCN_MAX_GB", raising=False)
    with open("/proc/meminfo") as file:
        kilobytes = int(file.readline().split()[1])
    assert size_limit() == pytest.approx(kilobytes * 1024 / 2, rel=0.01)
    assert size_limit(3) == 3e9
    monkeypatch.setenv("PHGCN_MAX_GB", "2")
    assert size_limit() == 2e9 and size_limit(3) == 3e9
    for wrong in (0, -1, float("nan"), "much"):
        said = r"max_gb is .*; allowed: a positive number of gigabytes"
        with pytest.raises(ValueError, match=said):
            size_limit(wrong)
