import pytest
import torch
from torch_geometric.data import Data

from phgcn.data import load_graph, public_masks


def content() -> dict[str, torch.Tensor]:
    return {
        "x": torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]),
        "y": torch.tensor([0, 1, -1]),
        "edge_index": torch.tensor([[0, 1, 2], [1, 2, 2]]),
        "train_mask": torch.tensor([True, False, False]),
        "val_mask": torch.tensor([False, True, False]),
        "test_mask": torch.tensor([False, False, True]),
    }


def check(data) -> None:
    assert data.x.to_dense().tolist() == content()["x"].tolist()
    assert data.y.tolist() == [0, 1, -1]
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert [mask.shape for mask in public_masks(data)] == [(3, 1)] * 3
    assert data.name == "own"


@pytest.mark.parametrize("end", [".pt", ".pth"])
def test_a_saved_data_comes_back(tmp_path, end):
    torch.save(Data(**content(), edge_attr=torch.ones(3, 4)), tmp_path / f"own{end}")
    check(load_graph(tmp_path / f"own{end}"))


def test_a_saved_dict_of_tensors_comes_back(tmp_path):
    torch.save(content(), tmp_path / "own.pt")
    check(load_graph(tmp_path / "own.pt"))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_saved_features_may_be_sparse(tmp_path, layout):
    sparse = content()["x"].to_sparse(layout=layout)
    torch.save(content() | {"x": sparse}, tmp_path / "own.pt")
    check(load_graph(tmp_path / "own.pt"))


def test_a_data_of_load_graph_comes_back_with_its_names(tmp_path):
    names = {"node_id": ["p", "q", "r"], "classes": ["left", "right"]}
    torch.save(Data(**content(), **names), tmp_path / "own.pt")
    data = load_graph(tmp_path / "own.pt")
    assert data.node_id == ["p", "q", "r"]
    assert data.classes == ["left", "right"]


def test_masks_of_several_splits_keep_their_columns(tmp_path):
    masks = {name: mask for name, mask in content().items() if name.endswith("mask")}
    masks = {name: torch.stack([mask, mask.roll(1)], dim=1) for name, mask in masks.items()}
    torch.save(content() | masks, tmp_path / "own.pt")
    data = load_graph(tmp_path / "own.pt")
    assert torch.equal(data.train_mask, masks["train_mask"])


@pytest.mark.parametrize("key", ["batch", "ptr"])
def test_a_batch_that_is_left_out_is_said(key, tmp_path):
    more = {"batch": torch.tensor([0, 0, 1]), "ptr": torch.tensor([0, 2, 3])}[key]
    y, edges = torch.tensor([0, 1, 0]), torch.tensor([[0], [1]])
    parts = {"x": torch.ones(3, 2), "y": y, "edge_index": edges, key: more}
    torch.save(parts, tmp_path / "own.pt")
    said = "batch is left out: attention is among the nodes of all 2 graphs"
    with pytest.warns(UserWarning, match=said):
        data = load_graph(tmp_path / "own.pt")
    assert any("batch is left out" in note for note in data.notes)
