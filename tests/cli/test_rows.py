"""phgcn train and what follows, on a table without edges."""

import csv
import json
import random

import pytest

from phgcn.cli import app

SMALL = [f"--set={text}" for text in ("epochs=12", "warmup=4", "hidden_channels=16", "heads=2", "embedding_dim=2")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of houses whose price follows from the place, and a run that attends on the map."""
    folder, draw = tmp_path_factory.mktemp("houses"), random.Random(0)
    rows = [(draw.random(), draw.random(), draw.random()) for _ in range(120)]
    for name, part in (("houses", rows[:100]), ("new", rows[100:])):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["lat", "lon", "size", "kind", "price"])
            for lat, lon, size in part:
                writer.writerow([lat, lon, size, "flat" if size < 0.5 else "house", round(100 * lat * lon + 10 * size, 3)])
    arguments = ["houses.csv", "--label", "price", "--coordinates", "lat,lon", "--splits", "1", "--out", "run", *SMALL]
    assert call(folder, "train", *arguments) == 0
    return folder


def call(folder, command, *arguments):
    paths = [
        str(folder / a) if a in ("houses.csv", "new.csv", "run", "out.csv", "page.html", "other") else a for a in arguments
    ]
    return app.run([command, *paths])


def test_the_parts_are_chosen_by_validation(folder):
    about = json.loads((folder / "run" / "run.json").read_text())
    assert about["model"] == "table" and about["settings"]["parts"] in ("network", "labels", "both")
    assert about["columns"]["coordinates"] == ["lat", "lon"] and about["graph"]["edges"] == 0


def test_the_choice_is_said(folder, capsys):
    assert call(folder, "train", "houses.csv", "--label", "price", "--splits", "1", "--out", "other", *SMALL) == 0
    said = capsys.readouterr().err
    assert "which predicts best" in said and "predicts best on the validation nodes of the first split" in said
    assert 'chosen by validation: parts="' in said
    seen = json.loads((folder / "other" / "result.json").read_text())["search"]
    assert {row["candidate"] for row in seen["candidates"]} == {"network", "labels", "both"} and seen["sentence"]


@pytest.fixture(scope="module")
def labels(folder):
    arguments = ["--label", "price", "--coordinates", "lat,lon", "--splits", "1", "--set", "parts=labels", *SMALL]
    assert app.run(["train", str(folder / "houses.csv"), *arguments, "--out", str(folder / "labels")]) == 0
    return folder / "labels"


def test_predictions_come_with_the_rows_that_decided_them(folder, labels, capsys):
    assert app.run(["predict", str(labels), str(folder / "new.csv"), "-o", str(folder / "out.csv")]) == 0
    rows = read(folder / "out.csv")
    assert len(rows) == 20 and list(rows[0])[:4] == ["id", "prediction", "decided_by_1", "weight_1"]
    for row in rows:
        assert float(row["weight_1"]) >= float(row["weight_2"]) >= float(row["weight_3"]) > 0
        assert 1 <= int(row["decided_by_1"]) <= 100
    assert app.run(["predict", str(labels), str(folder / "houses.csv"), "-o", str(folder / "own.csv")]) == 0
    own = read(folder / "own.csv")
    assert not any(row["id"] == row[f"decided_by_{k}"] for row in own for k in (1, 2, 3))


def test_evaluate_plot_export_and_explore(folder, labels, capsys):
    assert app.run(["evaluate", str(labels), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_recorded"]
    assert app.run(["plot", str(labels), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)
    assert any("attention-global" in str(file) for file in (files["files"] if isinstance(files, dict) else files))
    assert app.run(["export", str(labels), "--attention", "-o", str(folder / "attention.csv")]) == 0
    rows = read(folder / "attention.csv")
    assert {row["layer"] for row in rows} == {"labels-0", "labels-1"} and {row["path"] for row in rows} == {"global"}
    trained = {row["target"] for row in rows}
    assert len(trained) <= 60 and not any(row["node"] == row["target"] for row in rows)
    assert app.run(["explore", str(labels), "-o", str(folder / "page.html")]) == 0
    assert (folder / "page.html").stat().st_size > 10_000


def test_coordinates_must_be_numeric_columns(folder, capsys):
    arguments = ["train", str(folder / "houses.csv"), "--label", "price", "--coordinates", "kind", "--out", str(folder / "x")]
    assert app.run(arguments) == 2
    assert "coordinates has 'kind'; allowed: numeric columns, lat, lon, size" in capsys.readouterr().err


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
