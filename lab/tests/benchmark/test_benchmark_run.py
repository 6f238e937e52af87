"""Cells are searched and trained once, written split by split, and joined."""

import json
import math

import pytest
from benchmark_graph import graph_with_splits, use_as_texas

from phgcn_lab.benchmark import report, spaces
from phgcn_lab.benchmark import run as experiment
from phgcn_lab.benchmark.run import Request
from phgcn_lab.experiment import execute

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    use_as_texas(monkeypatch, graph_with_splits())


def run(out, stage="all", deadline=math.inf, **changes):
    return execute(experiment.Benchmark(out, request(**changes), stage, deadline))


def request(**changes):
    asked = {
        "graphs": ("texas",),
        "models": ("global-gnn", "linkx"),
        "trials": 2,
        "epochs": 3,
        "splits": 4,
    }
    return Request(**{**asked, **changes})


def test_all_stages_give_rows_differences_and_files(tmp_path):
    content = run(tmp_path)
    assert content["failures"] == {}
    assert [row["row"] for row in content["rows"]] == ["global-gnn", "head-off", "linkx"]
    ours, off, rival = content["rows"]
    assert off["settings"] == {**ours["settings"], **spaces.OFF}
    assert ours["settings"]["global_layers"]
    assert ours["title"] == "GlobalGNN"
    assert off["model"] == "global-gnn"
    assert rival["search_trials"] == 2
    assert all(
        len(row["per_split"]) == 4 and row["quick"] and row["protocol"] == "geom"
        for row in content["rows"]
    )
    assert ours["unseen_mean"] == ours["per_split"][3]
    assert ours["mean"] == pytest.approx(sum(ours["per_split"]) / 4)
    assert ours["global_path"]["effective_nodes"] > 0 and rival["global_path"] is None
    assert ours["test_over_train"] == 0.5
    assert [(row["kind"], row["against"]) for row in content["differences"]] == [
        ("head-off", "head-off"),
        ("best rival", "linkx"),
        ("rival", "linkx"),
    ]
    kept = json.loads((tmp_path / "benchmark.json").read_text())
    assert kept["rows"] == content["rows"]
    assert kept["provenance"]["commit"] == content["provenance"]["commit"]
    trials = json.loads((tmp_path / "benchmark-search.json").read_text())
    assert [(study["model"], len(study["trials"])) for study in trials] == [
        ("global-gnn", 2),
        ("linkx", 2),
    ]
    assert "| GlobalGNN |" in (tmp_path / "benchmark.md").read_text()


def test_what_is_done_is_not_done_again_and_stages_can_follow_each_other(tmp_path, monkeypatch):
    run(tmp_path, "search", models=("linkx",))
    assert not (tmp_path / "train").exists()
    first = run(tmp_path, "train", models=("linkx",))
    calls = []
    real = experiment.train_split
    monkeypatch.setattr(
        experiment, "train_split", lambda *args: calls.append(args[2]) or real(*args)
    )
    assert run(tmp_path, models=("linkx",))["rows"] == first["rows"]
    assert calls == []
    assert len(run(tmp_path, models=("linkx",), splits=5)["rows"][0]["per_split"]) == 5
    assert calls == [4]


def test_other_settings_are_trained_anew(tmp_path):
    run(tmp_path, models=("linkx",), splits=2)
    path = tmp_path / "search" / "texas-linkx.json"
    study = json.loads(path.read_text())
    study["trials"][0]["settings"] = spaces.RECIPES["linkx"][1]
    path.write_text(json.dumps(study))
    rows = run(tmp_path, "train", models=("linkx",), splits=3)["rows"]
    assert rows[0]["settings"] == spaces.RECIPES["linkx"][1]
    assert rows[0]["split_numbers"] == [0, 1, 2]


def test_no_time_begins_nothing_and_fails_nothing(tmp_path):
    content = run(tmp_path, deadline=0.0)
    assert content["rows"] == []
    assert content["failures"] == {}
    assert not (tmp_path / "search").exists()


def test_training_without_a_search_says_so(tmp_path):
    failures = run(tmp_path, "train", models=("linkx",))["failures"]
    assert "run the stage search first" in failures["texas-linkx"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 1}, "trials is 1; allowed: 2 or more"),
        ({"splits": 11}, "splits is 11; allowed: 2 to 10"),
    ],
)
def test_wrong_requests_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        request(**changes)


def test_large_graphs_come_first_each_with_all_models(tmp_path):
    asked = Request(models=("global-gnn", "gps"), graphs=("cora", "minesweeper"))
    names = [cell.name for cell in experiment.Benchmark(tmp_path, asked).cells()]
    assert names == ["minesweeper-global-gnn", "minesweeper-gps", "cora-global-gnn", "cora-gps"]


# The report


def row(graph, name, values, **more):
    mean, std = report.mean_and_deviation(values)
    about = {
        "graph": graph,
        "row": name,
        "model": name,
        "protocol": "geom",
        "metric": "accuracy",
        "settings": {"decay": 1.0},
    }
    numbers = {
        "mean": mean,
        "std": std,
        "unseen_mean": mean,
        "unseen_std": std,
        "per_split": values,
    }
    numbers |= {"split_numbers": list(range(len(values))), "test_over_train": 0.4}
    effort = {"seconds_per_epoch": 0.001, "search_trials": 12, "search_seconds": 30.4}
    return {**about, "title": report.title(name), "quick": False, **numbers, **effort, **more}


def content_of(*rows):
    return {"rows": list(rows), "differences": report.differences(rows)}


BASE = [80.0, 81.0, 82.0, 83.0, 84.0, 85.0, 86.0, 87.0, 88.0, 89.0]
UP = [value + 2 + 0.1 * (number % 2) for number, value in enumerate(BASE)]


def test_the_best_rival_has_the_highest_mean_and_p_values_are_corrected_over_graphs():
    rows = []
    for graph, ours in (("cora", UP), ("texas", BASE)):
        rows += [row(graph, "global-gnn", ours), row(graph, "head-off", BASE[::-1])]
        rows += [row(graph, "linkx", [value - 1 for value in BASE]), row(graph, "gps", BASE)]
    tested = {
        (test["graph"], test["kind"], test["against"]): test for test in report.differences(rows)
    }
    assert ("cora", "best rival", "gps") in tested and ("cora", "best rival", "linkx") not in tested
    cora = tested["cora", "best rival", "gps"]
    assert cora["difference"] == pytest.approx(2.05) and cora["p_holm"] == 2 * cora["p"] < 1e-6
    assert tested["texas", "best rival", "gps"]["p_holm"] == 1.0
    text = report.summary(content_of(*rows))
    assert "significantly above in 3 and below in 0" in text and "Marks reached: 0 of 2" in text


def test_tables_have_a_line_per_model_and_say_what_is_missing():
    content = content_of(
        row("cora", "global-gnn", UP), row("cora", "linkx", BASE[:9]), row("texas", "linkx", BASE)
    )
    lines = report.accuracy_table(content)
    assert lines[0] == "| model | cora | texas |"
    assert lines[2].startswith("| GlobalGNN | **86.5 ± 2.9** | missing |")
    assert lines[4] == "| best published | 88.5 (NLGAT) | 88.4 (ACM-GCN+, GRAFF) |"
    assert lines[-1] == "Fewer than 10 splits: LINKX on cora (9)."
    assert report.effort_table(content)[3] == "| LINKX | 12 | 12 |"
    assert "86.5 of 88" in report.difference_table(content)[4]


def test_the_papers_rows_stand_below_under_the_same_splits():
    paper = [
        {
            "graph": "cora",
            "model": "gcn",
            "protocol": protocol,
            "method": None,
            "mean": 87.2,
            "std": 1.0,
        }
        for protocol in ("paper", "geom")
    ]
    lines = report.accuracy_table(content_of(row("cora", "global-gnn", UP)), [paper[0]])
    assert not any("recipe" in line for line in lines)
    lines = report.accuracy_table(content_of(row("cora", "global-gnn", UP)), paper)
    assert "| GCN, paper's recipe | 87.2 ± 1.0 |" in lines


def test_published_numbers_stand_beside_those_of_a_rival():
    lines = report.accuracy_table(content_of(row("minesweeper", "polynormer", BASE)))
    assert "| Polynormer | **84.5 ± 2.9** (97.5) |" in lines


def test_a_row_of_one_split_is_not_compared():
    assert report.differences([row("cora", "global-gnn", UP[:1]), row("cora", "gps", BASE)]) == []
    assert math.isfinite(row("cora", "gps", BASE)["mean"])
