r"""The three kinds of task: losses, metrics and predictions against formulas and scikit-learn, and
trainings of each."""

import json
import math
from dataclasses import replace

import pytest
import torch
from sklearn import metrics as sklearn_metrics
from small_graphs import small_graph
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from phgcn.train import TASKS, Plan, Run, Settings, evaluate, find_task
from phgcn.train.metrics import METRICS, goodness, metric
from phgcn.train.prepare import prepare, seeded, start, without_test

RANDOM = torch.Generator().manual_seed(0)
OUT = torch.randn(80, 4, generator=RANDOM)
CLASSES = torch.randint(4, (80,), generator=RANDOM)
SETS = (torch.rand(80, 4, generator=RANDOM) < 0.4).float()
NUMBERS = 100 + 20 * torch.randn(80, generator=RANDOM)
SETTINGS = Settings(hidden_channels=8, heads=1, epochs=60, learning_rate=0.02, dropout=0.0)


def graph_of(task):
    """A small graph whose features tell the labels of a task; the last ten nodes have none."""
    data = small_graph(80)
    if task == "regression":
        data.y = 1000 + 50 * data.x[:, 0] - 20 * data.x[:, 1]
        data.classes = []
    elif task == "multilabel":
        data.y = (data.x[:, :3] > 0).float()
    data.y[-10:] = math.nan if data.y.is_floating_point() else -1
    return data


@pytest.fixture(scope="module", params=list(TASKS))
def trained(request, tmp_path_factory):
    """A finished run of each task, and its graph."""
    data = graph_of(request.param)
    plan = Plan(
        "small",
        "mlp",
        splits=2,
        metric=TASKS[request.param].metrics[0],
        settings=SETTINGS,
        task=request.param,
    )
    run = Run.create(tmp_path_factory.mktemp("task") / request.param, plan, data)
    run.train(data)
    return run, data


def test_metrics_of_classes_are_those_of_scikit_learn():
    chances, best = OUT.softmax(dim=1).numpy(), OUT.argmax(dim=1).numpy()
    wanted = {
        "accuracy": sklearn_metrics.accuracy_score(CLASSES, best),
        "roc_auc": sklearn_metrics.roc_auc_score(CLASSES, chances, multi_class="ovr"),
        "f1": sklearn_metrics.f1_score(CLASSES, best, average="macro"),
    }
    assert TASKS["classification"].scores(OUT, CLASSES) == pytest.approx(wanted)


def test_metrics_of_several_labels_are_those_of_scikit_learn():
    given = (OUT > 0).numpy()
    wanted = {
        "f1_micro": sklearn_metrics.f1_score(SETS, given, average="micro"),
        "f1": sklearn_metrics.f1_score(SETS, given, average="macro"),
        "roc_auc": sklearn_metrics.roc_auc_score(SETS, OUT),
        "accuracy": sklearn_metrics.accuracy_score(SETS, given),
    }
    assert TASKS["multilabel"].scores(OUT, SETS) == pytest.approx(wanted)


def test_metrics_of_numbers_are_those_of_scikit_learn_in_the_units_of_the_labels():
    kind = find_task("regression").fitted(NUMBERS[:50], 0, Settings())
    values = OUT[:, 0] * NUMBERS[:50].std(correction=0) + NUMBERS[:50].mean()
    torch.testing.assert_close(kind.predict(OUT[:, :1]), values)
    wanted = {
        "mae": sklearn_metrics.mean_absolute_error(NUMBERS, values),
        "rmse": sklearn_metrics.mean_squared_error(NUMBERS, values) ** 0.5,
        "r2": sklearn_metrics.r2_score(NUMBERS, values),
    }
    assert kind.scores(OUT[:, :1], NUMBERS) == pytest.approx(wanted, rel=1e-5)


def test_a_class_that_no_node_has_is_left_out_of_the_means():
    found = TASKS["classification"].scores(OUT[:, :3], CLASSES.clamp(max=1))
    assert all(0 < value < 1 for value in found.values())


def test_smaller_errors_are_better_and_no_value_is_the_worst():
    assert goodness("mae", 1.0) > goodness("mae", 2.0) > goodness("mae", math.nan)
    assert goodness("r2", 2.0) > goodness("r2", 1.0) > goodness("r2", math.nan)
    assert [name for name, entry in METRICS.items() if not entry.larger_is_better] == [
        "mae",
        "rmse",
    ]


@pytest.mark.parametrize("name", list(TASKS))
def test_every_metric_of_a_task_is_known(name):
    assert set(TASKS[name].metrics) <= set(METRICS)
    with pytest.raises(ValueError, match="metric is 'speed'; allowed: accuracy"):
        metric("speed", OUT, CLASSES)


# Losses


def test_balanced_weights_count_every_class_alike():
    y = torch.tensor([0] * 6 + [1] * 2)
    kind = find_task("classification").fitted(y, 3, Settings(class_weights="balanced"))
    assert kind.weights.tolist() == pytest.approx([8 / 12, 2.0, 1.0])
    out = torch.randn(8, 3, generator=RANDOM)
    each = cross_entropy(out, y, reduction="none")
    assert kind.loss(out, y) == pytest.approx(float((each[:6].mean() + each[6:].mean()) / 2))


def test_balanced_weights_of_labels_count_having_one_as_much_as_not():
    y = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    kind = find_task("multilabel").fitted(y, 2, Settings(class_weights="balanced"))
    assert kind.weights.tolist() == [3.0, 3.0]
    out = torch.randn(4, 2, generator=RANDOM)
    assert kind.loss(out, y) == binary_cross_entropy_with_logits(
        out, y, pos_weight=torch.tensor([3.0, 3.0])
    )


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        (
            "regression",
            {"class_weights": "balanced"},
            "class_weights is balanced; allowed for regression: none",
        ),
        (
            "regression",
            {"label_smoothing": 0.1},
            "label_smoothing is 0.1; allowed for regression: 0",
        ),
        (
            "multilabel",
            {"label_smoothing": 0.1},
            "label_smoothing is 0.1; allowed for multilabel: 0",
        ),
    ],
)
def test_settings_without_a_use_are_refused(task, settings, said):
    with pytest.raises(ValueError, match=said):
        find_task(task).fitted(graph_of(task).y[:40], 3, Settings(**settings))


@pytest.mark.parametrize(
    ("task", "y", "said"),
    [
        (
            "classification",
            [2, 2, -1],
            "all labels are the same class, which is predicted with 100 %; allowed: two classes",
        ),
        ("classification", [-1, -1, -1], "no node has a label"),
        ("regression", [1.5, 1.5, math.nan], "all labels are the same number"),
        ("multilabel", [[1.0, 0.0], [1.0, 0.0]], "all nodes have the same labels"),
    ],
)
def test_labels_that_teach_nothing_are_refused(task, y, said):
    data = small_graph(6)
    data.y = torch.tensor(y)
    with pytest.raises(ValueError, match=f"small: {said}"):
        prepare(Plan("small", "mlp", metric=TASKS[task].metrics[0], task=task), data)


def test_a_graph_of_another_task_is_refused():
    with pytest.raises(
        ValueError, match="small: task is classification, but the labels are those of regression"
    ):
        prepare(Plan("small", "mlp"), graph_of("regression"))


# Trainings


def test_each_task_learns_what_the_features_tell(trained):
    run, data = trained
    found = evaluate(run, data)
    assert found["as_recorded"] and found["task"] == run.plan.task
    scores = {name: entry["mean"] for name, entry in found["scores"].items()}
    assert (
        scores.get("accuracy", 1) > 0.6 and scores.get("f1", 1) > 0.7 and scores.get("r2", 1) > 0.9
    )
    assert found["test"] == found["scores"][run.plan.metric]


def test_details_are_those_of_the_task(trained):
    run, data = trained
    found = evaluate(run, data)
    keys = {
        "classification": {"confusion", "per_class"},
        "regression": {"errors"},
        "multilabel": {"per_class"},
    }
    assert {"confusion", "per_class", "errors"} & set(found) == keys[run.plan.task]
    json.dumps(found)
    tests = sum(len(task.test) for task in prepare(run.plan, data))
    if run.plan.task == "multilabel":
        nodes = sum(data.y[task.test].sum(dim=0) for task in prepare(run.plan, data))
        assert [row["nodes"] for row in found["per_class"]] == nodes.tolist()
    elif run.plan.task == "classification":
        assert sum(row["nodes"] for row in found["per_class"]) == tests
    else:
        errors = found["errors"]
        assert errors["median"] <= errors["nine of ten below"] <= errors["largest"]


def test_the_scale_of_numbers_is_kept_with_the_weights(trained):
    run, data = trained
    trial = run.plan.trials()[1]
    fresh, task = Run.open(run.folder), prepare(run.plan, data)[1]
    kept = fresh.kind(trial)
    assert {name: value.tolist() for name, value in kept.tensors().items()} == {
        name: value.tolist() for name, value in task.kind.tensors().items()
    }
    if run.plan.task == "regression":
        assert kept.mean == pytest.approx(float(data.y[task.train].mean()), rel=1e-5)


def test_nodes_without_a_label_are_in_no_set(trained):
    run, data = trained
    for task in prepare(run.plan, data):
        assert max(map(max, (task.train.tolist(), task.val.tolist(), task.test.tolist()))) < 70


def test_test_labels_are_hidden_from_a_search(trained):
    run, data = trained
    task = prepare(run.plan, data)[0]
    hidden = without_test(task)
    gone = hidden.y[task.test]
    assert (
        bool((gone.isnan() if gone.is_floating_point() else gone == -1).all())
        and len(hidden.test) == 0
    )
    assert torch.equal(hidden.y[task.train], task.y[task.train])


def test_the_epoch_with_the_smallest_error_counts_if_the_metric_selects():
    plan = Plan(
        "small",
        "mlp",
        splits=1,
        metric="mae",
        task="regression",
        settings=replace(SETTINGS, select="metric"),
    )
    task = prepare(plan, graph_of("regression"))[0]
    with seeded(0, task):
        training = start(plan, task)
        while not training.done:
            training.epoch()
    errors = [row[2] for row in training.state.curves]
    assert training.best.val_metric == min(errors) < errors[0] / 2
