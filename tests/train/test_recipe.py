import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from small_graphs import small_graph
from switchable import Switchable

from phgcn.nn import PHGCN
from phgcn.train import Plan, Settings, Training
from phgcn.train.prepare import prepare, seeded
from phgcn.train.recipe import (
    check_amp,
    drop_inputs,
    drop_nodes,
    learning_rate,
    make_optimiser,
    parameter_groups,
)

SETTINGS = Settings(hidden_channels=4, heads=2, epochs=12, learning_rate=0.02)
TASK = prepare(Plan("small", model="mlp", splits=1, settings=SETTINGS), small_graph())[0]


def begun(**settings):
    with seeded(1, TASK):
        return Training(Switchable(5, 3), TASK, replace(SETTINGS, **settings))


# Learning rate


def test_a_constant_rate_is_that_of_every_epoch():
    assert [learning_rate(SETTINGS, epoch, 12) for epoch in range(12)] == [0.02] * 12


def test_the_warm_up_is_linear_and_reaches_the_rate():
    rates = [learning_rate(replace(SETTINGS, warmup=4), epoch, 12) for epoch in range(6)]
    assert rates == pytest.approx([0.005, 0.01, 0.015, 0.02, 0.02, 0.02])


def test_the_cosine_falls_from_the_rate_after_the_warm_up_to_nearly_nothing():
    rates = [
        learning_rate(replace(SETTINGS, warmup=2, schedule="cosine"), epoch, 12)
        for epoch in range(12)
    ]
    assert rates[:3] == pytest.approx([0.01, 0.02, 0.02]) and rates[7] == pytest.approx(0.01)
    assert rates[11] == pytest.approx(0.01 * (1 + math.cos(0.9 * math.pi)))
    assert all(after < before for before, after in pairwise(rates[2:]))


def test_each_epoch_is_stepped_with_its_rate(monkeypatch):
    training, rates = begun(warmup=3, schedule="cosine", epochs=6), []
    step = Training._step

    def watched(self):
        rates.append({group["lr"] for group in self.optimiser.param_groups})
        return step(self)

    monkeypatch.setattr(Training, "_step", watched)
    while not training.done:
        training.epoch()
    assert rates == [{learning_rate(training.settings, epoch, 6)} for epoch in range(6)]


# Weight decay


def test_weight_decay_is_kept_off_what_the_model_names():
    model = Switchable(5, 3)
    decayed, rest = parameter_groups(model, 0.1)
    assert rest["params"] == [model.gate] and (decayed["weight_decay"], rest["weight_decay"]) == (
        0.1,
        0.0,
    )
    assert len(decayed["params"]) == len(list(model.parameters())) - 1
    model.gate.data.fill_(1.0)
    optimiser = make_optimiser(model, replace(SETTINGS, weight_decay=0.1))
    before = model.own.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    assert bool((model.gate == 1).all()) and not torch.equal(model.own.weight, before)


def test_a_model_that_names_none_has_one_group():
    (group,) = parameter_groups(PHGCN(5, 4, 3, heads=2), 0.1)
    assert group["weight_decay"] == 0.1


# The input of a step


@pytest.mark.parametrize("sparse", [False, True])
def test_dropped_nodes_lose_all_features_and_the_others_grow(sparse):
    x = torch.rand(400, 3) + 1
    with seeded(3, TASK):
        dropped = drop_nodes(x.to_sparse_csr() if sparse else x, 0.25)
    dropped = dropped.to_dense() if sparse else dropped
    kept = dropped[:, 0] != 0
    assert 0.65 < float(kept.double().mean()) < 0.85
    torch.testing.assert_close(dropped, torch.where(kept[:, None], x / 0.75, 0.0))


def test_dropped_edges_take_their_inputs_with_them():
    edges = torch.arange(2000).reshape(2, 1000)
    per_edge, other = torch.arange(1000), torch.arange(7)
    with seeded(3, TASK):
        x, left, values, same = drop_inputs(
            (TASK.x, edges, per_edge, other), replace(SETTINGS, edge_dropout=0.3)
        )
    assert x is TASK.x and same is other and 620 < left.size(1) < 780
    assert torch.equal(left[0], values) and torch.equal(left[1], values + 1000)


def test_dropped_edges_take_their_weights_with_them():
    task = replace(TASK, edge_values={"edge_weight": torch.arange(TASK.edge_index.size(1)).float()})
    training = Training(Switchable(5, 3), task, replace(SETTINGS, edge_dropout=0.5))
    (_, edges), values = training._dropped_inputs()
    kept = values["edge_weight"].long()
    assert 0 < len(kept) < TASK.edge_index.size(1) and torch.equal(TASK.edge_index[:, kept], edges)


def test_nothing_is_dropped_by_default_and_no_random_number_is_drawn():
    before = torch.get_rng_state()
    assert all(a is b for a, b in zip(drop_inputs(TASK.inputs, SETTINGS), TASK.inputs, strict=True))
    assert torch.equal(before, torch.get_rng_state())


def test_edges_are_dropped_anew_in_each_step_and_never_in_evaluation():
    training = begun(edge_dropout=0.5)
    with seeded(2, TASK):
        for _ in range(4):
            training.epoch()
    whole, seen = TASK.edge_index.size(1), training.model.seen_edges
    assert (
        seen[1::2] == [whole] * 4
        and all(count < 0.8 * whole for count in seen[::2])
        and len(set(seen[::2])) > 1
    )


# Loss and gradients


def test_labels_are_smoothed_in_training_and_not_in_validation():
    plain, smooth = begun(), begun(label_smoothing=0.4)
    for training in (plain, smooth):
        with seeded(2, TASK):
            # the same dropout as in the step
            logits = training._forward(TASK.inputs, TASK.edge_values)[TASK.train].detach()
        with seeded(2, TASK):
            row = training.epoch()
        log_p = logits.log_softmax(dim=1)
        share = training.settings.label_smoothing
        wanted = (
            -(1 - share) * log_p.gather(1, TASK.y[TASK.train][:, None]).mean()
            - share * log_p.mean()
        )
        assert row[0] == pytest.approx(float(wanted), rel=1e-5)
        val = training._logits()[TASK.val]
        assert row[1] == pytest.approx(
            float(torch.nn.functional.cross_entropy(val, TASK.y[TASK.val]))
        )


def test_gradients_are_clipped_to_the_norm():
    def gradient_norm(training):
        training._step()
        return float(
            torch.stack(
                [p.grad.norm() for p in training.model.parameters() if p.grad is not None]
            ).norm()
        )

    assert gradient_norm(begun()) > 0.1
    assert gradient_norm(begun(clip_norm=0.01)) == pytest.approx(0.01, rel=1e-3)


def test_bfloat16_needs_a_gpu():
    with pytest.raises(ValueError, match="amp is true on the device cpu; allowed: false, or a GPU"):
        Plan("small", settings=replace(SETTINGS, amp=True))
    check_amp(SETTINGS, "cpu")
    check_amp(replace(SETTINGS, amp=True), "cuda:1")
