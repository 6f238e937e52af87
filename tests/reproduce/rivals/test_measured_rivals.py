import json
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from phgcn.files import write_tensors
from phgcn.reproduce.rivals import adapters, clouds, measure, run
from phgcn.reproduce.rivals.adapters import Rival, named
from phgcn.reproduce.rivals.clouds import Place
from phgcn.reproduce.rivals.run import Effort, Measurement
from phgcn.reproduce.rivals.worker import Request, Worker

pytest.importorskip("matplotlib")
EFFORT = Effort((150, 300), (2,), ("dense", "sparse"), rounds=2, limit=90.0, repeat_below=90.0, patience=90.0, epochs=1)


def silent(text, share):
    pass


def slow(points, values, wait):
    time.sleep(wait)
    return values


def broken(points, values):
    raise ModuleNotFoundError("No module named 'nothing'")


class WorkerHere(Worker):
    """Answers without a process, and says that a call was stopped if it took longer than the limit."""

    def ask(self, request, limit):
        self.asked.append(request)
        problem = measure.pose(request.place, self.folder, self.device)
        if request.what == "pose":
            return {}
        rival = named(request.rival)
        setting = rival.settings[request.setting]
        if rival.name == "broken":
            return {"failed": "no such package"}
        if setting.get("wait", 0) > limit:
            return {"stopped": limit}
        return measure.examine(rival, setting, problem, request.kind)

    asked: ClassVar[list] = []


@pytest.fixture
def few(monkeypatch):
    """Two methods of ours, one that is slow and one that is broken, without a process."""
    waits = ({"wait": 0.0}, {"wait": 99.0}, {"wait": 999.0})
    rivals = (named("lattice"), named("exact"), Rival("slow", slow, waits, gradients=False), Rival("broken", broken))
    monkeypatch.setattr(adapters, "RIVALS", rivals)
    monkeypatch.setattr(run, "Worker", WorkerHere)
    monkeypatch.setattr(run.reports, "write", lambda folder, name, content: [])
    WorkerHere.asked = []


def test_all_clouds_are_measured_and_the_slow_are_not_tried_again(few, tmp_path):
    content = run.run(EFFORT, tmp_path, silent)
    assert {(row["cloud"], row["count"]) for row in content["rows"]} == {(c, n) for c in EFFORT.clouds for n in EFFORT.sizes}
    assert content["missing"] == {"broken": "no such package"} and content["left"] == []
    exact = [row for row in content["rows"] if row["rival"] == "exact"]
    assert len(exact) == 4 and all(row["errors"]["random"]["rms"] < 1e-4 and row["cosine"] > 0.999 for row in exact)
    assert all(len(row[kind]["times"]) == 2 and row[kind]["seconds"] > 0 for row in exact for kind in ("forward", "step"))
    stopped = [row for row in content["rows"] if row["rival"] == "slow" and row["number"] > 0]
    assert len(stopped) == 8 and all(row["stopped_forward"] == 90.0 for row in stopped)
    tried = {
        (q.place.cloud, q.place.count) for q in WorkerHere.asked if q.rival == "slow" and q.setting == 1 and q.what == "examine"
    }
    assert tried == {("dense", 150), ("sparse", 150)}  # neither the larger clouds, nor
    assert not [q for q in WorkerHere.asked if q.rival == "slow" and q.setting == 2]  # the costlier setting


def test_what_was_measured_is_not_measured_again(few, tmp_path):
    part = run.run(replace(EFFORT, sizes=(150,)), tmp_path, silent)
    WorkerHere.asked = []
    whole = run.run(EFFORT, tmp_path, silent)
    assert {q.place.count for q in WorkerHere.asked} == {300} and whole["rows"][: len(part["rows"])] == part["rows"]
    lines = (tmp_path / "rivals.jsonl").read_text().splitlines()
    assert [json.loads(line)["place"] for line in lines] == [[c, 2, n] for n in (150, 300) for c in ("dense", "sparse")]
    with pytest.raises(ValueError, match="was made with other settings"):
        run.run(replace(EFFORT, limit=6.0), tmp_path, silent)


def test_results_of_another_machine_are_reported_without_measuring(few, tmp_path):
    measured = run.run(replace(EFFORT, sizes=(150,)), tmp_path, silent)
    line = json.loads((tmp_path / "rivals.jsonl").read_text().splitlines()[0])
    line["provenance"]["machine"] = "another"
    (tmp_path / "rivals-gpu.jsonl").write_text(json.dumps(line) + "\n")
    WorkerHere.asked = []
    content = run.write_report(EFFORT, tmp_path, "cuda", "a note")
    assert content["provenance"]["machine"] == "another" and content["note"] == "a note" and WorkerHere.asked == []
    assert content["rows"] == [row for row in measured["rows"] if row["cloud"] == "dense"]
    assert [origin["place"] for origin in content["origins"]] == [["dense", 2, 150]]


def test_no_cloud_is_begun_after_the_time_is_up(few, tmp_path):
    content = run.run(EFFORT, tmp_path, silent, seconds=0.0)
    assert content["rows"] == [] and len(content["left"]) == 4 and WorkerHere.asked == []


def test_a_long_call_that_takes_as_long_on_every_cloud_is_made_once(few, tmp_path):
    content = run.run(replace(EFFORT, sizes=(150,), repeat_below=0.0), tmp_path, silent)
    dense, sparse = (row for row in content["rows"] if row["rival"] == "exact")
    assert sparse["timed_on"] == "dense" and sparse["cloud"] == "sparse" and sparse["forward"] == dense["forward"]


def test_what_would_take_too_long_is_foreseen():
    rival = Rival("r", slow, growth=3.0)
    other = {"rival": "r", "cloud": "dense", "dim": 2, "count": 100, "number": 0, "forward": {"seconds": 1.0}}

    def foreseen(kind="forward", limit=5.0, entry=other, rival=rival, **changes):
        return run.too_slow({**other, **changes}, kind, rival, entry, limit)

    assert foreseen(count=600) and not foreseen(count=400)  # six times the points take six seconds
    assert foreseen(number=2) and not foreseen(number=1)  # each setting takes three times as long
    assert foreseen("step", limit=1.5) and not foreseen("step", limit=2.5)
    assert (
        not foreseen(number=2, cloud="sparse") and not foreseen(number=2, dim=3) and not foreseen(number=2, rival=named("LSH"))
    )
    stopped = {key: value for key, value in other.items() if key != "forward"} | {"stopped_step": 5.0}
    assert foreseen("step", entry=stopped) and not foreseen("forward", entry=stopped)
    assert foreseen("step", entry=stopped, number=1) and not foreseen("step", entry={**stopped, "number": 1})
    steps = {**other, "step": {"seconds": 4.0}}  # gradients take four times the forward
    assert foreseen("step", entry=steps, number=1, forward={"seconds": 1.5})
    assert not foreseen("step", entry=steps, number=1, forward={"seconds": 1.2}, limit=15.0)
    anywhere = Rival("r", slow, any_cloud=True)
    assert foreseen(count=600, cloud="sparse", rival=anywhere)


def test_of_an_even_number_of_times_the_lower_median_counts(tmp_path):
    journal = run.Journal(tmp_path / "rivals.jsonl")
    row = {"forward": {"seconds": 9.0, "times": [3.0, 1.0]}, "step": {"seconds": 9.0, "times": []}}
    journal.lines.append({"rows": [row]})
    assert [journal.rows[0][kind]["seconds"] for kind in ("forward", "step")] == [1.0, 9.0]


@pytest.mark.parametrize(("device", "tried"), [("cpu", False), ("cuda", True)])
def test_small_clouds_tell_how_long_large_ones_take_on_a_cpu_alone(device, tried, few, tmp_path):
    place, journal = Place("dense", 2, 300), run.Journal(tmp_path / "rivals.jsonl")
    small = {"rival": "lattice", "cloud": "dense", "dim": 2, "count": 10, "number": 0, "forward": {"seconds": 10.0}}
    journal.lines.append({"rows": [small]})
    run.Measurement(place, EFFORT, WorkerHere(tmp_path, "cpu"), device, journal, lambda text: None).measure()
    assert any(q.rival == "lattice" and q.what == "examine" for q in WorkerHere.asked) is tried


def test_a_process_that_takes_too_long_is_ended_and_started_again(tmp_path):
    worker, place = Worker(tmp_path, "cpu"), Place("dense", 2, 300)
    try:
        assert worker.ask(Request(place, "pose"), 0.0) == {"stopped": 0.0}  # while it starts
        assert worker.process is None
        again = worker.ask(Request(place, "time", "exact"), 60.0)
        assert again["seconds"] > 0
        assert "IndexError" in worker.ask(Request(place, "time", "exact", 7), 60.0)["failed"]
        process = worker.process
        assert process.is_alive()
        assert worker.ask(Request(place, "examine", "slicing", 3), 0.0) == {"stopped": 0.0}
        assert not process.is_alive()
        worker._start()
        worker.process.kill()
        assert worker.ask(Request(place, "pose"), 60.0) == {"failed": "its process died"}
    finally:
        worker.end()
    assert worker.process is None


def test_every_process_is_warm_before_a_setting_is_timed(tmp_path, monkeypatch):
    worker, place, asked = Worker(tmp_path, "cpu"), Place("dense", 2, 300), []

    def exchange(request, limit):
        asked.append((request.what, request.setting))
        return {"stopped": limit} if (request.what, request.setting) == ("warm", 2) else {}

    monkeypatch.setattr(worker, "_start", lambda: setattr(worker, "process", "a process"))
    monkeypatch.setattr(worker, "_exchange", exchange)
    for setting in (0, 0, 1):
        worker.ask(Request(place, "time", "exact", setting), 1.0)
    assert asked == [("pose", 0), ("warm", 0), ("time", 0), ("time", 0), ("warm", 1), ("time", 1)]
    late = worker.ask(Request(place, "examine", "exact", 2), 1.0)
    assert late == {"failed": "its first call, which compiles, took more than 180 s"} and ("examine", 2) not in asked
    worker.process = None  # as after a call that took too long
    worker.end()
    asked.clear()
    worker.ask(Request(place, "time", "exact"), 1.0)
    assert asked == [("pose", 0), ("warm", 0), ("time", 0)]


def test_embeddings_are_read_and_those_of_another_training_refused(tmp_path):
    points, values = clouds.make(Place("dense", 4, 50), tmp_path)
    path = clouds.embedding_file(tmp_path, "cora")
    path.parent.mkdir()
    write_tensors(path, {"points": points, "values": values[:, :4].contiguous()}, {"graph": "cora", "epochs": 3})
    place = clouds.train_embedding("cora", tmp_path, 3)
    assert place == Place("cora", 4, 50) and clouds.make(place, tmp_path)[1].shape == (50, 8)
    with pytest.raises(ValueError, match="was made with 3 epochs; allowed: 4"):
        clouds.train_embedding("cora", tmp_path, 4)


def test_efforts_change_by_the_command_line():
    changed = run.change(run.full("cpu"), ["200", "100"], ["3"], ["shell", "cora"])
    assert (changed.sizes, changed.dims, changed.clouds) == ((100, 200), (3,), ("shell", "cora"))
    assert run.change(run.quick("cpu"), None, None, None) == run.quick("cpu")
    assert run.full("cuda").sizes[-1] == 10_000_000 and run.full("cpu").sizes == (20_000, 200_000)
    with pytest.raises(ValueError, match="clouds is 'fog'; allowed: dense"):
        run.change(EFFORT, None, None, ["fog"])
    with pytest.raises(ValueError, match="sizes is '1,x'; allowed: positive"):
        run.change(EFFORT, ["1", "x"], None, None)


def test_a_cloud_that_cannot_be_prepared_is_named(tmp_path):
    class Failing(WorkerHere):
        def ask(self, request, limit):
            return {"failed": "out of memory"}

    journal = run.Journal(tmp_path / "rivals.jsonl")
    with pytest.raises(ValueError, match="dense, D = 2, N = 150 could not be prepared"):
        Measurement(Place("dense", 2, 150), EFFORT, Failing(Path(), "cpu"), "cpu", journal, lambda text: None).measure()
