import os
import time
from dataclasses import dataclass

import pytest

from phgcn.reproduce.workers import run_all


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
    if task.name == "slow":
        time.sleep(0.6)
        tell("half", 0.5)
    if task.folder:
        with open(os.path.join(task.folder, task.name), "w") as file:
            file.write(str(os.getpid()))
    end = time.monotonic() + 60
    while task.name.startswith("meets") and len(os.listdir(task.folder)) < 2:
        assert time.monotonic() < end, "alone"
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_are_named_and_the_others_go_on(jobs, tmp_path):
    tasks = [Chore(name, cost, str(tmp_path)) for cost, name in enumerate(("a", "wrong", "b", "broken", "c"))]
    failures = run_all(tasks, chore, jobs, lambda progress: None)
    assert failures == {"wrong": "this is wrong", "broken": "ZeroDivisionError: no"}
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}


def test_a_process_that_is_killed_takes_its_task_along_and_no_other(tmp_path):
    tasks = [Chore("killed", 9)] + [Chore(name, 1, str(tmp_path)) for name in "abcd"]
    failures = run_all(tasks, chore, 2, lambda progress: None)
    assert list(failures) == ["killed"] and "its process ended with code -9" in failures["killed"]
    assert {path.name for path in tmp_path.iterdir()} == set("abcd")


def test_two_processes_work_at_once(tmp_path):
    failures = run_all([Chore(name, 1, str(tmp_path)) for name in ("meets-a", "meets-b")], chore, 2, lambda progress: None)
    processes = {path.read_text() for path in tmp_path.iterdir()}
    assert failures == {} and len(processes) == 2 and str(os.getpid()) not in processes


def test_long_tasks_come_first_and_progress_is_told():
    told = []
    run_all([Chore("short", 1), Chore("slow", 3)], chore, 1, told.append)
    assert [(entry.name, entry.kind) for entry in told] == [
        ("slow", "begun"), ("slow", "running"), ("slow", "done"), ("short", "begun"), ("short", "done"),
    ]  # fmt: skip
    half = told[1]
    assert half.text == "half" and half.share == 3 / 8 and half.running == ("slow",) and 0.5 < half.left < 5
    assert (told[-1].done, told[-1].total, told[-1].left) == (2, 2, 0.0)
