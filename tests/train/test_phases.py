"""Local epochs first, then the global path; the epoch that counts; what the global path attends
to."""

from dataclasses import replace

import pytest
import torch
from small_graphs import small_graph
from switchable import Switchable

from phgcn.nn import MLP
from phgcn.train import Plan, Settings, Training
from phgcn.train.global_path import (
    ATTENTION,
    describe_global_path,
    global_statistics,
    head_medians,
    sample_rows,
    summarise,
)
from phgcn.train.prepare import prepare, seeded

SETTINGS = Settings(epochs=16, learning_rate=0.05, local_epochs=6)
TASK = prepare(Plan("small", model="mlp", splits=1), small_graph())[0]
EVERYTHING = {
    "schedule": "cosine",
    "warmup": 2,
    "edge_dropout": 0.2,
    "node_dropout": 0.1,
    "label_smoothing": 0.1,
    "clip_norm": 1.0,
    "select": "metric",
    "local_epochs": 6,
}


def begun(settings, seed=1):
    torch.manual_seed(seed)
    return Training(Switchable(5, 3), TASK, settings, sample_every=4)


def trained(settings, epochs=None):
    with seeded(1, TASK):
        training = begun(settings)
        while not training.done and training.state.epoch != epochs:
            training.epoch()
    return training


def curves(training):
    return [row[:3] for row in training.state.curves]


# Phases


def test_the_global_path_is_off_in_local_epochs_and_then_on(monkeypatch):
    training, seen = begun(SETTINGS), []
    step = Training._step

    def watched(self):
        seen.append(self.model.use_global)
        return step(self)

    monkeypatch.setattr(Training, "_step", watched)
    while not training.done:
        training.epoch()
    assert seen == [False] * 6 + [True] * 10 and training.state.phase_start == 6
    assert not torch.equal(training.model.gate, torch.zeros(3))


def test_the_second_phase_begins_with_the_best_local_weights_and_a_fresh_optimiser(monkeypatch):
    training = trained(replace(SETTINGS, learning_rate=0.5), epochs=6)
    best, first = training.state.best_weights, training.optimiser
    assert training.best.epoch < 6, "or the last weights would be the best"
    step, seen = Training._step, []

    def watched(self):
        seen.append({name: value.clone() for name, value in self.model.state_dict().items()})
        seen.append(len(self.optimiser.state))
        return step(self)

    monkeypatch.setattr(Training, "_step", watched)
    training.epoch()
    assert all(torch.equal(value, seen[0][name]) for name, value in best.items()) and seen[1] == 0
    assert training.optimiser is not first


def test_a_local_best_epoch_remains_if_the_global_path_does_not_help():
    with seeded(1, TASK):
        training = begun(replace(SETTINGS, local_epochs=40, epochs=45))
        for _ in range(40):
            training.epoch()
        best, weights = training.best, training.state.best_weights
        training.settings = replace(training.settings, learning_rate=1e4)  # ruins the rest
        while not training.done:
            training.epoch()
    assert training.state.epoch == 45 and training.best == best
    training.model.load_state_dict(training.state.best_weights)
    assert all(
        torch.equal(value, weights[name]) for name, value in training.state.best_weights.items()
    )
    training.model.set_global(True)  # as a prediction has it: the gates are 0 still
    on = training._logits()
    training.model.set_global(False)
    assert torch.equal(on, training._logits())


def test_patience_ends_the_local_phase_and_then_the_training():
    training = trained(
        replace(SETTINGS, epochs=200, local_epochs=150, patience=5, learning_rate=0.3)
    )
    local = training.state.phase_start
    assert 5 <= local < 150 and not training.state.global_off
    assert training.state.epoch == max(training.best.epoch, local) + 5 < 200


def test_each_phase_has_its_own_schedule():
    training = begun(replace(SETTINGS, schedule="cosine"))
    rates = []
    while not training.done:
        training.epoch()
        rates.append(training.optimiser.param_groups[0]["lr"])
    assert rates[0] == rates[6] == 0.05 and rates[5] < 0.01 and rates[15] < 0.01


def test_a_training_of_local_epochs_alone_never_switches_on():
    training = trained(replace(SETTINGS, local_epochs=50))
    assert training.state.epoch == 16 and training.state.global_off and not training.state.attention


def test_a_model_without_a_switch_is_refused():
    with pytest.raises(ValueError, match="local_epochs is positive; allowed for MLP: 0"):
        Training(MLP(5, 4, 3), TASK, SETTINGS)


# Checkpoints


@pytest.mark.parametrize("cut", [1, 5, 6, 7, 9])
@pytest.mark.parametrize(
    "settings", [{}, EVERYTHING, {"patience": 3, "local_epochs": 12, "learning_rate": 0.3}]
)
def test_a_training_continues_in_every_phase_bit_for_bit(settings, cut, tmp_path):
    settings = replace(SETTINGS, **settings)
    whole = trained(settings)
    assert not whole.state.global_off
    with seeded(1, TASK):
        first = begun(settings)
        for _ in range(cut):
            first.epoch()
        first.save(tmp_path / "state.safetensors")
    with seeded(99, TASK):
        second = begun(settings, seed=99)
        for _ in range(2):
            second.epoch()
        second.load(tmp_path / "state.safetensors")
        while not second.done:
            second.epoch()
    assert curves(second) == curves(whole) and str(second.state.attention) == str(
        whole.state.attention
    )
    assert (second.best, second.best_by_loss, second.best_by_metric) == (
        whole.best,
        whole.best_by_loss,
        whole.best_by_metric,
    )
    assert second.state.phase_start == whole.state.phase_start
    for name, value in whole.state.best_weights.items():
        assert torch.equal(value, second.state.best_weights[name])
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])


# The epoch that counts


@pytest.mark.parametrize(("select", "wanted"), [("loss", 2), ("metric", 4)])
def test_the_epoch_that_counts_gives_weights_and_result(select, wanted, monkeypatch):
    # validation loss, correct validation nodes
    scores = iter([(3.0, 1), (1.0, 2), (2.0, 5), (1.5, 5), (1.7, 5)])
    run_epoch = Training._step_and_evaluate

    def invented(self):
        logits, _ = run_epoch(self)
        return logits, torch.tensor([1.0, *next(scores)], dtype=torch.float64)

    monkeypatch.setattr(Training, "_step_and_evaluate", invented)
    training, weights = begun(replace(SETTINGS, local_epochs=0, epochs=5, select=select)), []
    while not training.done:
        training.epoch()
        weights.append({name: value.clone() for name, value in training.model.state_dict().items()})
    assert (
        training.best.epoch == wanted
        and training.best_by_loss.epoch == 2
        and training.best_by_metric.epoch == 4
    )
    for name, value in training.state.best_weights.items():
        assert torch.equal(value, weights[wanted - 1][name])
    training.model.load_state_dict(training.state.best_weights)
    hits = training._logits()[TASK.test].argmax(dim=1) == TASK.y[TASK.test]
    assert training.best.test_metric == float(hits.sum()) / len(hits)


def test_patience_counts_from_the_best_metric():
    training = trained(
        replace(
            SETTINGS, local_epochs=0, epochs=500, patience=7, select="metric", learning_rate=0.2
        )
    )
    assert training.state.epoch == training.best_by_metric.epoch + 7 < 500


def test_a_metric_that_is_no_number_leaves_the_choice_to_the_loss():
    one_class = replace(TASK, y=torch.where(TASK.y == 0, 0, 1), metric="roc_auc", classes=2)
    one_class = replace(one_class, val=one_class.val[one_class.y[one_class.val] == 1])
    with seeded(1, TASK):
        training = Training(
            Switchable(5, 2), one_class, replace(SETTINGS, local_epochs=0, select="metric")
        )
        while not training.done:
            training.epoch()
    assert training.best == training.best_by_loss and training.best.epoch > 1


# What the global path attends to


def test_samples_are_taken_every_so_many_epochs_of_the_second_phase():
    training = trained(SETTINGS)
    rows = training.state.attention
    assert sorted({row[0] for row in rows}) == [7, 8, 12, 16] and all(
        len(row) == len(ATTENTION) for row in rows
    )
    gates = [row[ATTENTION.index("gate")] for row in rows]
    assert 0 < gates[0] < gates[-1] and rows[0][:3] == (7, 0, 0) and rows[1][:3] == (7, 0, 1)
    (layer,) = training.global_attention()
    assert layer["layer"] == 0 and layer["effective_nodes"] == [60.0, 30.0]


def test_a_model_without_a_global_path_has_no_statistics():
    assert global_statistics(MLP(5, 4, 3), TASK.inputs) == [] and summarise([[], []], 60) is None
    assert describe_global_path(None, {"parts": "network"}) == "global path: none"
    to_labels = "global path: to the labels of training nodes"
    assert describe_global_path(None, {"labels": True}) == to_labels
    assert describe_global_path(None, {"parts": "both"}) == to_labels


def layer(count, gate=0.2):
    return {
        "layer": 0,
        "decay": [1.0],
        "spread": [0.5],
        "effective_nodes": [count],
        "self_share": [0.1],
        "gate": gate,
    }


def test_medians_are_over_splits_layers_and_heads():
    splits = [[layer(10.0, 0.1)], [layer(20.0, 0.2)], [layer(90.0, 0.9)]]
    assert summarise(splits, 100) == {
        "nodes": 100,
        "effective_nodes": 20.0,
        "self_share": 0.1,
        "gate": 0.2,
    }
    (row,) = head_medians(splits)
    assert (row["layer"], row["head"], row["effective_nodes"], row["gate"]) == (0, 0, 20.0, 0.2)
    assert sample_rows(3, [layer(10.0, None)])[0][-1] == 1.0


@pytest.mark.parametrize(
    ("count", "gate", "said"),
    [
        (
            430.0,
            0.12,
            "global path: gates 0.12, heads attend to 430 of 2,708 nodes (median), 10 % on the "
            "node itself",
        ),
        (
            430.0,
            None,
            "global path: heads attend to 430 of 2,708 nodes (median), 10 % on the node itself",
        ),
        (430.0, 0.001, "10 % on the node itself: hardly used, the gates are closed"),
        (1.4, 0.12, "10 % on the node itself: hardly attention, as each node sees itself"),
        (2600.0, None, "10 % on the node itself: nearly the mean of all nodes"),
    ],
)
def test_one_line_says_whether_the_global_path_is_used(count, gate, said):
    assert describe_global_path(summarise([[layer(count, gate)]], 2708), {}).endswith(said)
