import json
from pathlib import Path

import pytest
from run_folders import new_run
from small_graphs import small_graph

from phgcn.report.compare import compare, draw_comparison
from phgcn.report.history import draw_history, plot_study

pytest.importorskip("matplotlib")


def finished(folder, tests, metric="accuracy", seed=0, data=None, task="classification"):
    """A run whose result is written by hand."""
    options = {"splits": len(tests), "seed": seed, "metric": metric, "task": task}
    run = new_run(folder, data or small_graph(nodes=30), "mlp", {}, **options)
    mean = sum(tests) / len(tests)
    content = {
        "splits": [{"test": test} for test in tests],
        "test": {"mean": mean, "std": 0.1},
        "val_metric": {"mean": mean},
        "epochs": 2,
        "seconds": 1.0,
        "seconds_per_epoch": 0.5,
    }
    (folder / "result.json").write_text(json.dumps(content))
    return run


def test_runs_are_compared_split_by_split_the_best_first(tmp_path):
    good = finished(tmp_path / "good", [0.8, 0.9, 0.7])
    bad = finished(tmp_path / "bad", [0.6, 0.5, 0.75])
    compared = compare([bad, good])
    assert compared["paired"]
    assert [Path(row["run"]).name for row in compared["runs"]] == ["good", "bad"]
    first, second = compared["runs"]
    assert first["difference"]["mean"] == 0 and second["wins"] == 1
    assert second["difference"]["mean"] == pytest.approx(-0.55 / 3)
    axis = draw_comparison(compared).axes[0]
    assert list(axis.lines[0].get_xdata()) == [0.8, 0.9, 0.7]
    assert axis.get_xlabel() == "test accuracy"
    assert [text.get_text().split(":")[0] for text in axis.get_yticklabels()] == ["mlp", "mlp"]
    assert len(axis.lines) == 2 * 2 + 3, "dots, means, and a line per split"


def test_of_errors_the_smaller_is_better(tmp_path):
    data = small_graph(nodes=30)
    data.y = data.y.float()
    runs = [
        finished(tmp_path / name, tests, "mae", 0, data, "regression")
        for name, tests in (("a", [3.0]), ("b", [2.0]))
    ]
    assert [Path(row["run"]).name for row in compare(runs)["runs"]] == ["b", "a"]


def test_other_splits_are_not_compared_one_by_one(tmp_path):
    a, b = finished(tmp_path / "a", [0.8, 0.9]), finished(tmp_path / "b", [0.6, 0.5], seed=1)
    compared = compare([a, b])
    assert not compared["paired"] and compared["runs"][1]["wins"] is None
    assert len(draw_comparison(compared).axes[0].lines) == 4


def test_what_cannot_be_compared_is_refused(tmp_path):
    run = finished(tmp_path / "a", [0.8])
    other = finished(tmp_path / "b", [0.8], data=small_graph(nodes=40))
    with pytest.raises(ValueError, match="runs has 1 entries; allowed: two or more"):
        compare([run])
    said = r"b: its graph small has other nodes, edges, .* than small of .*a; allowed: runs on one"
    with pytest.raises(ValueError, match=said):
        compare([run, other])
    said = "d: has no test nodes; allowed: runs of other protocols than paper"
    with pytest.raises(ValueError, match=said):
        compare([run, finished(tmp_path / "d", [float("nan")])])
    with pytest.raises(ValueError, match="c: metric is f1; allowed: accuracy"):
        compare([run, finished(tmp_path / "c", [0.8], metric="f1")])


TRIALS = [
    ("complete", 0.5, 8, 0.01, "gcn"),
    ("pruned", 0.9, 1, 0.1, "gcn"),
    ("complete", 0.7, 2, 0.02, "sage"),
    ("complete", 0.4, 4, 0.03, "gcn"),
]
KEYS = ("state", "val_loss", "heads", "learning_rate", "local")
STUDY = {
    "model": "mlp",
    "graph": "small",
    "study": "study.db",
    "varied": ["heads", "learning_rate", "local"],
    "trials": [
        {"number": number, **dict(zip(KEYS, trial, strict=True))}
        for number, trial in enumerate(TRIALS)
    ],
}


def test_the_history_of_a_search_has_every_trial_and_the_best_so_far(tmp_path):
    order, heads, rate, local = draw_history(STUDY).axes
    dots, best = order.lines
    assert list(dots.get_xdata()) == [0, 2, 3] and list(dots.get_ydata()) == [0.5, 0.7, 0.4]
    assert list(best.get_ydata()) == [0.5, 0.5, 0.4]
    assert list(heads.lines[0].get_xdata()) == [8, 2, 4] and list(heads.lines[1].get_xdata()) == [4]
    assert rate.get_xscale() == "log"
    assert [text.get_text() for text in local.get_xticklabels()] == ["gcn", "sage"]
    (tmp_path / "tune.json").write_text(json.dumps(STUDY))
    (file,) = plot_study(tmp_path, tmp_path / "plots")
    assert file.name == "history.png" and file.stat().st_size > 5000


@pytest.mark.parametrize("content", ["[]", "{}", '{"trials": 3}'])
def test_a_damaged_study_is_named(content, tmp_path):
    (tmp_path / "tune.json").write_text(content)
    with pytest.raises(ValueError, match=r"tune.json: not the trials of a search"):
        plot_study(tmp_path, tmp_path / "plots")
