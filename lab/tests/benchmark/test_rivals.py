"""The rivals compute what PyG's models do, and train as any model of the registry."""

import inspect

import pytest
import torch
from small_graphs import small_graph
from torch_geometric.nn import models as pyg

from phgcn.registry import find_model
from phgcn.train import Plan, Run, resolve
from phgcn.train import settings as config
from phgcn_lab.benchmark import rivals, spaces
from phgcn_lab.benchmark.training import choose

RIVALS = [name for name in spaces.MODELS if name != spaces.OURS]


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_trains_and_predicts_through_the_public_interface(name, tmp_path):
    data = small_graph()
    settings = resolve(name, changes=["epochs=2", "hidden_channels=16", "dropout=0.1"]).settings
    run = Run.create(tmp_path / "run", Plan("small", model=name, splits=1, settings=settings), data)
    result = run.train(data)
    model = run.model(run.plan.trials()[0])
    inputs = find_model(name).inputs(data, 0)
    assert result["epochs"] == 2 and model(data.x, *inputs).shape == (60, 3)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_sgformer_is_that_of_pyg(layout):
    data = small_graph()
    model = rivals.SGFormer(5, 8, 3, num_layers=2, graph_weight=0.8).eval()
    own = pyg.SGFormer(5, 8, 3, trans_num_layers=1, gnn_num_layers=2, graph_weight=0.8).eval()
    own.load_state_dict(model.model.state_dict())
    x = data.x if layout == "dense" else data.x.to_sparse_csr()
    expected = own(data.x, data.edge_index, torch.zeros(60, dtype=torch.long))
    assert torch.equal(model(x, data.edge_index), expected)


def test_polynormer_without_attention_is_its_local_part():
    data = small_graph()
    model = rivals.Polynormer(5, 8, 3, num_layers=2).eval()
    both = model(data.x, data.edge_index)
    model.set_global(False)
    local = model(data.x, data.edge_index)
    assert not torch.allclose(both, local)
    for parameter in model.model.global_attn.parameters():
        parameter.data.zero_()
    assert torch.equal(model(data.x, data.edge_index), local)


@pytest.mark.parametrize("make", [rivals.SGFormer, rivals.GPS])
def test_normalised_edges_are_those_of_the_edges_at_hand(make):
    data = small_graph()
    model = make(5, 8, 3).eval()
    model(data.x, data.edge_index)
    fewer = data.edge_index[:, ::2]
    after = model(data.x, fewer)
    fresh = make(5, 8, 3).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(after, fresh(data.x, fewer))
    assert not torch.allclose(after, model(data.x, data.edge_index))


@pytest.mark.parametrize("local", ["gcn", "sage", "gat", "gin"])
def test_gps_takes_every_local_layer(local):
    data = small_graph()
    assert rivals.GPS(5, 8, 3, local=local)(data.x, data.edge_index).shape == (60, 3)


def test_gps_refuses_an_unknown_local_layer():
    with pytest.raises(ValueError, match="local is 'none'; allowed for gps: gcn, sage, gat, gin"):
        rivals.GPS(5, 8, 3, local="none")


# H2GCN


def dense_hops(data):
    """One step and exactly two, as matrices of 0 and 1."""
    count = data.num_nodes
    one = torch.zeros(count, count)
    one[data.edge_index[0], data.edge_index[1]] = 1
    one = ((one + one.T) > 0).float().fill_diagonal_(0)
    two = ((one @ one > 0) & (one == 0)).float().fill_diagonal_(0)
    return one, two


def scaled(matrix):
    root = matrix.sum(dim=1).clamp(min=1).rsqrt()
    return root[:, None] * matrix * root


def test_hops_are_those_of_dense_matrices():
    data = small_graph()
    # sparse, one way, with a self-loop
    data.edge_index = torch.cat([data.edge_index[:, :40], torch.tensor([[3], [3]])], dim=1)
    for found, hops in zip(rivals.one_and_two_hops(data, 0), dense_hops(data), strict=True):
        assert hops.sum() > 0
        torch.testing.assert_close(found.to_dense(), scaled(hops))


def test_h2gcn_and_its_gradients_are_those_of_the_formula():
    data = small_graph()
    model = rivals.H2GCN(5, 4, 3, num_layers=2, dropout=0.0)
    one, two = map(scaled, dense_hops(data))
    first = model.embed(data.x).relu()
    second = torch.cat([one @ first, two @ first], dim=1)
    third = torch.cat([one @ second, two @ second], dim=1)
    expected = model.classify(torch.cat([first, second, third], dim=1))
    found = model(data.x, *rivals.one_and_two_hops(data, 0))
    torch.testing.assert_close(found, expected)
    gradients = [
        torch.autograd.grad(out.square().sum(), model.embed.weight)[0] for out in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


# Spaces


@pytest.mark.parametrize("model", spaces.MODELS)
def test_every_key_of_a_space_is_a_setting_or_an_argument(model):
    settings = config.keys(model)
    made = find_model(model).model_class()
    arguments = {*inspect.signature(made).parameters, *getattr(made, "names", ())}
    assert all(key in settings or key in arguments for key in spaces.SPACES[model])


@pytest.mark.parametrize("model", spaces.MODELS)
def test_recipes_are_different_points_of_the_space(model):
    recipes, space = spaces.RECIPES[model], spaces.SPACES[model]
    assert len(recipes) == (8 if model == spaces.OURS else 5)
    assert all(recipes.count(recipe) == 1 for recipe in recipes)
    for recipe in recipes:
        assert set(recipe) == set(space) and all(recipe[key] in space[key] for key in space)
        chosen = choose("texas", model, recipe)
        assert chosen.settings.select == "metric"
        assert chosen.settings.epochs == spaces.GRAPHS["texas"].epochs
        assert set(chosen.arguments) == {key for key in space if key not in config.keys(model)}


def test_the_graphs_are_those_of_the_table():
    assert sorted(spaces.GRAPHS) == sorted(spaces.TABLE_ORDER)
    assert set(spaces.SPACES) == set(spaces.RECIPES)
