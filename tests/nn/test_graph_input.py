"""PyG's Data and Batch in the place of x, and batches that a call forgot."""

import gc
import warnings

import pytest
import torch
from layer_cases import CASES, graph
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from phgcn.nn import graph_input


def make(name):
    return CASES[name].make(dtype=torch.float32)


@pytest.fixture
def batch():
    graphs = [graph(nodes, seed=nodes, dtype=torch.float32) for nodes in (7, 12, 9)]
    return Batch.from_data_list(graphs)


def test_an_object_may_hold_its_edges_as_a_matrix(batch):
    layer, data = make("PHGCNConv"), batch[1]
    matrix = ToSparseTensor(layout=torch.sparse_csr)(Data(x=data.x, edge_index=data.edge_index))
    assert "edge_index" not in matrix
    torch.testing.assert_close(layer(matrix), layer(data))


def test_what_cannot_be_meant_is_refused(batch):
    layer = make("PHGCNConv")
    for call, message in [
        (lambda: layer(batch, batch.edge_index), "edge_index is given beside a DataBatch; allowed"),
        (lambda: layer(batch, batch=batch.batch), "batch is given beside a DataBatch"),
        (lambda: layer(HeteroData()), r"x is a HeteroData; allowed: tensors, .* HeteroConv"),
        (lambda: layer(batch.x), "edge_index is None; allowed: the edges, or a Data or Batch"),
        (lambda: layer(Data(edge_index=batch.edge_index)), "x is a NoneType; allowed: a tensor"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("first", ["PHGCNConv", "EDAConv", "GlobalGNN, sage"])
@pytest.mark.parametrize("second", ["PHGCNConv", "PHGCN", "GlobalGNN, sage"])
def test_a_batch_that_one_layer_had_and_the_next_has_not_is_a_warning(first, second, batch):
    make(first)(batch)
    text = "has no batch, which an earlier call with the same edge_index had"
    with pytest.warns(UserWarning, match=f"{second.split(',')[0]} {text}"):
        make(second)(batch.x, batch.edge_index)


def test_the_warning_comes_once_and_only_where_graphs_can_be_mixed(batch):
    conv, one = make("PHGCNConv"), Batch.from_data_list([batch[0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        conv(batch)
        make("EDAConv")(batch.x, batch.edge_index)  # follows edges, which stay within a graph
        conv(batch.x, batch.edge_index, batch=batch.batch)
        conv(batch[1].x, batch[1].edge_index)
        conv(one)
        conv(one.x, one.edge_index)  # a batch of one graph
        assert not caught
        for _ in range(3):
            conv(batch)
            conv(batch.x, batch.edge_index)
        assert len(caught) == 1


def test_edges_are_not_kept_alive(batch):
    make("PHGCNConv")(batch)
    before, kept = len(graph_input._batches), batch.batch
    assert any(known is kept for known in graph_input._batches.values())
    del batch.edge_index
    gc.collect()
    assert len(graph_input._batches) < before
