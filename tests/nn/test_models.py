import copy
import inspect

import pytest
import torch
from clouds import relative
from graphs import formats, random_graph
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv

from phgcn import nn
from phgcn.nn import MODELS, EDAConv, PHGCNConv
from phgcn.nn.models import NodeModel, drop_features
from phgcn.registry import find_model
from phgcn.reproduce.benchmark import rivals as benchmark
from phgcn.reproduce.geom_gcn import GeomGCN

# GeomGCN takes relations too; GlobalGNN and others have signatures of their own.
ONE_SIGNATURE = [name for name, model in MODELS.items() if issubclass(model, NodeModel) and model is not GeomGCN]
every_model = pytest.mark.parametrize("name", ONE_SIGNATURE)


def _model(name, *args, seed=0, **settings):
    torch.manual_seed(seed)
    return MODELS[name](*args, **settings)


def test_the_models_go_by_name():
    models = {"gcn": nn.GCN, "gat": nn.GAT, "gat-eda": nn.GATEDA, "phgcn": nn.PHGCN, "mlp": nn.MLP}
    models |= {"global-gnn": nn.GlobalGNN, "table": nn.TableNetwork}
    rivals = {"sgformer": "SGFormer", "polynormer": "Polynormer", "gps": "GPS", "linkx": "LINKX", "h2gcn": "H2GCN"}
    models |= {f"geom-gcn-{letter}": GeomGCN for letter in "ips"}
    assert models | {name: getattr(benchmark, title) for name, title in rivals.items()} == MODELS
    layers = {"gcn": GCNConv, "gat": GATConv, "gat-eda": EDAConv, "phgcn": PHGCNConv}
    for name, layer in layers.items():
        assert all(isinstance(conv, layer) for conv in _model(name, 5, 4, 3).convs)


@every_model
def test_the_models_have_one_signature(name):
    common = ["self", "in_channels", "hidden_channels", "out_channels", "num_layers", "heads", "dropout", "attention_dropout"]
    parameters = inspect.signature(MODELS[name].__init__).parameters
    assert list(parameters)[:10] == [*common, "norm", "residual"]
    defaults = [parameters[key].default for key in ("num_layers", "heads", "dropout", "attention_dropout", "norm", "residual")]
    assert defaults == [2, 8, 0.5, 0.0, None, False]
    wanted = ["self", "x", "edge_index", "batch", "edge_attr", "edge_weight"]
    assert list(inspect.signature(MODELS[name].forward).parameters) == wanted


@every_model
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_shapes_repr_and_gradients(name, num_layers):
    x, edge_index = random_graph(dtype=torch.float32)
    model = _model(name, 5, 4, 3, num_layers, heads=2)
    out = model(x, edge_index)
    assert out.shape == (20, 3) and len(model.convs) == num_layers
    out.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    assert str(model) == f"{type(model).__name__}(5, 4, 3, num_layers={num_layers}, heads=2)"


@every_model
def test_hidden_layers_are_equally_wide_and_twice_for_two_paths(name):
    x, edge_index = random_graph(dtype=torch.float32)
    widths = []
    model = _model(name, 5, 4, 3, heads=2)
    model.convs[1].register_forward_pre_hook(lambda module, given: widths.append(given[0].size(1)))
    model(x, edge_index)
    assert widths == [16 if name == "phgcn" else 8]


@every_model
@pytest.mark.parametrize("norm", [None, "batch_norm", "layer_norm", "graph_norm"])
def test_norms_residuals_and_lazy_sizes(name, norm):
    x, edge_index = random_graph(dtype=torch.float32)
    residual = name != "mlp"
    batch = torch.arange(20) % 2
    lazy, eager = (_model(name, size, 4, 3, 3, heads=2, norm=norm, residual=residual, dropout=0.0) for size in (-1, 5))
    lazy(x, edge_index, batch)
    lazy.load_state_dict(eager.state_dict())
    assert torch.equal(lazy.eval()(x, edge_index, batch), eager.eval()(x, edge_index, batch))
    if norm is not None:
        plain = _model(name, 5, 4, 3, 3, heads=2, residual=residual, dropout=0.0)
        assert not torch.equal(plain(x, edge_index, batch), eager(x, edge_index, batch))


@every_model
def test_reset_parameters_draws_all_weights_anew(name):
    model = _model(name, 5, 4, 3, heads=2, norm="batch_norm", residual=name != "mlp")
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(7.0)
    model.reset_parameters()
    assert all(not bool((p == 7.0).any()) for p in model.parameters())


def test_a_residual_of_an_MLP_is_refused():
    with pytest.raises(ValueError, match="residual is True; allowed for MLP: False"):
        nn.MLP(5, 4, 3, residual=True)


def test_settings_of_a_model_reach_its_layers():
    settings = {"embedding_dim": 2, "decay_local": 0.5, "learn_decay": True}
    shared = {"attention_dropout": 0.3, "backend": "reference", **settings}
    for model in (nn.PHGCN(5, 4, 3, 3, decay_global=5.0, method="separable", **shared), nn.GATEDA(5, 4, 3, 3, **shared)):
        for conv in model.convs:
            assert (conv.embedding_dim, conv.decay_local.value, conv.dropout, conv.backend) == (2, 0.5, 0.3, "reference")
            assert conv.decay_local.log is not None
            if isinstance(model, nn.PHGCN):
                assert (conv.method, conv.decay_global.value) == ("separable", 5.0)
    assert all(conv.dropout == 0.3 for conv in nn.GAT(5, 4, 3, attention_dropout=0.3).convs)
    with pytest.raises(TypeError, match="method"):
        nn.GCN(5, 4, 3, method="exact")


@every_model
@pytest.mark.parametrize("residual", [False, True])
def test_sparse_features_are_like_dense_ones(name, residual):
    if name == "mlp" and residual:
        pytest.skip("an MLP has no residual")
    x, edge_index = random_graph(dtype=torch.float32)
    x = x * (x > 0.5)
    model = _model(name, 5, 4, 3, heads=2, residual=residual).eval()
    want = model(x, edge_index)
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        assert relative(model(sparse, edge_index), want) < 1e-5
        model.train()(sparse, edge_index).sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
        model.eval()


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
def test_graphs_in_a_batch_are_the_graphs_alone(name):
    graphs = [Data(*random_graph(n, 3 * n, seed=n, dtype=torch.float32)) for n in (7, 40, 19)]
    data, model = Batch.from_data_list(graphs), _model(name, 5, 4, 3, 3, heads=2).eval()
    alone = torch.cat([model(g.x, g.edge_index) for g in graphs])
    assert torch.allclose(model(data.x, data.edge_index, data.batch), alone, rtol=1e-6, atol=1e-6)


@every_model
def test_formats_of_edges_give_the_same_output(name):
    x, edge_index = random_graph()
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    model = _model(name, 5, 4, 3, heads=2).double().eval()
    for kind, same in formats(edge_index, 20).items():
        assert relative(model(x, same), model(x, edge_index)) < 1e-12, kind


@every_model
def test_saved_weights_and_copies_give_the_same_output(name):
    x, edge_index = random_graph(dtype=torch.float32)
    model, other = (_model(name, 5, 4, 3, heads=2, norm="batch_norm", seed=seed) for seed in (0, 1))
    model(x, edge_index)
    want = model.eval()(x, edge_index)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x, edge_index), want)
    assert torch.equal(copy.deepcopy(model)(x, edge_index), want)


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


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"heads": 0}, "heads is 0; allowed: a positive integer"),
        ({"num_layers": 0}, "num_layers is 0; allowed: a positive integer"),
        ({"dropout": -0.1}, "dropout is -0.1; allowed: 0 to 1"),
        ({"attention_dropout": 2}, "attention_dropout is 2; allowed: 0 to 1"),
    ],
)
@every_model
def test_bad_settings_are_refused_by_name(name, settings, message):
    with pytest.raises(ValueError, match=message):
        MODELS[name](5, 4, 3, **settings)


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
    assert not takes or not torch.allclose(model(x, edge_index, **given), model(x, edge_index, **changed), atol=1e-4)
    for key in set(values) - set(takes):
        with pytest.raises(ValueError, match=f"{key} is given; allowed: None"):
            model(x, edge_index, **{key: values[key]})


def test_a_model_without_use_for_features_of_edges_refuses_their_size():
    with pytest.raises(ValueError, match="edge_dim is 2; allowed for MLP: None"):
        _model("mlp", 5, 4, 3, edge_dim=2)
