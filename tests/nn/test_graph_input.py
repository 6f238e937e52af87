"""PyG's Data and Batch in the place of x."""

import pytest
import torch
from graphs import random_graph
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from phgcn.nn import GATEDA, GCN, MLP, PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv

CALLS = {
    "PHGCNConv": (PHGCNConv(5, 4, heads=2), ("edge_index", "batch")),
    "EDAConv": (EDAConv(5, 4, heads=2), ("edge_index",)),
    "GlobalAttention": (GlobalAttention(5, 4, heads=2, decay=1.0), ("batch",)),
    "GlobalBlock": (GlobalBlock(5, heads=1), ("batch",)),
    "GlobalGNN": (GlobalGNN(5, 8, 3, global_layers=1, local="sage").eval(), ("edge_index", "batch")),
    "PHGCN": (PHGCN(5, 4, 3).eval(), ("edge_index", "batch")),
    "GATEDA": (GATEDA(5, 4, 3).eval(), ("edge_index", "batch")),
    "GCN": (GCN(5, 4, 3).eval(), ("edge_index", "batch")),
    "MLP": (MLP(5, 4, 3).eval(), ("edge_index", "batch")),
}


@pytest.fixture(scope="module")
def batch():
    graphs = [random_graph(nodes, 3 * nodes, seed=nodes, dtype=torch.float32) for nodes in (7, 12, 9)]
    return Batch.from_data_list([Data(x=x, edge_index=e, edge_attr=torch.ones(e.size(1), 2)) for x, e in graphs])


@pytest.mark.parametrize("name", CALLS)
def test_a_batch_brings_its_tensors(name, batch):
    layer, takes = CALLS[name]
    if name in ("GlobalBlock", "GlobalGNN"):
        for module in layer.modules():
            if isinstance(module, GlobalBlock):
                torch.nn.init.ones_(module.gate)
    given = {key: batch[key] for key in takes}
    out = layer(batch)
    assert torch.equal(out, layer(batch.x, **given))
    if "batch" in takes and name not in ("GATEDA", "GCN", "MLP"):
        assert not torch.allclose(out, layer(batch.x, **(given | {"batch": None})), atol=1e-4)
    first = batch[0]
    assert torch.equal(layer(first), layer(first.x, **{key: first[key] for key in takes if key != "batch"}))


def test_an_object_may_hold_its_edges_as_a_matrix(batch):
    layer, data = CALLS["PHGCNConv"][0], batch[1]
    matrix = ToSparseTensor(layout=torch.sparse_csr)(Data(x=data.x, edge_index=data.edge_index))
    assert "edge_index" not in matrix
    torch.testing.assert_close(layer(matrix), layer(data))


def test_what_cannot_be_meant_is_refused(batch):
    layer = CALLS["PHGCNConv"][0]
    with pytest.raises(ValueError, match="edge_index is given beside a DataBatch; allowed: the object alone"):
        layer(batch, batch.edge_index)
    with pytest.raises(ValueError, match="batch is given beside a DataBatch"):
        layer(batch, batch=batch.batch)
    with pytest.raises(ValueError, match=r"x is a HeteroData; allowed: tensors, Data or Batch; .* HeteroConv"):
        layer(HeteroData())
    with pytest.raises(ValueError, match="edge_index is None; allowed: the edges, or a Data or Batch object"):
        layer(batch.x)
    with pytest.raises(ValueError, match="x is a NoneType; allowed: a tensor"):
        layer(Data(edge_index=batch.edge_index))
