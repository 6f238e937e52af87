import pytest
import torch
from clouds import normal
from graphs import make, random_graph

from phgcn.nn import top_attention as module


def _weights(conv, x, batch=None):
    """The whole matrix of global attention weights of each head, (N, heads, N)."""
    positions, _ = conv.project(x)
    decay = conv.decay_global()
    scaled = positions * (decay.view(-1, 1) if isinstance(decay, torch.Tensor) else decay)
    score = -torch.stack(
        [torch.cdist(p, p, compute_mode="donot_use_mm_for_euclid_dist") for p in scaled.unbind(1)],
        dim=1,
    )
    if batch is not None:
        score = score.masked_fill((batch.unsqueeze(1) != batch).unsqueeze(1), -torch.inf)
    return score.softmax(dim=-1)


@pytest.mark.parametrize("pairs", [1, 50, 2**20])
@pytest.mark.parametrize("batch", [None, torch.arange(40) % 2], ids=["one graph", "two graphs"])
@pytest.mark.parametrize("learn_decay", [False, True])
def test_the_strongest_targets_have_their_exact_weights(monkeypatch, pairs, batch, learn_decay):
    monkeypatch.setattr(module, "PAIRS", pairs)
    x, edge_index = random_graph(40, 80)
    conv = make("PHGCNConv", 5, 4, heads=3, decay_global=2.0, learn_decay=learn_decay)
    targets, weights = conv.top_attention(x, edge_index, k=5, batch=batch)
    want = _weights(conv, x, batch).topk(5, dim=-1)
    assert targets.shape == weights.shape == (40, 3, 5)
    assert torch.equal(targets, want.indices)
    assert torch.allclose(weights, want.values, rtol=1e-12)
    # nothing is nearer to a node than itself
    assert bool((targets[:, :, 0] == torch.arange(40).unsqueeze(1)).all())


def test_the_weights_are_those_that_the_layer_averages_with():
    x, edge_index = random_graph(40, 80)
    conv = make("PHGCNConv", 5, 4, heads=2, act=None, bias=False, method="exact")
    targets, weights = conv.top_attention(x, edge_index, k=40)
    values = conv.lin(x).view(40, 2, 4)
    gathered = torch.stack(
        [(weights[:, h].unsqueeze(-1) * values[targets[:, h], h]).sum(dim=1) for h in range(2)],
        dim=1,
    )
    assert torch.allclose(gathered.flatten(1), conv(x, edge_index)[:, 8:], rtol=1e-10)


def test_only_the_nodes_asked_for():
    x, edge_index = random_graph(40, 80)
    conv, nodes = make("PHGCNConv", 5, 4, heads=2), torch.tensor([7, 3, 7])
    every = conv.top_attention(x, edge_index, k=4)
    some = conv.top_attention(x, edge_index, k=4, nodes=nodes)
    assert all(torch.equal(a[nodes], b) for a, b in zip(every, some, strict=True))
    targets, weights = conv.top_attention(x, edge_index, nodes=torch.empty(0, dtype=torch.int64))
    assert targets.shape == weights.shape == (0, 2, 10)


def test_beyond_the_last_node_of_a_graph_there_is_nothing():
    x, batch = normal(8, 5), torch.tensor([0, 1, 0, 1, 1, 1, 1, 1])
    targets, weights = make("PHGCNConv", 5, 4).top_attention(x, k=10, batch=batch)
    assert bool((targets[0, 0, :2] >= 0).all()) and bool((targets[0, 0, 2:] == -1).all())
    assert bool((weights[0, 0, 2:] == 0).all())
    assert torch.allclose(weights.sum(dim=-1), torch.ones(8, 1, dtype=torch.float64))


def test_no_matrix_of_all_pairs_is_formed():
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes())
            return out

    nodes = 20_000
    x = normal(nodes, 5, dtype=torch.float32)
    conv = make("PHGCNConv", 5, 4, dtype=torch.float32)
    with Watch():
        conv.top_attention(x, nodes=torch.arange(300))
    assert largest < 4 * 300 * nodes  # not even one row per node asked for


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"k": 0}, "k is 0; allowed: a positive integer"),
        ({"nodes": torch.tensor([0, 20])}, "nodes has 20; allowed: 0 to 19"),
        ({"nodes": torch.tensor([0.5])}, "nodes is torch.float32"),
        ({"batch": torch.zeros(3, dtype=torch.int64)}, r"batch has shape \(3,\); allowed: \(20,\)"),
    ],
)
def test_bad_input_is_refused(settings, message):
    x, edge_index = random_graph()
    with pytest.raises(ValueError, match=message):
        make("PHGCNConv", 5, 4).top_attention(x, edge_index, **settings)
