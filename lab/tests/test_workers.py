import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from phgcn_lab import workers
from phgcn_lab.workers import run_all


@dataclass(frozen=True)
class Chore:
    name: str
    cost: float
    folder: str = ""


def chore(task, tell):
    """What a name asks for; workers find it as a function of this module."""
    if task.name == "wrong":
        raise ValueError("this is\nwrong")
    if task.name == "broken":
        raise ZeroDivisionError("no")
    if task.name == "killed":
        os.kill(os.getpid(), 9)
    if task.name.startswith("endless"):
        train_for_ever(Path(task.folder) / task.name)
    if task.name == "slow":
        time.sleep(0.6)
        tell("half", 0.5)
    if task.folder:
        with open(os.path.join(task.folder, task.name), "w") as file:
            file.write(f"{os.getpid()} done")
    end = time.monotonic() + 60
    while task.name.startswith("meets") and len(os.listdir(task.folder)) < 2:
        assert time.monotonic() < end, "alone"
        time.sleep(0.01)


def train_for_ever(file):
    """As a training does: an interrupt is delayed until the epoch is over, then a checkpoint is
    written.
    """
    # here, since it takes seconds: other tasks do not need it
    from phgcn.train.checkpoints import DelayedInterrupt

    with DelayedInterrupt(lambda: True) as interrupt:
        file.with_suffix(".training").touch()
        while not interrupt.noted:
            time.sleep(0.02)
        file.with_suffix(".checkpoint").touch()


@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_are_named_and_the_others_go_on(jobs, tmp_path):
    tasks = [
        Chore(name, cost, str(tmp_path))
        for cost, name in enumerate(("a", "wrong", "b", "broken", "c"))
    ]
    failures = run_all(tasks, chore, jobs, lambda progress: None)
    assert failures == {"wrong": "this is wrong", "broken": "ZeroDivisionError: no"}
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}


def test_a_process_that_is_killed_takes_its_task_along_and_no_other(tmp_path):
    tasks = [Chore("killed", 9)] + [Chore(name, 1, str(tmp_path)) for name in "abcd"]
    failures = run_all(tasks, chore, 2, lambda progress: None)
    assert list(failures) == ["killed"]
    assert failures["killed"] == "its process died; the same command continues it"
    assert {path.name for path in tmp_path.iterdir()} == set("abcd")


def test_two_processes_work_at_once(tmp_path):
    failures = run_all(
        [Chore(name, 1, str(tmp_path)) for name in ("meets-a", "meets-b")],
        chore,
        2,
        lambda progress: None,
    )
    processes = {path.read_text().split()[0] for path in tmp_path.iterdir()}
    assert failures == {} and len(processes) == 2 and str(os.getpid()) not in processes


def test_tasks_run_in_their_order_and_progress_is_reported():
    events = []
    run_all([Chore("slow", 3), Chore("short", 1)], chore, 1, events.append)
    assert [(entry.name, entry.kind) for entry in events] == [
        ("slow", "begun"),
        ("slow", "running"),
        ("slow", "done"),
        ("short", "begun"),
        ("short", "done"),
    ]
    half = events[1]
    assert half.text == "half"
    assert half.share == 3 / 8
    assert half.running == ("slow",)
    assert 0.5 < half.left < 5
    assert (events[-1].done, events[-1].total, events[-1].left) == (2, 2, 0.0)


SCRIPT = """
import signal
import sys
sys.path.insert(0, sys.argv[2])
from test_workers import Chore, chore
from phgcn_lab.workers import run_all
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    tasks = [Chore("quick", 9, sys.argv[1]), *(Chore(f"endless-{name}", 1, sys.argv[1]) for name in "abc")]
    run_all(tasks, chore, 2, lambda progress: None)
"""  # noqa: E501


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_keeps_finished_files_and_leaves_no_process(stop, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    files = tmp_path / "files"
    files.mkdir()
    command = [sys.executable, str(script), str(files), str(Path(__file__).parent)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not all(
        (files / name).exists() for name in ("quick", "endless-a.training", "endless-b.training")
    ):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    workers = [
        int(pid)
        for path in Path(f"/proc/{process.pid}/task").glob("*/children")
        for pid in path.read_text().split()
    ]
    assert len(workers) >= 2
    process.send_signal(stop)
    process.communicate(timeout=120)
    assert process.returncode != 0
    end = time.monotonic() + 60
    while any(map(is_alive, workers)):
        assert time.monotonic() < end, "a process is left behind"
        time.sleep(0.05)
    assert "done" in (files / "quick").read_text()
    assert list(files.glob("*.checkpoint")), "no task had the time to write a checkpoint"
    assert not (files / "endless-c.training").exists(), "what had not begun never ran"


def is_alive(pid):
    """Whether a process runs; a zombie that waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_pool_that_cannot_start_is_an_error_and_not_an_endless_loop(monkeypatch):
    # takes other arguments: every process fails at its start
    monkeypatch.setattr(workers, "_start_process", os._exit)
    with pytest.raises(RuntimeError, match="no process could be started"):
        run_all([Chore("a", 1), Chore("b", 1)], chore, 2, lambda progress: None)
