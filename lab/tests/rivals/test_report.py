import json

import pytest

from phgcn_lab.rivals import report

ABOUT = {
    "device": "cpu",
    "machine": "a machine",
    "threads": 2,
    "command": "phgcn reproduce rivals",
    "commit": "abc",
    "date": "d",
}


def row(rival, error, seconds, **rest):
    errors = {
        name: {"median": error, "p99": 2 * error, "rms": error} for name in ("random", "structured")
    }
    measured = {"seconds": seconds, "bytes": 3_000_000, "times": []}
    place = {"cloud": "dense", "dim": 4, "count": 1000, "number": 0, "setting": {}}
    return {**place, "rival": rival, "errors": errors, "forward": measured, **rest}


ROWS = [
    row(
        "separable", 0.2, 0.01, cosine=0.5, step={"seconds": 0.02, "bytes": 9_000_000, "times": []}
    ),
    row("lattice", 0.02, 0.05, cosine=0.95, step={"seconds": 0.3, "bytes": 9_000_000, "times": []}),
    row("LSH", 0.05, 0.1, setting={"rounds": 4, "bucket": 64}),
    row("KD-tree", 0.005, 3.0, setting={"rtol": 0.1}),
    {
        "cloud": "dense",
        "dim": 4,
        "count": 1000,
        "number": 0,
        "setting": {},
        "rival": "pykeops",
        "stopped_forward": 15.0,
    },
    row("lattice", 0.009, 0.002, cloud="cora", count=20),
]
EFFORT = {"rounds": 3, "limit": 15.0, "epochs": 20}
ORIGINS = [
    {
        "place": ["dense", 4, 1000],
        "load": 0.1,
        "commit": "abcdefghij",
        "dirty": False,
        "date": "2026-01-02T03:04",
    }
]
CONTENT = {
    "origins": ORIGINS,
    "provenance": ABOUT,
    "effort": EFFORT,
    "note": "quiet",
    "missing": {"NFFT, 2-D": "no module"},
    "rows": ROWS,
}


def test_the_front_is_what_nothing_beats():
    best = report.front(report.select(CONTENT, "dense", 4))
    assert [entry["rival"] for entry in best] == ["separable", "lattice", "KD-tree"]


def test_the_fastest_keeps_the_error_and_for_training_the_gradient():
    rows = report.select(CONTENT, "dense", 4)
    assert report.fastest(rows, 0.3)["rival"] == "separable"
    # the separable filter's gradient is too far off
    assert report.fastest(rows, 0.3, "step")["rival"] == "lattice"
    assert report.fastest(rows, 0.01)["rival"] == "KD-tree" and report.fastest(rows, 0.001) is None


def test_tables_say_what_was_measured():
    dense, cora = report.choice_table(CONTENT)[2:]
    ours = "`lattice`, 50 ms"
    tree = "KD-tree (rtol 0.1), 3,000 ms"
    assert dense == f"| 4 | dense | 1,000 | {ours} | {tree} | `lattice`, 300 ms |"
    assert cora == "| 4 | cora | 20 |" + " `lattice`, 2 ms |" * 2 + " none |"
    assert report.choice_block(CONTENT)[-1] == "Commit abcdefg; 2026-01-02."


def test_leaders_are_counted_by_each_measure_of_the_error():
    lines = report.leader_block(CONTENT)
    # by the 99th percentile the lattice's .04 on the dense cloud is too much
    assert lines[2] == "| median | 2 | 0 | 0 | 0 |"
    assert lines[4] == "| 99th percentile | 1 | 0 | 1 | 0 |"


def test_a_page_and_figures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    files = report.write(tmp_path, "rivals", CONTENT)
    kinds = ("json", "md", "png", "svg")
    every = [f"rivals.{kind}" for kind in kinds] + ["rivals-all.png", "rivals-all.svg"]
    assert files == [str(tmp_path / name) for name in every]
    text = (tmp_path / "rivals.md").read_text()
    assert "quiet" in text
    assert "- NFFT, 2-D did not run: no module" in text
    assert "| 4 | dense | 1,000 |" in text
    assert json.loads((tmp_path / "rivals.json").read_text()) == CONTENT
    assert "<!-- too slow: pykeops -->" in (tmp_path / "rivals.svg").read_text()
    assert (tmp_path / "rivals-all.png").stat().st_size > 10_000


def test_without_generated_clouds_there_is_no_figure(tmp_path):
    files = report.write(tmp_path, "rivals", {**CONTENT, "rows": ROWS[-1:]})
    assert files == [str(tmp_path / name) for name in ("rivals.json", "rivals.md")]
    nothing = report.choice_block({**CONTENT, "rows": [], "origins": []})
    assert "Nothing has been measured yet" in nothing[-1]
