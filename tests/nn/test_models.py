"""The models of the paper's tables: one signature, widths, norms and settings."""

import inspect

import pytest
import torch
from graphs import random_graph
from torch_geometric.nn import GATConv, GCNConv

from phgcn import nn
from phgcn.nn import MODELS, EDAConv, PHGCNConv
from phgcn.nn.models import NodeModel, drop_features
from phgcn.registry import find_model
from phgcn_lab.benchmark import rivals as benchmark
from phgcn_lab.geom_gcn import GeomGCN

# GeomGCN takes relations too; GlobalGNN and others have signatures of their own.
ONE_SIGNATURE = [
    name for name, model in MODELS.items() if issubclass(model, NodeModel) and model is not GeomGCN
]
every_model = pytest.mark.parametrize("name", ONE_SIGNATURE)


def _model(name, *args, **settings):
    torch.manual_seed(0)
    return MODELS[name](*args, **settings)


def test_the_models_go_by_name():
    models = {"gcn": nn.GCN, "gat": nn.GAT, "gat-eda": nn.GATEDA, "phgcn": nn.PHGCN, "mlp": nn.MLP}
    models |= {"global-gnn": nn.GlobalGNN, "table": nn.TableNetwork}
    rivals = ["SGFormer", "Polynormer", "GPS", "LINKX", "H2GCN"]
    models |= {name.lower(): getattr(benchmark, name) for name in rivals}
    models |= {f"geom-gcn-{letter}": GeomGCN for letter in "ips"}
    assert models == MODELS
    layers = {"gcn": GCNConv, "gat": GATConv, "gat-eda": EDAConv, "phgcn": PHGCNConv}
    for name, layer in layers.items():
        assert all(isinstance(conv, layer) for conv in _model(name, 5, 4, 3).convs)


@every_model
def test_the_models_have_one_signature(name):
    parameters = inspect.signature(MODELS[name]).parameters
    names = "in_channels hidden_channels out_channels num_layers heads dropout attention_dropout"
    assert list(parameters)[:9] == [*names.split(), "norm", "residual"]
    assert [p.default for p in parameters.values()][3:9] == [2, 8, 0.5, 0.0, None, False]
    wanted = ["self", "x", "edge_index", "batch", "edge_attr", "edge_weight"]
    assert list(inspect.signature(MODELS[name].forward).parameters) == wanted


@every_model
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_shapes_and_gradients(name, num_layers):
    model = _model(name, 5, 4, 3, num_layers, heads=2)
    out = model(*random_graph(dtype=torch.float32))
    assert out.shape == (20, 3) and len(model.convs) == num_layers
    out.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@every_model
def test_hidden_layers_are_equally_wide_and_twice_for_two_paths(name):
    widths, model = [], _model(name, 5, 4, 3, heads=2)
    model.convs[1].register_forward_pre_hook(lambda module, given: widths.append(given[0].size(1)))
    model(*random_graph(dtype=torch.float32))
    assert widths == [16 if name == "phgcn" else 8]


@every_model
@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm", "graph_norm"])
def test_norms(name, norm):
    x, edge_index = random_graph(dtype=torch.float32)
    batch, settings = torch.arange(20) % 2, {"heads": 2, "dropout": 0.0}
    normed, plain = (_model(name, 5, 4, 3, 3, norm=norm, **settings) for norm in (norm, None))
    assert not torch.equal(plain(x, edge_index, batch), normed(x, edge_index, batch))
    alone = torch.arange(20) % 2 == 0
    inside = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    whole = normed.eval()(x, inside, batch)[alone]
    part = torch.cumsum(alone, 0)[inside[:, alone[inside[0]]]] - 1
    torch.testing.assert_close(normed(x[alone], part), whole, rtol=1e-4, atol=1e-5)


def test_settings_of_a_model_reach_its_layers():
    settings = {"embedding_dim": 2, "backend": "reference"}
    shared = {"attention_dropout": 0.3, "decay_local": 0.5, "learn_decay": True, **settings}
    more = {"decay_global": 5.0, "method": "separable"}
    for model in (nn.PHGCN(5, 4, 3, 3, **more, **shared), nn.GATEDA(5, 4, 3, 3, **shared)):
        for conv in model.convs:
            assert {name: getattr(conv, name) for name in settings} == settings
            assert (conv.decay_local.value, conv.dropout) == (0.5, 0.3)
            assert conv.decay_local.log is not None
            if isinstance(model, nn.PHGCN):
                assert (conv.method, conv.decay_global.value) == ("separable", 5.0)
    assert all(conv.dropout == 0.3 for conv in nn.GAT(5, 4, 3, attention_dropout=0.3).convs)
    with pytest.raises(TypeError, match="method"):
        nn.GCN(5, 4, 3, method="exact")


@pytest.mark.parametrize("layout", ["dense", "csr", "coo"])
def test_dropout_of_features_drops_single_entries(layout):
    x = torch.ones(50, 40)
    given = {"dense": x, "csr": x.to_sparse_csr(), "coo": x.to_sparse_coo()}[layout]
    assert drop_features(given, 0.25, training=False) is given
    dropped = drop_features(given, 0.25, training=True)
    assert dropped.layout == given.layout
    dense = dropped.to_dense()
    assert set(dense.unique().tolist()) == {0.0, x.new_tensor(1 / 0.75).item()}
    assert abs(float((dense == 0).float().mean()) - 0.25) < 0.05


@every_model
def test_the_models_learn(name):
    """Two communities, with features that tell them apart in part."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(60) % 2
    pairs = torch.randint(0, 60, (2, 1500), generator=generator)
    edge_index = pairs[:, label[pairs[0]] == label[pairs[1]]][:, :200]
    x = torch.randn(60, 8, generator=generator) + label.unsqueeze(1)
    model = _model(name, 8, 4, 2, heads=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edge_index), label).backward()
        optimizer.step()
    assert (model.eval()(x, edge_index).argmax(dim=1) == label).float().mean() > 0.9


@every_model
def test_a_model_reads_the_features_of_edges_that_its_entry_names(name):
    x, edge_index = random_graph(dtype=torch.float32)
    weight = torch.rand(edge_index.size(1)) + 0.5
    takes = find_model(name).edge_values_of({})
    model = _model(name, 5, 4, 3, **({"edge_dim": 2} if "edge_attr" in takes else {})).eval()
    assert model.takes == takes
    values = {"edge_attr": torch.randn(len(weight), 2), "edge_weight": weight}
    given = {key: values[key] for key in takes}
    changed = {key: value.flip(0) for key, value in given.items()}
    if takes:
        out, other = (model(x, edge_index, **some) for some in (given, changed))
        assert not torch.allclose(out, other, atol=1e-4)
    for key in set(values) - set(takes):
        with pytest.raises(ValueError, match=f"{key} is given; allowed: None"):
            model(x, edge_index, **{key: values[key]})
