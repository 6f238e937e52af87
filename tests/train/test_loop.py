import math
from dataclasses import replace

import pytest
import torch
from small_graphs import small_graph

import phgcn_lab  # noqa: F401, registers Geom-GCN
from phgcn.train import Plan, Settings, TrainingError
from phgcn.train.prepare import prepare, seeded, start

SETTINGS = Settings(hidden_channels=4, heads=2, epochs=12, learning_rate=0.02)
PLAN = Plan("small", model="phgcn", splits=1, settings=SETTINGS)


def trained(plan, task, epochs=None):
    with seeded(1, task):
        training = start(plan, task)
        while not training.done and training.state.epoch != epochs:
            training.epoch()
    return training


def save_after_five_epochs(plan, task, path):
    with seeded(1, task):
        training = start(plan, task)
        for _ in range(5):
            training.epoch()
        training.save(path)


def curves(training):
    return [row[:3] for row in training.state.curves]


def test_training_lowers_the_loss():
    losses = [
        row[0]
        for row in curves(
            trained(
                replace(PLAN, settings=replace(SETTINGS, epochs=60)),
                prepare(PLAN, small_graph())[0],
            )
        )
    ]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_best_epochs_have_the_smallest_loss_and_the_best_metric():
    training = trained(
        replace(PLAN, settings=replace(SETTINGS, epochs=40)), prepare(PLAN, small_graph())[0]
    )
    rows = curves(training)
    assert training.best.epoch == 1 + min(range(len(rows)), key=lambda i: rows[i][1])
    assert training.best_by_metric.epoch == 1 + max(
        range(len(rows)), key=lambda i: (rows[i][2], -rows[i][1])
    )


def test_the_best_weights_give_the_metrics_of_the_best_epoch():
    task = prepare(PLAN, small_graph())[0]
    training = trained(PLAN, task)
    training.model.load_state_dict(training.state.best_weights)
    logits = training._logits()
    hits = logits[task.test].argmax(dim=1) == task.y[task.test]
    assert training.best.test_metric == float(hits.sum()) / len(hits)
    loss = float(torch.nn.functional.cross_entropy(logits[task.val], task.y[task.val]))
    assert training.best.val_loss == loss


def test_patience_stops_the_training():
    plan = replace(PLAN, settings=replace(SETTINGS, epochs=500, patience=3, learning_rate=0.2))
    training = trained(plan, prepare(plan, small_graph())[0])
    assert training.state.epoch == training.best.epoch + 3 < 500


def test_labels_of_test_nodes_change_nothing_but_the_test_metric():
    task = prepare(PLAN, small_graph())[0]
    y = task.y.clone()
    y[task.test] = (y[task.test] + 1) % 3
    one, other = trained(PLAN, task), trained(PLAN, replace(task, y=y))
    assert curves(one) == curves(other)
    assert all(
        torch.equal(value, other.state.best_weights[name])
        for name, value in one.state.best_weights.items()
    )
    assert one.best.test_metric != other.best.test_metric


@pytest.mark.parametrize("model", ["phgcn", "gat-eda", "gat", "gcn", "mlp", "global-gnn"])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_training_continues_from_its_checkpoint_bit_for_bit(model, norm, tmp_path):
    attention = {} if model in ("gcn", "mlp", "global-gnn") else {"attention_dropout": 0.3}
    if model == "global-gnn":
        attention = {
            "global_layers": 1,
            "global_dropout": 0.3,
            "local_epochs": 3,
            "edge_dropout": 0.2,
            "node_dropout": 0.2,
        }
    plan = replace(PLAN, model=model, settings=replace(SETTINGS, norm=norm, **attention))
    task = prepare(plan, small_graph())[0]
    whole = trained(plan, task)
    save_after_five_epochs(plan, task, tmp_path / "state.safetensors")
    with seeded(99, task):  # weights and random numbers must come from the file
        second = start(plan, task)
        second.load(tmp_path / "state.safetensors")
        while not second.done:
            second.epoch()
    assert curves(second) == curves(whole)
    assert (second.best, second.best_by_metric) == (whole.best, whole.best_by_metric)
    for name, value in whole.state.best_weights.items():
        assert torch.equal(value, second.state.best_weights[name])


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    task = prepare(PLAN, small_graph())[0]
    trained(PLAN, task, epochs=1).save(tmp_path / "state.safetensors")
    wider = replace(PLAN, settings=replace(SETTINGS, heads=3))
    with pytest.raises(ValueError, match="not a checkpoint of this training"):
        start(wider, task).load(tmp_path / "state.safetensors")
    (tmp_path / "cut").write_bytes((tmp_path / "state.safetensors").read_bytes()[:1000])
    with pytest.raises(ValueError, match="not a file of weights"):
        start(PLAN, task).load(tmp_path / "cut")


@pytest.mark.parametrize("model", ["phgcn", "mlp"])
def test_a_loss_that_is_no_number_is_said(model):
    plan = replace(PLAN, model=model, settings=replace(SETTINGS, learning_rate=1e30))
    with pytest.raises(
        TrainingError, match=r"no finite loss in epoch [0-9]+ \(.*\); try a smaller learning_rate"
    ):
        trained(plan, prepare(plan, small_graph())[0])


def test_roc_auc_is_followed_where_asked_for():
    plan = replace(PLAN, metric="roc_auc", model="mlp")
    training = trained(plan, prepare(plan, small_graph(classes=2))[0])
    assert all(0 <= row[2] <= 1 for row in curves(training))
    assert not math.isnan(training.best.test_metric)


def test_random_numbers_outside_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained(PLAN, prepare(PLAN, small_graph())[0], epochs=1)
    assert torch.equal(torch.rand(3), expected)


# On a GPU


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ON_GPU = replace(PLAN, device="cuda" if torch.cuda.is_available() else "cpu")


def on_gpu_plan(model, **settings):
    more = {} if model in ("gcn", "mlp", "geom-gcn-i", "global-gnn") else {"attention_dropout": 0.3}
    if model == "global-gnn":
        more["global_layers"] = 1
    if model in ("phgcn", "gat-eda", "global-gnn"):
        more["learn_decay"] = True
    return replace(ON_GPU, model=model, settings=replace(SETTINGS, **more, **settings))


RECIPE = {
    "local_epochs": 5,
    "schedule": "cosine",
    "warmup": 2,
    "clip_norm": 0.5,
    "node_dropout": 0.2,
    "label_smoothing": 0.1,
    "select": "metric",
    "epochs": 14,
}


@on_gpu
@pytest.mark.parametrize("model", ["global-gnn", "phgcn", "mlp"])
def test_bfloat16_learns_as_float32_does(model):
    plan = on_gpu_plan(model, norm="batch", dropout=0.0, epochs=30)
    # what is dropped depends on the type
    plan = replace(plan, settings=replace(plan.settings, attention_dropout=0.0))
    half, full = (
        trained(amp, prepare(amp, small_graph())[0])
        for amp in (replace(plan, settings=replace(plan.settings, amp=on)) for on in (True, False))
    )
    assert half._logits().dtype == torch.float32
    losses, expected = ([row[0] for row in curves(training)] for training in (half, full))
    assert losses != expected
    assert losses[:5] == pytest.approx(expected[:5], rel=0.05)
    assert losses[-1] == pytest.approx(expected[-1], abs=0.1 * expected[0])


@on_gpu
@pytest.mark.parametrize("model", ["phgcn", "gat-eda", "mlp"])
def test_a_training_on_a_gpu_continues_from_its_checkpoint_bit_for_bit(model, tmp_path):
    plan = on_gpu_plan(model, norm="batch")
    task = prepare(plan, small_graph())[0]
    whole = trained(plan, task)
    save_after_five_epochs(plan, task, tmp_path / "state.safetensors")
    with seeded(99, task):
        second = start(plan, task)
        for _ in range(3):  # an optimiser's state that is replaced
            second.epoch()
        second.load(tmp_path / "state.safetensors")
        while not second.done:
            second.epoch()
    assert curves(second) == curves(whole)
    assert all(
        torch.equal(value, second.state.best_weights[name])
        for name, value in whole.state.best_weights.items()
    )


@on_gpu
def test_a_training_on_a_gpu_learns_as_one_on_the_cpu():
    plan = on_gpu_plan("phgcn", dropout=0.0, epochs=30)
    plan = replace(plan, settings=replace(plan.settings, attention_dropout=0.0))
    on_cpu = replace(plan, device="cpu")
    a, b = (trained(p, prepare(p, small_graph())[0]) for p in (plan, on_cpu))
    for left, right in zip(curves(a), curves(b), strict=True):
        assert left[:2] == pytest.approx(right[:2], rel=1e-3)


@on_gpu
def test_a_loss_on_a_gpu_that_is_no_number_is_said():
    plan = on_gpu_plan("phgcn", learning_rate=1e30)
    with pytest.raises(
        TrainingError, match=r"no finite loss in epoch [0-9]+ \(.*\); try a smaller learning_rate"
    ):
        trained(plan, prepare(plan, small_graph())[0])


@on_gpu
def test_sparse_features_are_dense_on_a_gpu():
    data = small_graph()
    data.x = data.x.to_sparse_csr()
    task = prepare(on_gpu_plan("phgcn"), data)[0]
    assert task.x.layout == torch.strided
    assert torch.equal(task.x.cpu(), data.x.to_dense())
