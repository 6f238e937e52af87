"""Conditions are trained once, with and without the head, and joined into one table and figure."""

import json

import pytest
from benchmark_graph import graph_with_splits, use_as_texas

from phgcn_lab.benchmark.spaces import RECIPES
from phgcn_lab.experiment import execute
from phgcn_lab.when import run as experiment
from phgcn_lab.when.run import Request

SETTINGS = {**RECIPES["global-gnn"][0], "num_layers": 1}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    use_as_texas(monkeypatch, graph_with_splits())


@pytest.fixture
def benchmark_file(tmp_path):
    path = tmp_path / "benchmark.json"
    path.write_text(
        json.dumps({"rows": [{"graph": "texas", "row": "global-gnn", "settings": SETTINGS}]})
    )
    return path


def run(out, asked, deadline=float("inf")):
    return execute(experiment.When(out, asked, deadline))


def request(path, **changes):
    asked = {
        "graphs": ("texas",),
        "networks": 2,
        "steps": 2,
        "epochs": 2,
        "splits": 2,
        "parts": ("edges", "ring"),
    }
    return Request(path, **{**asked, **changes})


def test_conditions_give_rows_a_table_and_a_figure(tmp_path, benchmark_file, monkeypatch):
    monkeypatch.setattr(experiment, "EDGES", (100, 0))
    content = run(tmp_path, request(benchmark_file))
    assert content["failures"] == {}
    assert [(row["part"], row["subject"], row["level"]) for row in content["rows"]] == [
        ("edges", "texas", 100),
        ("edges", "texas", 0),
        ("isolated", "texas", 0),
        *(("tasks", "ring", level) for level in (4, 8, 16, 32)),
    ]
    for row in content["rows"]:
        assert row["count"] == 2
        assert row["difference"] == pytest.approx(row["on_mean"] - row["off_mean"])
        assert row["low"] <= row["difference"] <= row["high"] and row["p_holm"] >= row["p"]
    every, isolated = content["rows"][1:3]
    # without edges all test nodes are isolated
    assert every["on"] == isolated["on"] and isolated["nodes"] == 15
    assert json.loads((tmp_path / "when.json").read_text())["rows"] == content["rows"]
    assert all((tmp_path / f"when.{kind}").stat().st_size > 1000 for kind in ("png", "svg"))
    assert "| fewer edges | " in (tmp_path / "when.md").read_text()
    calls = []
    monkeypatch.setattr(experiment, "train_both", lambda *args: calls.append(args))
    monkeypatch.setattr(experiment.generated, "train", lambda *args: calls.append(args))
    assert run(tmp_path, request(benchmark_file))["rows"] == content["rows"]
    assert calls == []


def test_fewer_labels_are_drawn_from_the_papers_protocol(tmp_path, benchmark_file, monkeypatch):
    monkeypatch.setattr(experiment, "LABELS", (None, 1))
    rows = run(tmp_path, request(benchmark_file, parts=("labels",)))["rows"]
    assert [row["text"] for row in rows] == ["60 % of the labels", "1 label per class"]


def test_rows_of_other_conditions_stay(tmp_path, benchmark_file):
    earlier = run(tmp_path / "first", request(benchmark_file, parts=("ring",)))["rows"]
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "when.json").write_bytes((tmp_path / "first" / "when.json").read_bytes())
    rows = run(tmp_path / "second", request(benchmark_file, parts=("labels",)))["rows"]
    assert [row["part"] for row in rows] == ["labels"] * 4 + ["tasks"] * 4
    assert rows[4:] == earlier


def test_no_time_begins_nothing(tmp_path, benchmark_file):
    content = run(tmp_path, request(benchmark_file), deadline=0.0)
    assert content["rows"] == [] and content["failures"] == {} and not (tmp_path / "when").exists()


def test_generated_tasks_need_no_settings(tmp_path):
    assert len(request(tmp_path / "missing.json", parts=("tree",)).jobs()) == 14
    with pytest.raises(ValueError, match=r"missing.json: cannot be read"):
        request(tmp_path / "missing.json").jobs()


def test_graphs_without_settings_are_refused(benchmark_file):
    with pytest.raises(ValueError, match=r"graphs has 'cora'; allowed, as .* for them: texas"):
        request(benchmark_file, graphs=("cora",)).jobs()
