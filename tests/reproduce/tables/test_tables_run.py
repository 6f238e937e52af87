"""phgcn reproduce tables: jobs, resuming, the report."""

import json

import numpy as np
import pytest

from phgcn.reproduce.tables import report
from phgcn.reproduce.tables.data import load_table, with_split
from phgcn.reproduce.tables.models import arrays, nearest, our_task
from phgcn.reproduce.tables.run import Request, run

QUICK = Request(tables=("map",), models=("mean", "nearest", "network"), splits=2, epochs=2)


def test_what_is_done_is_kept_and_the_rest_is_trained(tmp_path):
    content = run(tmp_path, QUICK)
    assert not content["failures"] and len(content["trainings"]) == 6
    files = {file: file.read_bytes() for file in (tmp_path / "tables").iterdir()}
    gone = sorted(files)[0]
    gone.unlink()
    again = run(tmp_path, QUICK)
    for file, bytes in files.items():
        assert file == gone or file.read_bytes() == bytes
    assert [row["tests"] for row in again["rows"]] == [row["tests"] for row in content["rows"]]
    assert json.loads((tmp_path / "tables.json").read_text())["rows"] == again["rows"]
    assert "| map | nearest |" in (tmp_path / "tables.md").read_text()


def test_the_mean_has_the_deviation_of_the_test_labels(tmp_path):
    (row,) = [row for row in run(tmp_path, Request(("map",), ("mean",), 1))["rows"]]
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
    rows = [{"table": "map", "model": name, "splits": [0], "tests": [1.0]} for name in ("labels", "network")]
    assert report._difference(rows[0], "network", rows) is None


def test_bad_requests():
    with pytest.raises(ValueError, match="tables has 'mapp'; allowed: california, diamonds, smooth, boxes, map"):
        Request(tables=("mapp",))
    with pytest.raises(ValueError, match="splits is 0; allowed: positive integers"):
        Request(splits=0)
