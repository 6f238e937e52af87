"""What is told of global attention, against clouds whose attention is known."""

import math
import sys

import pytest
import torch
from clouds import normal
from graphs import random_graph

from phgcn.nn import PHGCN, GlobalGNN, attention_statistics, top_attention

# by import, the function of the same name would be found
MODULE = sys.modules["phgcn.nn.attention_statistics"]


def dense(points, decay, batch):
    """Effective nodes and own shares of all nodes, from the whole matrix."""
    score = -decay * torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    weight = score.masked_fill(batch.unsqueeze(1) != batch, -torch.inf).softmax(dim=1)
    entropy = -(weight * weight.clamp_min(1e-300).log()).sum(dim=1)
    return entropy.exp(), weight.diagonal()


def test_every_number_is_that_of_the_whole_matrix():
    positions, batch, decay = normal(31, 3, 2), torch.arange(31) % 3, torch.tensor([0.5, 1.0, 4.0])
    statistics = attention_statistics(positions, decay, batch=batch)
    assert list(statistics) == ["decay", "distance", "spread", "effective_nodes", "self_share"]
    assert statistics["decay"] == [0.5, 1.0, 4.0]
    for head in range(3):
        points = positions[:, head]
        mean = torch.stack([points[batch == graph].mean(dim=0) for graph in range(3)])[batch]
        distance = float((points - mean).square().sum(dim=1).mean().sqrt())
        effective, share = dense(points, float(decay[head]), batch)
        assert math.isclose(statistics["distance"][head], distance, rel_tol=1e-12)
        assert math.isclose(
            statistics["spread"][head], distance * float(decay[head]), rel_tol=1e-12
        )
        assert math.isclose(
            statistics["effective_nodes"][head], float(effective.median()), rel_tol=1e-12
        )
        assert math.isclose(statistics["self_share"][head], float(share.median()), rel_tol=1e-12)


def test_attention_to_others_only_is_that_of_the_matrix_without_its_diagonal():
    positions = normal(31, 1, 2)
    score = -2.0 * torch.cdist(positions[:, 0], positions[:, 0])
    weight = score.fill_diagonal_(-torch.inf).softmax(dim=1)
    effective = torch.special.entr(weight).sum(dim=1).exp()
    found = attention_statistics(positions, 2.0, itself=False)
    assert found["effective_nodes"] == pytest.approx([float(effective.median())])
    assert found["self_share"] == [0.0]


def test_the_mean_and_the_identity_are_told_from_attention():
    together, apart = torch.zeros(100, 1, 4), 1e3 * torch.arange(100.0).reshape(-1, 1, 1)
    mean, identity = attention_statistics(together, 1.0), attention_statistics(apart, 1.0)
    assert mean["effective_nodes"] == pytest.approx([100]) and mean["self_share"] == pytest.approx(
        [0.01]
    )
    assert mean["spread"] == [0.0]
    assert identity["effective_nodes"] == pytest.approx([1]) and identity[
        "self_share"
    ] == pytest.approx([1])


def test_a_batch_of_equal_graphs_is_one_of_them():
    positions = normal(20, 2, 3)
    alone = attention_statistics(positions, 2.0)
    batch = torch.arange(60) // 20
    together = attention_statistics(positions.repeat(3, 1, 1), 2.0, batch=batch)
    for key, values in alone.items():
        assert together[key] == pytest.approx(values, rel=1e-12)


def test_samples_depend_on_the_seed_and_on_nothing_else():
    positions = normal(500, 2, 3)
    torch.manual_seed(0)
    first = attention_statistics(positions, 1.0, samples=20)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert attention_statistics(positions, 1.0, samples=20) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert attention_statistics(positions, 1.0, samples=20, seed=1) != first
    everything = attention_statistics(positions, 1.0, samples=500)
    assert first["effective_nodes"] == pytest.approx(everything["effective_nodes"], rel=0.2)


def test_memory_is_bounded_and_parts_change_nothing(monkeypatch):
    positions, batch = normal(300, 2, 3), torch.arange(300) % 2
    want = attention_statistics(positions, 1.0, batch=batch)
    sizes, exponents = [], MODULE.exponents

    def measured(*given):
        sizes.append(exponents(*given).numel())
        return exponents(*given)

    monkeypatch.setattr(top_attention, "PAIRS", 3000)
    monkeypatch.setattr(MODULE, "exponents", measured)
    found = attention_statistics(positions, 1.0, batch=batch)
    assert max(sizes) <= 3000 and len(sizes) == 60
    for key, values in want.items():
        assert found[key] == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"samples": 0}, "samples is 0"),
        ({"decay": -1.0}, "decay is -1.0"),
        ({"batch": torch.zeros(3)}, "batch is torch.float32"),
    ],
)
def test_bad_arguments_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=f"{message}; allowed: "):
        attention_statistics(**{"positions": normal(5, 1, 2), "decay": 1.0, **settings})


# Models


@pytest.mark.parametrize("at", ["top", "each"])
@pytest.mark.parametrize("training", [False, True])
def test_a_global_gnn_describes_each_block(at, training):
    x, edge_index = random_graph(dtype=torch.float32)
    batch = torch.arange(20) % 2
    torch.manual_seed(0)
    model = GlobalGNN(5, 8, 3, 3, global_layers=2, global_at=at, heads=2).train(training)
    torch.nn.init.constant_(model.global_blocks[1].gate, 0.5)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = model.global_statistics(x, edge_index, batch)
    assert [block["layer"] for block in found] == list(range(3 if at == "each" else 2))
    assert [block["gate"] for block in found][:2] == [0.0, 0.5]
    assert model.training is training
    # norms have seen nothing
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    inputs = []
    hook = model.global_blocks[1].lin_position.register_forward_hook(
        lambda *given: inputs.append(given[2].view(-1, 2, 4))
    )
    model.eval()(x, edge_index, batch)
    hook.remove()
    want = attention_statistics(inputs[0], model.global_blocks[1].decay(), batch=batch)
    assert {key: found[1][key] for key in want} == want


def test_a_phgcn_describes_each_layer():
    x, edge_index = random_graph(dtype=torch.float32)
    torch.manual_seed(0)
    model = PHGCN(5, 4, 3, num_layers=2, heads=2, decay_global=3.0)
    found = model.global_statistics(x, edge_index)
    assert (
        [layer["layer"] for layer in found] == [0, 1] and "gate" not in found[0] and model.training
    )
    positions, _ = model.convs[0].project(x)
    want = attention_statistics(positions, 3.0)
    assert {key: found[0][key] for key in want} == want
