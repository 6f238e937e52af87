import pytest
import torch
from torch_geometric.data import Data

from phgcn.registry import DEFAULT_MODEL
from phgcn.train import resolve, suit_settings
from phgcn.train.affordable import afford


def graph_of(nodes, edges):
    data = Data(x=torch.ones(nodes, 4), edge_index=torch.zeros(2, edges, dtype=torch.int64))
    data.num_nodes = nodes
    return data


def test_a_small_graph_and_a_gpu_have_no_bounds():
    suited = suit_settings(graph_of(2000, 10_000), "accuracy")
    for data, device in ((graph_of(2000, 10_000), "cpu"), (graph_of(100_000, 1_000_000), "cuda")):
        affordable = afford(data, device)
        assert affordable.splits == 3 and affordable.limit(suited) == suited and affordable.limit(None) is None


@pytest.mark.parametrize(("nodes", "edges", "splits", "epochs"), [(40_000, 400_000, 3, 300), (100_000, 1_000_000, 1, 200)])
def test_a_graph_that_is_large_for_a_cpu_has_fewer_splits_epochs_and_layers(nodes, edges, splits, epochs):
    data = graph_of(nodes, edges)
    affordable = afford(data, "cpu")
    assert affordable.splits == splits
    settings, sources = resolve(DEFAULT_MODEL, None, None, (), affordable.limit(suit_settings(data, "accuracy")))
    assert (settings.epochs, settings.patience, settings.num_layers) == (epochs, 50, 3)
    assert sources["epochs"].endswith(f"limited for {nodes:,} nodes and {edges:,} edges on cpu")
    assert resolve(DEFAULT_MODEL, None, None, ["epochs=900"], affordable.limit(None)).settings.epochs == 900
    other, sources = resolve("gat", None, None, (), affordable.limit(None))
    assert other.epochs == epochs and other.num_layers == 2 and sources["num_layers"] == "default"
