"""Features by which far nodes tell the label, and attention that begins at them."""

from dataclasses import replace

import pytest
import torch

from phgcn.nn import GlobalGNN
from phgcn.reproduce.when.far import FarTask
from phgcn.train import Plan
from phgcn.train.candidates import _MLP, _SIMILAR
from phgcn.train.prepare import prepare, seeded, start
from phgcn.train.settings import Settings
from phgcn.train.similar import find_similar, point_heads

TASKS = [
    FarTask(),
    FarTask(200, distractors=6),
    FarTask(600, distractors=20),
    FarTask(400, classes=0, distractors=4),
    FarTask(400, classes=4, key=3),
]


def task_of(far, seed=0, **settings):
    """The plan and the task of the first split of a far task."""
    data = far.draw(seed)
    metric = "accuracy" if far.classes else "r2"
    settings = replace(Settings(), **{**_MLP, **_SIMILAR, **settings})
    plan = Plan("far", "global-gnn", splits=1, metric=metric, settings=settings, task=data.task)
    return plan, prepare(plan, data)[0]


@pytest.mark.parametrize("far", TASKS, ids=lambda far: far.name)
def test_the_key_is_found_and_what_tells_the_answer(far):
    _, task = task_of(far)
    found = task.similar
    assert set(found.features) <= set(range(far.key)) and len(found.features) >= 3
    said = set(range(far.key, far.key + max(1, far.classes)))
    assert set(found.telling) <= said and found.telling
    assert found.strength > 10 and 0.02 < found.distance < 0.5


def test_nothing_is_found_in_noise_or_among_too_many_features():
    torch.manual_seed(0)
    train, y = torch.arange(100), torch.randn(100, 1)
    assert find_similar(torch.randn(200, 10), y, train) is None
    assert find_similar(torch.randn(200, 65), y, train) is None
    assert find_similar(torch.randn(200, 10), y[:20], train[:20]) is None


def test_what_own_features_tell_does_not_count():
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    assert find_similar(x, x[:200, :1] + x[:200, 1:2], torch.arange(200)) is None


@pytest.mark.parametrize("far", TASKS[1:4], ids=lambda far: far.name)
def test_attention_to_the_inputs_finds_the_answer(far):
    plan, task = task_of(far)
    with seeded(0, task):
        training = start(plan, task)
        for _ in range(60):
            training.epoch()
    assert training.best_by_metric.test_metric > 0.85


def test_features_that_were_not_found_are_never_read():
    plan, task = task_of(FarTask(200, distractors=3))
    with seeded(0, task):
        training = start(plan, task)
        for _ in range(5):
            training.epoch()
    block = training.model.global_blocks[0]
    assert not bool(block.lin_position.weight[:, 4:].any()) and not bool(block.lin_value.weight[:, :4].any())
    assert bool(block.lin_position.weight[:, :4].any(dim=0).sum() >= 3) and bool(block.lin_value.weight[:, 4:6].any())


def test_where_nothing_is_found_the_gates_are_closed():
    far = FarTask(200, noise=10.0)
    plan, task = task_of(far)
    assert task.similar is None
    with seeded(0, task):
        assert not bool(start(plan, task).model.global_blocks[0].gate.any())


def test_more_features_than_dimensions_keep_their_distances_roughly():
    torch.manual_seed(0)
    far = FarTask(600, key=6, noise=0.3)
    _, task = task_of(far)
    model = GlobalGNN(task.x.size(1), 16, 2, global_layers=1, global_at="input")
    point_heads(model.global_blocks[0], task.x, task.similar)
    assert len(task.similar.features) > 4
    rows = model.global_blocks[0].lin_position.weight.view(4, 4, -1)[:, :, :6] * task.x[:, :6].std(dim=0)
    torch.testing.assert_close(rows @ rows.transpose(1, 2), torch.eye(4).expand(4, -1, -1))
