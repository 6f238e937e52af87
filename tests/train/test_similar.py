"""Features by which far nodes tell the label, and attention that begins at them."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from phgcn.nn import GlobalGNN
from phgcn.train import Plan
from phgcn.train.candidates import _MLP, _SIMILAR
from phgcn.train.prepare import prepare, seeded, start
from phgcn.train.settings import Settings
from phgcn.train.similar import find_similar, point_heads
from phgcn_lab.when.far import FarTask

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
    assert find_similar(torch.randn(200, 129), y, train) is None
    assert find_similar(torch.randn(200, 10), y[:20], train[:20]) is None


def test_labels_of_validation_and_test_nodes_change_no_output():
    data, outputs = FarTask(200, distractors=4).draw(0), []
    part = torch.arange(200) % 5
    masks = {"train": part < 3, "val": part == 3, "test": part == 4}
    for name, mask in masks.items():
        data[f"{name}_mask"] = mask.unsqueeze(1)
    settings = replace(Settings(), **{**_MLP, **_SIMILAR, "labels": True})
    plan = Plan("far", "global-gnn", protocol="official", splits=1, settings=settings)
    for changed in ("train", "val", "test", "none"):
        other = data.clone()
        flipped = masks.get(changed, part < 0) & (data.y >= 0)  # some nodes have no label
        other.y = torch.where(flipped, 1 - data.y, data.y)
        task = prepare(plan, other)[0]
        assert task.similar is not None
        with seeded(0, task):
            training = start(plan, task)
            for _ in range(3):
                training.epoch()
        outputs.append(training._logits())
    train, *rest = outputs
    assert torch.equal(rest[0], rest[2]) and torch.equal(rest[1], rest[2])
    assert not torch.allclose(train, rest[2])


def test_the_label_of_a_similar_node_is_found_and_attended_to():
    torch.manual_seed(0)
    melody = torch.randn(60, 3).repeat(5, 1)
    x = torch.cat([melody + 0.02 * torch.randn(300, 3), torch.randn(300, 5)], dim=1)
    y, train = torch.randint(3, (60,)).repeat(5), torch.randperm(300)[:180]
    found = find_similar(x, one_hot(y[train], 3).float(), train)
    assert found.features == (0, 1, 2) and found.telling == () and found.labels
    model = GlobalGNN(8, 16, 3, local="none", global_at="input", labels=True)
    point_heads(model.label_path.attentions[0], found)
    labelled = torch.zeros(300, dtype=torch.bool).index_fill(0, train, True)
    shares = model.label_path.attentions[0](x, y, labelled)
    assert float((shares.argmax(dim=1) == y)[~labelled].float().mean()) > 0.9


def test_keys_of_bits_are_found_though_no_single_bit_tells():
    torch.manual_seed(0)
    bits, answer = torch.randint(2, (200, 12)).float(), torch.randint(2, (200,))
    said = torch.cat([answer.float() - 0.5, torch.zeros(200)]).unsqueeze(1)
    x = torch.cat([bits.repeat(2, 1), said, torch.randint(2, (400, 4)).float()], dim=1)
    found = find_similar(x, one_hot(answer).float(), torch.arange(200, 400))
    assert len(set(found.features) & set(range(12))) >= 10 and len(found.features) <= 12
    assert found.telling == (12,)


def test_limits_that_the_documents_name():
    torch.manual_seed(0)
    key, answers = torch.randn(200, 4), torch.randint(2, (200, 2))
    keys = torch.cat([key, key + 0.05 * torch.randn(200, 4)])
    x = torch.cat([keys, torch.cat([answers - 0.5, torch.zeros(200, 2)])], dim=1)
    exclusive = one_hot(answers[:, 0] ^ answers[:, 1]).float()
    assert find_similar(x, exclusive, torch.arange(200, 400)) is None
    found = []
    for noise in (0.005, 0.05):
        data = FarTask(400, key=1, distractors=3, noise=noise).draw(0)
        train = (data.y >= 0).nonzero().flatten()
        found.append(find_similar(data.x, one_hot(data.y[train]).float(), train))
    assert found[0].features == (0,) and found[1] is None


def test_a_number_of_the_similar_node_is_found_whose_size_tells():
    far = FarTask(600, classes=0, distractors=3)
    data = far.draw(0)
    train = (~data.y.isnan()).nonzero().flatten()
    found = find_similar(data.x, (data.y[train].abs() > 0.67).float().unsqueeze(1), train)
    assert found.features == (0, 1, 2, 3) and found.telling == (4,)


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
    assert not bool(block.lin_position.weight[:, 4:].any()) and not bool(
        block.lin_value.weight[:, :4].any()
    )
    assert bool(block.lin_position.weight[:, :4].any(dim=0).sum() >= 3) and bool(
        block.lin_value.weight[:, 4:6].any()
    )


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
    point_heads(model.global_blocks[0], task.similar)
    assert len(task.similar.features) > 4
    rows = model.global_blocks[0].lin_position.weight.view(4, 4, -1)[:, :, :6] * task.x[:, :6].std(
        dim=0
    )
    torch.testing.assert_close(rows @ rows.transpose(1, 2), torch.eye(4).expand(4, -1, -1))
