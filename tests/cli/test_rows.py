"""phgcn train and what follows, on a table without edges."""

import csv
import json
import random
from pathlib import Path

import pytest
from commands import call

SMALL = (
    "--set epochs=12 --set warmup=4 --set hidden_channels=16 --set heads=2 --set embedding_dim=2"
)
PRICE = f"--label price --splits 1 {SMALL}"


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of houses whose price follows from the place, and a run that attends on the map."""
    folder, draw = tmp_path_factory.mktemp("houses"), random.Random(0)
    rows = []
    for _ in range(120):
        lat, lon, size = draw.random(), draw.random(), draw.random()
        kind, price = "flat" if size < 0.5 else "house", round(100 * lat * lon + 10 * size, 3)
        rows.append([lat, lon, size, kind, price])
    for name, part in (("houses", rows[:100]), ("new", rows[100:])):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([["lat", "lon", "size", "kind", "price"], *part])
    on_the_map = f"{PRICE} --coordinates lat,lon --out"
    call("train", folder / "houses.csv", on_the_map, folder / "run")
    return folder


@pytest.fixture(scope="module")
def labels(folder):
    on_the_map = f"{PRICE} --coordinates lat,lon --set parts=labels --out"
    call("train", folder / "houses.csv", on_the_map, folder / "labels")
    return folder / "labels"


def test_the_parts_are_chosen_by_validation(folder):
    about = json.loads((folder / "run" / "run.json").read_text())
    assert about["model"] == "table" and about["settings"]["parts"] in ("network", "labels", "both")
    assert about["columns"]["coordinates"] == ["lat", "lon"] and about["graph"]["edges"] == 0


def test_the_choice_is_said(folder, said):
    code, _, err = said("train", folder / "houses.csv", PRICE, "--out", folder / "other")
    assert code == 0
    assert err.index("graph houses: ") < err.index("which predicts best"), "before it takes time"
    assert err.count("graph houses: ") == 1
    assert any(f"{parts} is chosen" in err for parts in ("network", "labels", "both"))
    assert 'chosen by validation: parts="' in err
    seen = json.loads((folder / "other" / "result.json").read_text())["search"]
    assert {row["candidate"] for row in seen["candidates"]} == {"network", "labels", "both"}
    assert seen["sentence"]


def test_a_long_search_of_a_table_is_refused(folder, said):
    code, _, err = said("train", folder / "houses.csv", PRICE, "--search long --out", folder / "l")
    assert code == 2 and "--search is 'long'; allowed for the model table: none, short" in err
    assert not (folder / "l").exists()


def test_predictions_come_with_the_rows_that_decided_them(folder, labels):
    call("predict", labels, folder / "new.csv", "-o", folder / "out.csv")
    rows = read(folder / "out.csv")
    assert len(rows) == 20 and list(rows[0])[:4] == ["id", "prediction", "decided_by_1", "weight_1"]
    for row in rows:
        assert float(row["weight_1"]) >= float(row["weight_2"]) >= float(row["weight_3"]) > 0
        assert 1 <= int(row["decided_by_1"]) <= 100
    call("predict", labels, folder / "houses.csv", "-o", folder / "own.csv")
    own = read(folder / "own.csv")
    assert not any(row["id"] == row[f"decided_by_{k}"] for row in own for k in (1, 2, 3))


def test_evaluate_plot_export_and_explore(folder, labels, answer):
    scored = answer("evaluate", labels)
    assert scored["as_recorded"]
    assert any("the network without global attention" in line for line in scored["yardsticks"])
    drawn = {Path(file).stem for file in answer("plot", labels)["files"]}
    assert {"attention-global", "attention-global-labels-1", "embeddings-labels-1"} <= drawn
    call("export", labels, "--attention -o", folder / "attention.csv")
    rows = read(folder / "attention.csv")
    assert {row["layer"] for row in rows} == {"labels-0", "labels-1"}
    assert {row["path"] for row in rows} == {"global"}
    trained = {row["target"] for row in rows}
    assert len(trained) <= 60 and not any(row["node"] == row["target"] for row in rows)
    call("explore", labels, "-o", folder / "page.html")
    assert (folder / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--coordinates kind", "coordinates has 'kind'; allowed: numeric columns, lat, lon, size"),
        (
            "--coordinates lat,lon --model mlp",
            "coordinates is lat, lon beside the model mlp; allowed: with the models table and "
            "global-gnn",
        ),
    ],
)
def test_coordinates_are_numeric_columns_for_a_model_that_reads_them(options, line, folder, said):
    arguments = ("train", folder / "houses.csv", "--label price", options)
    code, _, err = said(*arguments, "--out", folder / "none")
    assert code == 2 and line in err
