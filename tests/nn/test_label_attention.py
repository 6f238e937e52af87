"""LabelAttention: the labels of other nodes, never the own one."""

import pytest
import torch
import torch.nn.functional as F
from clouds import normal, relative

from phgcn.nn import LabelAttention

EXACT = {"method": "exact", "decay": 2.0}


def make(nodes=40, classes=3, seed=0, **settings):
    torch.manual_seed(seed)
    layer = LabelAttention(5, classes, heads=2, embedding_dim=3, **{**EXACT, **settings}).double()
    with torch.no_grad():
        layer.head_shares.normal_()
    return layer, normal(nodes, 5), torch.arange(nodes) % classes, torch.arange(nodes) % 4 != 0


def mean_labels(layer, x, values, pairs):
    """The formula, for pairs (M, N) that are True where a node may attend to another."""
    positions = layer.lin_position(x).view(-1, 2, 3)
    out = 0
    for head, share in enumerate(F.softmax(layer.head_shares, dim=0)):
        distance = torch.cdist(
            positions[:, head], positions[:, head], compute_mode="donot_use_mm_for_euclid_dist"
        )
        weight = torch.exp(-layer.decay()[head] * distance) * pairs
        out = out + share * (weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-300)) @ values
    return out


def test_keys_give_the_others_the_mean_of_their_labels():
    layer, x, y, labelled = make()
    keys = layer.draw_keys(labelled)
    out = layer(x, y, labelled, keys=keys)
    want = mean_labels(layer, x, F.one_hot(y).double(), keys.expand(40, -1))
    assert relative(out[~keys], want[~keys]) < 1e-12
    assert not bool(out[keys].any())
    torch.testing.assert_close(
        out[~keys].sum(dim=1), torch.ones(int((~keys).sum()), dtype=torch.double)
    )


def test_without_keys_labelled_nodes_attend_to_the_other_half():
    layer, x, y, labelled = make()
    out = layer(x, y, labelled)
    unknown = mean_labels(layer, x, F.one_hot(y).double(), labelled.expand(40, -1))
    assert relative(out[~labelled], unknown[~labelled]) < 1e-12
    halves = labels_that_matter(layer, x, y, labelled)[labelled][:, labelled]
    assert torch.equal(halves, halves.T)
    assert set(halves.sum(dim=1).tolist()) == {15} and int(labelled.sum()) == 30


def labels_that_matter(layer, x, y, labelled, **more):
    """Tells whether the output of node i depends on the label of node j, (N, N)."""
    before, changed = layer(x, y, labelled, **more), []
    for node in range(len(y)):
        other = y.clone()
        other[node] = (y[node] + 1) % 3
        changed.append((layer(x, other, labelled, **more) != before).any(dim=1))
    return torch.stack(changed, dim=1)


@pytest.mark.parametrize("method", ["exact", "lattice"])
def test_no_output_depends_on_the_own_label_or_on_one_that_is_not_known(method):
    layer, x, y, labelled = make(method=method)
    for keys in (None, layer.draw_keys(labelled)):
        matters = labels_that_matter(layer, x, y, labelled, keys=keys)
        assert not bool(matters.diagonal().any())
        assert not bool(matters[:, ~labelled].any())
        assert bool(matters[~labelled].any())


@pytest.mark.parametrize("drawn", [True, False])
def test_a_batch_is_its_graphs_one_by_one(drawn):
    layer, x, y, labelled = make()
    batch = (torch.arange(40) // 5) % 2
    keys = layer.draw_keys(labelled) if drawn else None
    matters = labels_that_matter(layer, x, y, labelled, batch=batch, keys=keys)
    assert not bool(matters[batch.unsqueeze(1) != batch].any())
    if drawn:
        out = layer(x, y, labelled, batch, keys=keys)
        for graph in (0, 1):
            own = batch == graph
            assert relative(out[own], layer(x[own], y[own], labelled[own], keys=keys[own])) < 1e-12


def test_numbers_and_several_labels_give_means():
    layer, x, _, labelled = make(classes=1)
    numbers = normal(40, 1)[:, 0]
    numbers[~labelled] = torch.nan
    keys = layer.draw_keys(labelled)
    out = layer(x, numbers, labelled, keys=keys)
    want = mean_labels(layer, x, numbers.nan_to_num().unsqueeze(1), keys.expand(40, -1))
    assert relative(out[~keys], want[~keys]) < 1e-12
    layer, x, _, labelled = make(classes=3)
    several = (normal(40, 3) > 0).double()
    out = layer(x, several, labelled, keys=keys)
    assert relative(out[~keys], mean_labels(layer, x, several, keys.expand(40, -1))[~keys]) < 1e-12


def test_a_node_without_keys_gets_0():
    layer, x, y, _ = make()
    one = torch.zeros(40, dtype=torch.bool)
    one[7] = True
    out = layer(x, y, one)
    assert torch.equal(out[7], torch.zeros(3).double())
    torch.testing.assert_close(out[0], F.one_hot(y[7], 3).double())


def test_kept_keys_answer_for_another_graph():
    layer, x, y, labelled = make()
    layer.keep_keys(x, y, labelled)
    assert relative(layer(x)[~labelled], layer(x, y, labelled)[~labelled]) < 1e-12
    other, *_ = make(seed=0)
    with pytest.raises(ValueError, match="y is None; allowed: labels, or None after keep_keys"):
        other(x)
    other.set_keys(layer.kept_positions, layer.kept_values)
    assert torch.equal(other(x), layer(x))
    assert set(layer.state_dict()) == {"lin_position.weight", "decay.log", "head_shares"}


def test_learns_which_features_matter_and_draws_a_part_as_keys():
    torch.manual_seed(0)
    x, labelled = normal(300, 6, dtype=torch.float32), torch.arange(300) < 200
    y = (x[:, 0] > 0).long()
    layer = LabelAttention(6, 2)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.03)
    for _ in range(60):
        keys = layer.draw_keys(labelled)
        scored = labelled & ~keys
        optimiser.zero_grad()
        F.nll_loss(
            torch.log(0.99 * layer(x, y, labelled, keys=keys) + 0.005)[scored], y[scored]
        ).backward()
        optimiser.step()
    assert 90 < int(keys.sum()) < 150 and not bool(keys[~labelled].any())
    right = layer(x, y, labelled).argmax(dim=1) == y
    assert (
        float(right[labelled].float().mean()) > 0.9 and float(right[~labelled].float().mean()) > 0.9
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_several_labels_per_node_are_numbers_of_any_type(dtype):
    layer, x, y, labelled = make()
    several = torch.nn.functional.one_hot(y, 3) + torch.nn.functional.one_hot((y + 1) % 3, 3)
    want = layer(x, several.double(), labelled)
    torch.testing.assert_close(layer(x, several.to(dtype), labelled), want)
    torch.testing.assert_close(want.sum(dim=1), torch.full_like(want[:, 0], 2.0))


def test_bad_input_is_named():
    layer, x, y, labelled = make()
    for call, message in [
        (lambda: layer(x, y), "labelled is NoneType; allowed: a mask"),
        (lambda: layer(x, y.view(-1, 1), labelled), "y has 1 columns; allowed: 3"),
        (lambda: layer.set_keys(normal(4, 1, 1), normal(4, 3)), "positions of keys are"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
