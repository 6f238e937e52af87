import json

import pytest

from phgcn.reproduce.rivals import report

ABOUT = {
    "device": "cpu",
    "machine": "a machine",
    "threads": 2,
    "command": "phgcn reproduce rivals",
    "commit": "abc",
    "date": "d",
}


def row(rival, error, seconds, **rest):
    errors = {name: {"median": error, "p99": 2 * error, "rms": error} for name in ("random", "structured")}
    measured = {"seconds": seconds, "bytes": 3_000_000, "times": []}
    place = {"cloud": "dense", "dim": 4, "count": 1000, "number": 0, "setting": {}}
    return {**place, "rival": rival, "errors": errors, "forward": measured, **rest}


ROWS = [
    row("separable", 0.2, 0.01, cosine=0.5, step={"seconds": 0.02, "bytes": 9_000_000, "times": []}),
    row("lattice", 0.02, 0.05, cosine=0.95, step={"seconds": 0.3, "bytes": 9_000_000, "times": []}),
    row("LSH", 0.05, 0.1, setting={"rounds": 4, "bucket": 64}),
    row("KD-tree", 0.005, 3.0, setting={"rtol": 0.1}),
    {"cloud": "dense", "dim": 4, "count": 1000, "number": 0, "setting": {}, "rival": "pykeops", "stopped_forward": 15.0},
    row("lattice", 0.009, 0.002, cloud="cora", count=20),
]
EFFORT = {"rounds": 3, "limit": 15.0, "epochs": 20}
ORIGINS = [{"place": ["dense", 4, 1000], "load": 0.1, "commit": "abcdefghij", "dirty": False, "date": "2026-01-02T03:04"}]
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
    assert report.fastest(rows, 0.3, "step")["rival"] == "lattice"  # the separable filter's gradient is too far off
    assert report.fastest(rows, 0.01)["rival"] == "KD-tree" and report.fastest(rows, 0.001) is None


def test_tables_say_what_was_measured():
    choices = report.choice_table(CONTENT)
    assert (
        choices[2]
        == "| 4 | dense | 1,000 | `lattice`, 50 ms | `lattice`, 50 ms | KD-tree (rtol 0.1), 3,000 ms | `lattice`, 300 ms |"
    )
    assert choices[3] == "| 4 | cora | 20 | `lattice`, 2 ms | `lattice`, 2 ms | `lattice`, 2 ms | none |"
    assert report.wins(CONTENT) == {"lattice": 2, "KD-tree": 1}
    assert report.choice_block(CONTENT)[-1] == (
        "Of 2 clouds, each is the fastest at some of these errors on: lattice 2, KD-tree 1. Commit abcdefg; 2026-01-02."
    )
    heading, _, *details = report.detail_block(CONTENT)
    assert heading == "dense, D = 4, N = 1,000:"
    assert details[3] == "| `lattice` |  | 0.02 / 0.04 | 0.02 / 0.04 | 0.950 | 50 | 300 | 9 |"
    assert "| 3,000 (a sample) |" in details[5] and "| over 15,000 |" in details[6]


def test_a_page_and_figures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    files = report.write(tmp_path, "rivals", CONTENT)
    assert [file.name for file in files] == [
        "rivals.json", "rivals.md", "rivals.png", "rivals.svg", "rivals-all.png", "rivals-all.svg",
    ]  # fmt: skip
    text = (tmp_path / "rivals.md").read_text()
    assert "quiet" in text and "- NFFT, 2-D did not run: no module" in text and "## cora, D = 4, N = 20" in text
    assert json.loads((tmp_path / "rivals.json").read_text()) == CONTENT
    assert "<!-- too slow: pykeops -->" in (tmp_path / "rivals.svg").read_text()
    assert (tmp_path / "rivals-all.png").stat().st_size > 10_000


def test_without_generated_clouds_there_is_no_figure(tmp_path):
    files = report.write(tmp_path, "rivals", {**CONTENT, "rows": ROWS[-1:]})
    assert [file.name for file in files] == ["rivals.json", "rivals.md"]
    assert "Nothing has been measured yet" in report.markdown({**CONTENT, "rows": [], "origins": []})
