"""Models on splits: jobs, resuming, the report; and what phgcn reproduce tables and city train."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from phgcn.data import Columns, load_graph
from phgcn.data.hops import AddHopPositions
from phgcn.train.loop import Task
from phgcn_lab import labels, trainings_report
from phgcn_lab.city import models as city_models
from phgcn_lab.city import run as city
from phgcn_lab.propagation import correct_and_smooth, nearest_nodes
from phgcn_lab.tables import run as tables
from phgcn_lab.tables.data import load_table, with_split
from phgcn_lab.tables.models import frame, nearest, our_task, rows_of
from phgcn_lab.trainings import run


def test_what_is_done_is_kept_and_the_rest_is_trained(tmp_path):
    jobs = tables.EXPERIMENT.jobs(("map",), ("mean", "nearest", "automatic"), 2, 2)
    content = run(tables.EXPERIMENT, tmp_path, jobs)
    assert not content["failures"] and len(content["trainings"]) == 2 + 4 + 2
    files = {file: file.read_bytes() for file in (tmp_path / "tables").iterdir()}
    gone = sorted(files)[0]
    gone.unlink()
    again = run(tables.EXPERIMENT, tmp_path, jobs)
    for file, content_of_file in files.items():
        assert file == gone or file.read_bytes() == content_of_file
    assert [row["tests"] for row in again["rows"]] == [row["tests"] for row in content["rows"]]
    assert json.loads((tmp_path / "tables.json").read_text())["rows"] == again["rows"]
    assert "| nearest | 2." in (tmp_path / "tables.md").read_text()
    assert run(tables.EXPERIMENT, tmp_path, [])["rows"] == again["rows"]  # only the report


def test_the_mean_has_the_deviation_of_the_test_labels(tmp_path):
    (row,) = run(tables.EXPERIMENT, tmp_path, tables.EXPERIMENT.jobs(("map",), ("mean",), 1))[
        "rows"
    ]
    data = with_split(load_table("map"), 0)
    y, train, test = data.y.numpy(), data.train_mask[:, 0].numpy(), data.test_mask[:, 0].numpy()
    assert row["test"] == pytest.approx(
        np.sqrt(np.square(y[test] - y[train].mean()).mean()), rel=1e-5
    )


def test_settings_are_chosen_by_validation_on_the_first_split(tmp_path):
    content = run(tables.EXPERIMENT, tmp_path, tables.EXPERIMENT.jobs(("wine",), ("nearest",), 2))
    (row,) = content["rows"]
    first = [training for training in content["trainings"] if training["split"] == 0]
    (second,) = (training for training in content["trainings"] if training["split"] == 1)
    best = trainings_report.best(first)
    assert best["val"] == min(training["val"] for training in first)
    assert row["trials"] == len(first) == 3 and second["settings"] == best["settings"]
    assert row["tests"] == [best["test"], second["test"]]


def test_a_trial_that_failed_is_named(tmp_path):
    jobs = tables.EXPERIMENT.jobs(("wine",), ("nearest",), 2)
    later = [job for job in jobs if job.split == 1]
    assert not run(tables.EXPERIMENT, tmp_path, later)["failures"]  # the model has no trials here
    missing = [replace(jobs[0], trial=7), *later]
    assert set(run(tables.EXPERIMENT, tmp_path / "other", missing)["failures"]) == {
        "wine-nearest-0-trial-7",
        "wine-nearest-1",
    }


@pytest.mark.parametrize("model", ["hist-boosting", "automatic", "nearest", "mean"])
@pytest.mark.parametrize("table", ["diabetes", "wine"])
def test_models_predict_numbers_and_classes(tmp_path, table, model):
    jobs = tables.EXPERIMENT.jobs((table,), (model,), 1, 3)[:1]
    (row,) = run(tables.EXPERIMENT, tmp_path, jobs)["rows"]
    worst = run(tables.EXPERIMENT, tmp_path, tables.EXPERIMENT.jobs((table,), ("mean",), 1))["rows"]
    (mean,) = (row for row in worst if row["model"] == "mean")
    assert row["test"] <= 1.1 * mean["test"]


def test_splits_are_disjoint_and_have_the_sizes_that_are_said():
    data = with_split(load_table("boxes"), 3)
    masks = [data[f"{part}_mask"][:, 0] for part in ("train", "val", "test")]
    assert [int(mask.sum()) for mask in masks] == [2560, 640, 800]
    assert bool((sum(m.int() for m in masks) == 1).all())


def test_nearest_rows_are_training_rows():
    data = with_split(load_table("map"), 0)
    parts = rows_of(our_task(data, {})[1], data)
    fit = nearest(parts, 0, {"n_neighbors": 5, "weights": "distance"})
    # each is its own nearest row
    assert np.allclose(fit.predicted[parts.train], parts.y[parts.train], atol=1e-5)
    assert np.square(fit.predicted - parts.y)[parts.val].mean() < parts.y.var()


def test_rivals_are_given_categories_as_categories(tmp_path):
    path = tmp_path / "table.csv"
    rows = [f"{size},{colour},{size * 2}" for size, colour in enumerate(["red", "", "blue"] * 4)]
    path.write_text("\n".join(["size,colour,price", *rows]) + "\n")
    made = frame(load_graph(path, task="regression", columns=Columns(label="price")))
    assert list(made.columns) == ["size", "colour"]
    assert made.colour.cat.categories.tolist() == ["blue", "red"]
    assert made.colour.cat.codes.tolist() == [1, -1, 0] * 4 and made["size"].tolist()[:3] == [
        0,
        1,
        2,
    ]


def test_a_difference_needs_two_splits_of_both_models():
    rows = [
        {"data": "map", "model": name, "metric": "RMSE", "val": val, "splits": [0], "tests": [1.0]}
        for name, val in (("labels", 1.0), ("network", 2.0), ("other", 3.0))
    ]
    against = replace(tables.EXPERIMENT, references=("network", "other"), test_over_train=0.3)
    nothing = {"reference": "network", "difference": None}  # the better one on validation rows
    assert [trainings_report.difference(row, rows, against) for row in rows] == 3 * [nothing]
    for row in rows:
        row.update(splits=[0, 1], tests=[1.0, 2.0] if row["model"] == "network" else [0.5, 1.4])
    found = trainings_report.difference(rows[0], rows, against)
    assert found["difference"]["mean"] == pytest.approx(-0.55)
    alone = trainings_report.difference(rows[0], rows[:1], against)
    assert alone == {"reference": None, "difference": None}


def made_row(data, model, test, high=None):
    difference = None if high is None else {"high": high}
    return {"data": data, "model": model, "test": test, "difference": difference}


def test_ratios_and_marks_of_tables():
    rows = [
        *(made_row("california", *of) for of in (("attention", 0.43, -0.01), ("catboost", 0.4))),
        *(made_row("diamonds", *of) for of in (("attention", 1.03), ("hist-boosting", 2.0))),
        made_row("diamonds", "lightgbm", 1.0),
        *(made_row("map", *of) for of in (("automatic", 1.2), ("hist-boosting", 1.0))),
        *(made_row("wine", *of) for of in (("automatic", 1.0), ("hist-boosting", 0.0))),
        *(made_row("boxes", *of) for of in (("automatic", 1.0), ("hist-boosting", 1.25))),
    ]
    content = tables.summary(rows)
    assert [(r["data"], r["hist-boosting"], r["trees"]) for r in content["ratios"]] == [
        ("diamonds", 0.515, 1.03),
        ("map", 1.2, 1.2),
        ("boxes", 0.8, 0.8),
    ]
    marks = [(mark["value"], mark["mark"], mark["reached"]) for mark in content["marks"]]
    assert marks == [
        (1.03, 1.02, False),
        (0.43, 0.435, True),
        (-0.01, 0.0, True),
        (pytest.approx(1.0), 1.05, True),
    ]


def test_the_mark_of_streets_is_of_the_attention_that_validation_chooses():
    found = {"metric": "accuracy", "data": "huangpu", "test": 0.0}
    rows = [
        {**found, "model": model, "val": val, "difference": {"mean": mean}}
        for model, val, mean in (("map", 42.0, 5.0), ("hops", 44.0, 2.9), ("sgformer", 50.0, 9.0))
    ]
    (mark,) = city.summary(rows)["marks"]
    assert (mark["value"], mark["reached"]) == (2.9, False)


def test_bad_requests():
    with pytest.raises(
        ValueError, match="tables has 'mapp'; allowed: california, diamonds, boxes, map"
    ):
        tables.EXPERIMENT.jobs(("mapp",))
    with pytest.raises(ValueError, match="splits is 0; allowed: 1 to 100"):
        tables.EXPERIMENT.jobs(splits=0)
    with pytest.raises(ValueError, match="splits is 11; allowed: 1 to 10"):
        city.EXPERIMENT.jobs(splits=11)


@pytest.fixture
def streets():
    """A line of nodes whose class is the tenth of the line that they lie on."""
    count, torch_seed = 200, torch.Generator().manual_seed(0)
    place = torch.arange(count) / count
    line = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    features = torch.randn(count, 3, generator=torch_seed)
    coordinates = torch.stack([place * 4 - 2, torch.zeros(count)], dim=1)
    both = torch.cat([line, line.flip(0)], dim=1)
    hops = AddHopPositions(city_models.HOPS, attr_name="hops")(
        Data(edge_index=both, num_nodes=count)
    ).hops
    x = torch.cat([features, coordinates, hops], dim=1)
    order = torch.randperm(count, generator=torch_seed)
    parts = order[:60], order[60:90], order[90:]
    return Task(x, both, (place * 4).long(), *parts, 4)


@pytest.mark.parametrize(
    "name", ["map", "hops", "hops+sage-8", "sage-8 on hops", "label-propagation", "sgformer"]
)
def test_what_the_map_says_is_found(streets, name):
    outputs, about = city_models.train(name, streets, 0, 40, lambda text, share: None)
    accuracy = float(
        streets.kind.metric("accuracy", outputs[streets.test], streets.y[streets.test])
    )
    assert outputs.shape == (200, 4) and about
    assert accuracy > (0.2 if name == "sgformer" else 0.8)  # its features say nothing


def test_correct_and_smooth_and_nearest_nodes_use_the_labels(streets):
    nothing = torch.zeros(200, 4)
    for found, settings in (
        correct_and_smooth(streets, nothing),
        nearest_nodes(streets, streets.x[:, city_models.COLUMNS.hops]),
    ):
        right = found[streets.test].argmax(dim=1) == streets.y[streets.test]
        assert right.float().mean() > 0.8 and settings["settings"]


def test_a_training_node_is_not_its_own_nearest(streets):
    lonely = torch.eye(200)  # all are as far from each other
    found, _ = nearest_nodes(streets, lonely)
    assert not bool((found[streets.train].max(dim=1).values == 1).all())


TEXAS = (Path(os.environ.get("PHGCN_DATA", "/nowhere")) / "texas.npz").is_file()


@pytest.mark.skipif(not TEXAS, reason="PHGCN_DATA holds no texas")
def test_labels_on_and_off_and_the_control(tmp_path):
    jobs = labels.EXPERIMENT.jobs(("texas",), labels.MODELS, 1, 4)
    assert [job.model for job in jobs] == ["off", "part", "labels", "propagation"]
    content = run(labels.EXPERIMENT, tmp_path, jobs)
    assert not content["failures"]
    assert {row["model"] for row in content["rows"]} == set(labels.MODELS)
    outputs = {
        job.model: labels._train(job, labels._task("texas", 0), lambda text, share: None)[0]
        for job in jobs[:3]
    }
    assert not torch.equal(outputs["off"], outputs["part"])
    assert not torch.equal(outputs["part"], outputs["labels"])
