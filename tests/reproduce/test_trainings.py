"""Models on splits: jobs, resuming, the report; and what phgcn reproduce tables and city train."""

import json

import numpy as np
import pytest
import torch

from phgcn.reproduce import trainings_report
from phgcn.reproduce.city import models as city_models
from phgcn.reproduce.city import run as city
from phgcn.reproduce.tables import run as tables
from phgcn.reproduce.tables.data import load_table, with_split
from phgcn.reproduce.tables.models import arrays, nearest, our_task
from phgcn.reproduce.trainings import run
from phgcn.train.loop import Task


def test_what_is_done_is_kept_and_the_rest_is_trained(tmp_path):
    jobs = tables.tasks(("map",), ("mean", "nearest", "network"), 2, 2)
    content = run(tables.EXPERIMENT, tmp_path, jobs)
    assert not content["failures"] and len(content["trainings"]) == 6
    files = {file: file.read_bytes() for file in (tmp_path / "tables").iterdir()}
    gone = sorted(files)[0]
    gone.unlink()
    again = run(tables.EXPERIMENT, tmp_path, jobs)
    for file, content_of_file in files.items():
        assert file == gone or file.read_bytes() == content_of_file
    assert [row["tests"] for row in again["rows"]] == [row["tests"] for row in content["rows"]]
    assert json.loads((tmp_path / "tables.json").read_text())["rows"] == again["rows"]
    assert "| map | nearest |" in (tmp_path / "tables.md").read_text()
    assert run(tables.EXPERIMENT, tmp_path, [])["rows"] == again["rows"]  # only the report


def test_the_mean_has_the_deviation_of_the_test_labels(tmp_path):
    (row,) = run(tables.EXPERIMENT, tmp_path, tables.tasks(("map",), ("mean",), 1))["rows"]
    data = with_split(load_table("map"), 0)
    y, train, test = data.y.numpy(), data.train_mask[:, 0].numpy(), data.test_mask[:, 0].numpy()
    assert row["test"] == pytest.approx(np.sqrt(np.square(y[test] - y[train].mean()).mean()), rel=1e-5)


def test_splits_are_disjoint_and_have_the_sizes_that_are_said():
    data = with_split(load_table("boxes"), 3)
    masks = [data[f"{part}_mask"][:, 0] for part in ("train", "val", "test")]
    assert [int(mask.sum()) for mask in masks] == [2560, 640, 800] and bool((sum(m.int() for m in masks) == 1).all())


def test_nearest_rows_are_training_rows():
    data = with_split(load_table("map"), 0)
    parts = arrays(our_task(data, [])[1], data)
    fit = nearest(parts, 0)
    assert np.allclose(fit.predicted[parts.train], parts.y[parts.train], atol=1e-5)  # each is its own nearest row
    assert np.square(fit.predicted - parts.y)[parts.val].mean() < parts.y.var()


def test_a_difference_needs_two_splits_of_both_models():
    rows = [{"data": "map", "model": name, "splits": [0], "tests": [1.0]} for name in ("labels", "network")]
    assert trainings_report._difference(rows[0], "network", rows, 0.3) is None
    for row in rows:
        row.update(splits=[0, 1], tests=[1.0, 2.0] if row["model"] == "network" else [0.5, 1.4])
    assert trainings_report._difference(rows[0], "network", rows, 0.3)["mean"] == pytest.approx(-0.55)


def test_bad_requests():
    with pytest.raises(ValueError, match="tables has 'mapp'; allowed: california, diamonds, smooth, boxes, map"):
        tables.tasks(("mapp",))
    with pytest.raises(ValueError, match="splits is 0; allowed: positive integers"):
        tables.tasks(splits=0)
    with pytest.raises(ValueError, match="splits is 11; allowed: 1 to 10"):
        city.tasks(splits=11)


@pytest.fixture
def streets():
    """A line of nodes whose class is the tenth of the line that they lie on."""
    count, torch_seed = 200, torch.Generator().manual_seed(0)
    place = torch.arange(count) / count
    line = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    x = torch.cat([torch.randn(count, 3, generator=torch_seed), place[:, None] * 4 - 2, torch.zeros(count, 1)], dim=1)
    order = torch.randperm(count, generator=torch_seed)
    parts = order[:60], order[60:90], order[90:]
    return Task(x, torch.cat([line, line.flip(0)], dim=1), (place * 4).long(), *parts, 4)


@pytest.mark.parametrize("name", ["map", "both-2", "label-propagation", "correct-and-smooth", "sgformer"])
def test_what_the_map_says_is_found(streets, name):
    outputs, about = city_models.train(name, streets, 0, 40, lambda text, share: None)
    accuracy = float(streets.kind.metric("accuracy", outputs[streets.test], streets.y[streets.test]))
    assert outputs.shape == (200, 4) and about
    assert accuracy > (0.2 if name == "sgformer" else 0.8)  # its features say nothing
