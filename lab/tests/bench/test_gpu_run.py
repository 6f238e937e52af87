"""One command for all that needs a GPU: its plan is of scripts that exist, and it keeps what is
done. Needs no GPU.
"""

import importlib
import json
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WRITE = "import json, sys; json.dump({}, open(sys.argv[1], 'w'))"


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "lab" / "bench"))
    return importlib.import_module("gpu_run")


def step(plan, name, code=WRITE, limit=60.0, **marks):
    return plan.Step(name, ("-c", code, "OUT"), limit, f"{name}.json", **marks)


def runner(plan, out, *steps, seconds=600.0):
    return plan.Runner(steps, out, time.monotonic() + seconds)


def test_every_step_is_of_files_or_measurements_that_exist_and_options_that_they_have(plan):
    import registry

    names = [step.name for step in plan.STEPS]
    assert len(set(names)) == len(names) and len({step.file for step in plan.STEPS}) == len(names)
    registry.load_all()
    for entry in (*plan.STEPS, *plan.quick_steps(plan.STEPS)):
        if entry.words[0] == "lab/bench":
            registry.parser(entry.words[1]).parse_args(entry.words[2:])
        else:
            paths = [word for word in entry.words if word.startswith("tests/")]
            assert paths and all((ROOT / path).exists() for path in paths), entry.name


def test_the_plan_is_shown_without_a_gpu(plan, tmp_path, capsys):
    plan.main(["--plan", "--out", str(tmp_path / "new")])
    assert len(capsys.readouterr().out.splitlines()) == len(plan.STEPS)
    assert not (tmp_path / "new").exists()


def test_what_is_done_is_kept_and_what_failed_comes_last(plan, tmp_path):
    steps = step(plan, "bad", "raise SystemExit(3)"), step(plan, "good"), step(plan, "new")
    runner(plan, tmp_path, *steps[:2]).run()
    kept = json.loads((tmp_path / "steps.json").read_text())
    assert {name: entry["state"] for name, entry in kept.items()} == {
        "bad": "failed with code 3",
        "good": "done",
    }
    again, order = runner(plan, tmp_path, *steps), []
    run = again._run
    again._run = lambda step, limit: order.append(step.name) or run(step, limit)
    again.run()
    assert order == ["new", "bad"]
    again.run(["good"])
    assert order == ["new", "bad", "good"]


def test_a_step_of_another_commit_is_done_again(plan, tmp_path):
    first = runner(plan, tmp_path, step(plan, "one"))
    first.run()
    assert first.done(first.steps[0])
    first.commit = "another"
    assert not first.done(first.steps[0])


def test_a_step_that_takes_too_long_ends_with_all_that_it_started(plan, tmp_path):
    child = f"import subprocess, sys, time; subprocess.Popen([{sys.executable!r}, '-c', 'import time; time.sleep(60)']).wait()"  # noqa: E501
    begin = time.monotonic()
    slow = runner(plan, tmp_path, step(plan, "slow", child, limit=1.0))
    slow.run()
    assert slow.kept["slow"]["state"] == "cut off after 1 s" and time.monotonic() - begin < 20


def test_without_time_nothing_is_begun(plan, tmp_path, capsys):
    late = runner(plan, tmp_path, step(plan, "one"), seconds=0.5)
    late.run()
    assert late.kept == {} and "left for the next call" in capsys.readouterr().out


def test_the_summary_has_the_marks(plan, tmp_path):
    about = {"method": "lattice", "count": 1000, "cloud": "spread 1", "forward": [2.0] * 3}
    rows = [{**about, "mark": mark} for mark in (1.0, 3.0)]
    code = f"import json, sys; json.dump({{'rows': {rows!r}}}, open(sys.argv[1], 'w'))"
    steps = (
        step(plan, "speed", code, marks=plan.of_speed),
        step(plan, "check", marks=plan.of_exact),
        step(plan, "later"),
    )
    measured = runner(plan, tmp_path, *steps[:2])
    measured.run()
    measured.steps = steps
    measured.write_summary()
    text = (tmp_path / "summary.md").read_text()
    assert "| 2.00 ms | ≤ 3 ms | reached |" in text and "| 2.00 ms | ≤ 1 ms | **missed** |" in text
    assert "| check | result | not there: KeyError |" in text and "| later | not run |" in text


def test_counts_of_tests_are_read(plan, tmp_path):
    file = tmp_path / "tests.xml"
    file.write_text(
        '<testsuites><testsuite tests="5" failures="1" errors="0" skipped="2"/></testsuites>'
    )
    assert list(plan.of_tests(plan.read(file))) == [
        ("tests", "2 passed, 1 failed", "none fails", False)
    ]
