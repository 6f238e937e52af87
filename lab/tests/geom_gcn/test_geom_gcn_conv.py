import pytest
import torch
from graphs import random_graph

from phgcn_lab.geom_gcn import GeomGCN, GeomGCNConv
from phgcn_lab.geom_gcn.conv import RELATIONS


def related_graph(nodes=20, edges=60, channels=5, seed=0, dtype=torch.float64):
    x, edge_index = random_graph(nodes, edges, channels, seed, dtype)
    random = torch.Generator().manual_seed(seed)
    return x, edge_index, torch.randint(RELATIONS, (edges,), generator=random)


def make(*sizes, seed=0, dtype=torch.float64, layer=GeomGCNConv, **settings):
    torch.manual_seed(seed)
    return layer(*sizes, **settings).to(dtype)


def dense(conv, x, edge_index, relation):
    """The layer as one matrix for each relation."""
    count = len(x)
    degree = torch.bincount(edge_index[1], minlength=count).clamp(min=1).to(x.dtype)
    parts = []
    for r, weight in enumerate(conv.lin.weight.split(conv.out_channels)):
        matrix = torch.zeros(count, count, dtype=x.dtype)
        for (a, b), one in zip(edge_index.T.tolist(), relation.tolist(), strict=True):
            if one == r:
                matrix[b, a] += 1 / (degree[a] * degree[b]).sqrt()
        parts.append(matrix @ x @ weight.t())
    return torch.cat(parts, dim=1) if conv.concat else torch.stack(parts).mean(dim=0)


@pytest.mark.parametrize("concat", [True, False])
def test_the_layer_is_one_matrix_for_each_relation(concat):
    x, edge_index, relation = related_graph()
    edge_index = torch.cat([edge_index, edge_index[:, :3]], dim=1)  # twice counts twice
    relation = torch.cat([relation, relation[:3]])
    conv = make(5, 4, concat=concat)
    out = conv(x, edge_index, relation)
    assert out.shape == (20, 36 if concat else 4)
    assert torch.allclose(out, dense(conv, x, edge_index, relation), atol=1e-12)


def test_gradients_are_the_true_derivatives():
    x, edge_index, relation = related_graph(8, 20, 3)
    conv = make(3, 2)
    torch.autograd.gradcheck(lambda x: conv(x, edge_index, relation), x.requires_grad_())
    torch.autograd.gradgradcheck(lambda x: conv(x, edge_index, relation), x)
    conv(x, edge_index, relation).square().sum().backward()
    expected = torch.autograd.grad(
        dense(conv, x, edge_index, relation).square().sum(), conv.lin.weight
    )[0]
    assert torch.allclose(conv.lin.weight.grad, expected, atol=1e-12)


def test_each_relation_has_weights_for_its_own_size():
    conv = make(400, 3)
    limit = (6 / (400 + 3)) ** 0.5
    assert conv.lin.weight.abs().max() <= limit and conv.lin.weight.abs().max() > 0.99 * limit
    lazy = make(-1, 3)
    lazy(torch.randn(4, 400, dtype=torch.float64), torch.tensor([[0], [1]]), torch.tensor([0]))
    assert lazy.lin.weight.shape == conv.lin.weight.shape
    assert lazy.lin.weight.abs().max() > 0.99 * limit


@pytest.mark.parametrize("layer", [GeomGCNConv, GeomGCN])
def test_a_batch_is_its_graphs_one_by_one_and_nodes_have_no_order(layer):
    sizes = (5, 4) if layer is GeomGCNConv else (5, 4, 3)
    conv = make(*sizes, dtype=torch.float32, layer=layer).eval()
    graphs = [related_graph(20, 60, seed=seed, dtype=torch.float32) for seed in (0, 1)]
    alone = torch.cat([conv(*graph) for graph in graphs])
    x = torch.cat([graph[0] for graph in graphs])
    edge_index = torch.cat([graphs[0][1], graphs[1][1] + 20], dim=1)
    relation = torch.cat([graph[2] for graph in graphs])
    together = conv(x, edge_index, relation)
    assert torch.equal(together, alone)
    new = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    moved = torch.empty_like(x)
    moved[new] = x
    assert torch.equal(conv(moved, new[edge_index], relation)[new], together)


def test_the_number_of_threads_changes_no_bit(threads):
    x, edge_index, relation = related_graph(300, 4000, 40, dtype=torch.float32)
    found = []
    for count in (1, 2):
        threads(count)
        conv = make(40, 16, dtype=torch.float32)
        out = conv(x, edge_index, relation)
        out.square().sum().backward()
        found.append((out, conv.lin.weight.grad))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"relation": torch.zeros(60)}, "relation is torch.float32"),
        ({"relation": torch.arange(59)}, r"of shape \(59,\); allowed: integers of shape \(60,\)"),
        ({"relation": torch.full((60,), 9)}, "relation is 9; allowed: 0 to 8"),
        ({"relation": torch.full((60,), -1)}, "relation is -1; allowed: 0 to 8"),
        ({"edge_index": torch.full((2, 60), 20)}, "edge_index.* is 20; allowed: 0 to 19"),
        ({"edge_index": torch.eye(20).double().to_sparse_csr()}, "edge_index has layout"),
        ({"x": torch.ones(20, 4).double()}, r"x has shape \(20, 4\); allowed: \(N, 5\)"),
    ],
)
def test_bad_input_is_named(change, said):
    x, edge_index, relation = related_graph()
    with pytest.raises(ValueError, match=said):
        make(5, 4)(**({"x": x, "edge_index": edge_index, "relation": relation} | change))


@pytest.mark.parametrize("sizes", [(0, 4), (5, 0)])
def test_bad_sizes_are_named(sizes):
    with pytest.raises(ValueError, match="allowed: a positive integer"):
        GeomGCNConv(*sizes)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_model_concatenates_in_hidden_layers_and_averages_in_the_last(num_layers):
    x, edge_index, relation = related_graph(dtype=torch.float32)
    model = make(5, 4, 3, num_layers, dtype=torch.float32, layer=GeomGCN)
    assert str(model) == f"GeomGCN(5, 4, 3, num_layers={num_layers})"
    assert [conv.concat for conv in model.convs] == [True] * (num_layers - 1) + [False]
    model.eval()
    expected = x
    for i, conv in enumerate(model.convs):
        expected = conv(expected, edge_index, relation)
        expected = expected.relu() if i < num_layers - 1 else expected
    assert torch.equal(model(x, edge_index, relation), expected) and expected.shape == (20, 3)


def test_the_model_drops_features_only_in_training_and_takes_norms():
    x, edge_index, relation = related_graph(dtype=torch.float32)
    model = make(-1, 4, 3, dropout=0.5, norm="layer", dtype=torch.float32, layer=GeomGCN)
    assert not torch.equal(model(x, edge_index, relation), model(x, edge_index, relation))
    model.eval()
    assert torch.equal(model(x, edge_index, relation), model(x, edge_index, relation))
    assert len(list(model.norms.parameters())) > 0
