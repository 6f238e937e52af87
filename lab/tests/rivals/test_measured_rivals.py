from dataclasses import replace
from typing import ClassVar

import pytest

from phgcn.files import write_tensors
from phgcn_lab.experiment import execute
from phgcn_lab.rivals import adapters, clouds, measure, run
from phgcn_lab.rivals.adapters import Rival, named
from phgcn_lab.rivals.clouds import Place
from phgcn_lab.rivals.run import Effort
from phgcn_lab.rivals.worker import Request, Worker

pytest.importorskip("matplotlib")
EFFORT = Effort((150, 300), (2,), ("dense", "sparse"), rounds=2, limit=90.0, repeat_below=90.0)


def execute_rivals(effort, out, note="", deadline=run.NEVER, only_report=False):
    return execute(run.Rivals(out, effort, "cpu", note, deadline), only_report=only_report)


def slow(points, values, wait):
    return values


class WorkerHere(Worker):
    """Answers without a process, and that a call was stopped if it took longer than the limit."""

    asked: ClassVar[list] = []

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


@pytest.fixture
def few(monkeypatch):
    """Two methods of ours, one that is slow and one that is broken, without a process."""
    waits = ({"wait": 0.0}, {"wait": 99.0}, {"wait": 999.0})
    rivals = (
        named("lattice"),
        named("exact"),
        Rival("slow", slow, waits, gradients=False),
        Rival("broken", slow),
    )
    monkeypatch.setattr(adapters, "RIVALS", rivals)
    monkeypatch.setattr(run, "Worker", WorkerHere)
    monkeypatch.setattr(run.reports, "write", lambda folder, name, content: [])
    monkeypatch.setattr(WorkerHere, "asked", [])


def test_all_clouds_are_measured_once_and_costlier_settings_than_the_slow_are_not_tried(
    few, tmp_path
):
    part = execute_rivals(replace(EFFORT, sizes=(150,)), tmp_path)
    content = execute_rivals(EFFORT, tmp_path)
    assert {(row["cloud"], row["count"]) for row in content["rows"]} == {
        (c, n) for c in EFFORT.clouds for n in EFFORT.sizes
    }
    assert content["missing"] == {"broken": "no such package"} and content["left"] == []
    assert content["rows"][: len(part["rows"])] == part["rows"]  # not measured again
    exact = [row for row in content["rows"] if row["rival"] == "exact"]
    for row in exact:
        assert row["errors"]["random"]["rms"] < 1e-4 and row["cosine"] > 0.999
        assert all(len(row[kind]["times"]) == 2 for kind in ("forward", "step"))
    stopped = [row for row in content["rows"] if row["rival"] == "slow" and row["number"] > 0]
    assert len(stopped) == 8 and all(row["stopped_forward"] == 90.0 for row in stopped)
    assert not [q for q in WorkerHere.asked if q.rival == "slow" and q.setting == 2]
    other = execute_rivals(replace(EFFORT, limit=6.0), tmp_path)["failures"]
    assert len(other) == 4 and all("was made with asked" in why for why in other.values())


def test_results_are_reported_without_measuring_and_nothing_is_begun_late(few, tmp_path):
    late = execute_rivals(EFFORT, tmp_path, deadline=0.0)
    assert late["rows"] == [] and len(late["left"]) == 4
    measured = execute_rivals(replace(EFFORT, sizes=(150,)), tmp_path)
    WorkerHere.asked.clear()
    content = execute_rivals(EFFORT, tmp_path, note="a note", only_report=True)
    assert content["rows"] == measured["rows"] and content["note"] == "a note"
    assert WorkerHere.asked == [] and len(content["left"]) == 2
    assert [origin["place"] for origin in content["origins"]] == [
        ["dense", 2, 150],
        ["sparse", 2, 150],
    ]


@pytest.mark.parametrize(
    ("kind", "row", "before", "expected"),
    [
        ("forward", {}, {}, 0.0),
        (
            "forward",
            {},
            {"forward": {"seconds": 2.0}},
            6.0,
        ),  # each setting takes three times longer
        ("forward", {}, {"stopped_forward": 5.0}, float("inf")),
        ("step", {"forward": {"seconds": 2.0}}, {}, 4.0),  # gradients at least double a forward
        ("step", {"forward": {"seconds": 1.0}}, {"step": {"seconds": 4.0}}, 12.0),
        ("step", {"stopped_forward": 5.0}, {}, float("inf")),
    ],
)
def test_what_would_take_too_long_is_foreseen(kind, row, before, expected):
    assert run.expected_seconds(Rival("r", slow, growth=3.0), kind, row, before) == expected


def test_a_process_that_takes_too_long_is_ended_and_started_again(tmp_path):
    worker, place = Worker(tmp_path, "cpu", 1), Place("dense", 2, 300)
    try:
        assert worker.ask(Request(place, "pose"), 0.0) == {"stopped": 0.0}  # while it starts
        assert worker.process is None
        assert worker.ask(Request(place, "time", "exact"), 60.0)["seconds"] > 0
        assert "IndexError" in worker.ask(Request(place, "time", "exact", 7), 60.0)["failed"]
        process = worker.process
        assert worker.ask(Request(place, "examine", "slicing", 3), 0.0) == {"stopped": 0.0}
        assert not process.is_alive()
    finally:
        worker.end()
    assert worker.process is None


def test_every_process_is_warm_before_a_setting_is_timed(tmp_path, monkeypatch):
    worker, place, asked = Worker(tmp_path, "cpu", 1), Place("dense", 2, 300), []

    def exchange(request, limit):
        asked.append((request.what, request.setting))
        return {"stopped": limit} if (request.what, request.setting) == ("warm", 2) else {}

    monkeypatch.setattr(worker, "_start", lambda: setattr(worker, "process", "a process"))
    monkeypatch.setattr(worker, "_exchange", exchange)
    for setting in (0, 0, 1):
        worker.ask(Request(place, "time", "exact", setting), 1.0)
    assert asked == [("pose", 0), ("warm", 0), ("time", 0), ("time", 0), ("warm", 1), ("time", 1)]
    late = worker.ask(Request(place, "examine", "exact", 2), 1.0)
    assert late == {"failed": "its first call, which compiles, took more than 180 s"}


def test_embeddings_are_read_and_those_of_another_training_refused(tmp_path):
    points, values = clouds.make(Place("dense", 4, 50), tmp_path)
    path = clouds.embedding_file(tmp_path, "cora")
    path.parent.mkdir()
    tensors = {"points": points, "values": values[:, :4].contiguous()}
    write_tensors(path, tensors, {"graph": "cora", "epochs": 3})
    (place,) = clouds.known_places(["cora"])
    assert place == Place("cora", 4, 2708) and clouds.make(place, tmp_path, 3)[1].shape == (50, 8)
    with pytest.raises(ValueError, match="was made with 3 epochs; allowed: 4"):
        clouds.make(place, tmp_path, 4)


def test_efforts_change_by_the_command_line():
    changed = run.change(run.full("cpu"), sizes=["200", "100"], dims=["3"], clouds=["shell"])
    assert (changed.sizes, changed.dims, changed.clouds) == ((100, 200), (3,), ("shell",))
    assert run.change(run.quick("cpu")) == run.quick("cpu")
    assert run.full("cuda").sizes[-1] == 10_000_000 and run.full("cpu").sizes == (20_000, 200_000)
    with pytest.raises(ValueError, match="clouds has 'fog'; allowed: dense"):
        run.change(EFFORT, clouds=["fog"])
    with pytest.raises(ValueError, match="sizes is '1,x'; allowed: positive"):
        run.change(EFFORT, sizes=["1", "x"])
