import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from installed import environment, phgcn, started
from real_graphs import DATA, needs
from run_folders import outcome
from small_graphs import small_graph, write_tables

from phgcn.cli import app
from phgcn.data import load_graph, public_masks, splits

SETTINGS = (
    "--set", "epochs=150", "--set", "patience=150", "--set", "local_epochs=40", "--set", "global_dropout=0.2",
    "--set", "schedule=cosine", "--set", "edge_dropout=0.1", "--set", "hidden_channels=8",
)  # fmt: skip
SHORT_INTERVAL = """
from phgcn.cli.app import main
from phgcn.train import checkpoints

checkpoints.SHORTEST_INTERVAL, checkpoints.SHARE = 0.01, 1.0
main()
"""


def call(*arguments):
    assert app.run([str(argument) for argument in arguments]) == 0


def answer(capsys, *arguments):
    """What the command says with --json."""
    capsys.readouterr()
    call(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def graph(tmp_path):
    return write_tables(small_graph(), tmp_path / "small")


@needs("texas")
def test_a_real_graph_from_training_to_pictures(tmp_path, monkeypatch, capsys):
    """The training by the installed command; what follows runs here, since a new process takes seconds to import torch."""
    run = tmp_path / "run"
    quick = ("--set", "epochs=60", "--set", "heads=2", "--set", "method=exact")
    found = phgcn("train", "texas", "--model", "phgcn", "--protocol", "geom", "--splits", 2, *quick, "--out", run, "--json")
    assert found.returncode == 0 and "Warning" not in found.stderr, found.stderr
    result = json.loads(found.stdout)
    assert result["graph"] == "texas" and result["protocol"] == "geom" and len(result["splits"]) == 2
    assert result["test"]["mean"] > majority_share("texas") + 0.1, "no better than always the most frequent class"
    monkeypatch.chdir(tmp_path)
    call("predict", run, "texas", "-o", "predictions.csv")
    assert "predictions.csv" in capsys.readouterr().out
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 184
    call("plot", run, "-o", tmp_path / "plots")
    names = {"curves", "confusion", "embeddings", "distances", "attention-neighbours", "attention-global"}
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == names
    assert all(is_drawn(path) for path in (tmp_path / "plots").iterdir())


def majority_share(name):
    """The test accuracy of saying the most frequent class always, over the first two splits of protocol geom."""
    data = load_graph(name)
    shares = []
    for split in splits(data.y, "geom", 2, 0, masks=public_masks(data)):
        frequent = data.y[split.train].mode().values
        shares.append(float((data.y[split.test] == frequent).double().mean()))
    return sum(shares) / 2


def is_drawn(path):
    """Whether a picture has more than a background: many pixels, of several colours."""
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    return pixels.shape[0] > 100 and (pixels != pixels[0, 0]).any(axis=-1).mean() > 0.01 and len(set(pixels.ravel())) > 10


def test_each_command_on_a_table_of_ones_own(graph, tmp_path, capsys):
    run = tmp_path / "run"
    result = answer(capsys, "train", graph, "--splits", 2, "--set", "epochs=40", "--set", "heads=2", "--out", run)
    assert result["test"]["mean"] > 0.6
    evaluation = answer(capsys, "evaluate", run)
    assert (
        evaluation["as_recorded"] and evaluation["test"] == result["test"] and evaluation["classes"] == ["blue", "green", "red"]
    )
    new = write_tables(small_graph(nodes=30, seed=3), tmp_path / "new", labels=False)
    predicted = answer(capsys, "predict", run, new, "-o", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert predicted["nodes"] == 30 and [row["id"] for row in rows] == [f"n{k}" for k in range(30)]
    right = sum(row["label"] == ("blue", "green", "red")[k % 3] for k, row in enumerate(rows))
    assert right > 15, "the classes of a new graph, by features of the same kind"
    assert len(evaluation["splits"][0]["global_attention"]) == 1 and evaluation["global_path"] == result["global_path"]
    files = answer(capsys, "plot", run, "--node", "n7")["files"]
    names = {"curves", "confusion", "embeddings", "distances", "attention-global"}
    assert {Path(file).stem for file in files} == names and all(Path(file).stat().st_size > 5000 for file in files)
    for command in (["evaluate", run], ["predict", run, new, "-o", tmp_path / "again.csv"], ["plot", run]):
        call(*command)
    said = capsys.readouterr().out
    assert "as recorded" in said and "Global attention, medians" in said and "global path: gates" in said


def wait_for(folder, pattern, process):
    """Until a file of that name is there."""
    for _ in range(2400):
        if any(folder.glob(pattern)):
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError(f"{pattern} did not appear")


def started_with_many_checkpoints(*arguments):
    """The command, running, with a checkpoint sooner than after a second: trainings of tests are short."""
    command, pipe = [sys.executable, "-c", SHORT_INTERVAL, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True)


def test_killed_and_terminated_a_run_still_gives_the_same_bits(graph, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for trial, number, code, extra in (
        ("split-00", signal.SIGKILL, -signal.SIGKILL, ()),
        ("split-01", signal.SIGTERM, 130, ("--resume",)),
    ):
        process = started_with_many_checkpoints("train", graph, "--splits", 2, *SETTINGS, "--out", cut, *extra)
        wait_for(cut, f"{trial}.state-*.safetensors", process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == code and not (cut / "result.json").exists()
        left = len(list(cut.glob(f"{trial}.state-*.safetensors")))
        assert 1 <= left <= 2 or (left == 3 and number == signal.SIGKILL), "three if killed before the oldest was removed"
    assert "--resume continues" in said and said.splitlines()[-1] == "phgcn: interrupted"
    call("train", graph, "--out", cut, "--resume")
    call("train", graph, "--splits", 2, *SETTINGS, "--out", whole)
    assert outcome(whole) == outcome(cut)
    assert not list(cut.glob("*.state-*")) and not list(cut.glob(".*.tmp"))


def test_resuming_with_other_settings_is_refused(graph, tmp_path, capsys):
    run = tmp_path / "run"
    call("train", graph, "--splits", 1, "--model", "mlp", "--set", "epochs=2", "--out", run)
    for arguments, text in (
        (["--splits", "2"], "was begun with splits 1, not 2"),
        (["--model", "gcn"], "was begun with model 'mlp', not 'gcn'"),
        (["--set", "heads=3"], "was begun with heads 8, not 3"),
        (["--set", "epochs=1"], "epochs is 1; allowed: 2 or more, as"),
    ):
        capsys.readouterr()
        assert app.run(["train", str(graph), "--out", str(run), "--resume", *arguments]) == 2
        assert text in capsys.readouterr().err
    other = write_tables(small_graph(seed=9), tmp_path / "other")
    assert app.run(["train", str(other), "--out", str(run), "--resume"]) == 2
    assert "was begun on another graph" in capsys.readouterr().err
    call("train", graph, "--out", run, "--resume", "--set", "epochs=2", "--splits", 1)  # all as it was: nothing to do
    assert app.run(["train", str(graph), "--out", str(run)]) == 2
    assert "continue it with --resume" in capsys.readouterr().err


def test_a_directed_run_is_continued_as_such(graph, tmp_path, capsys):
    run = tmp_path / "run"
    call("train", graph, "--model", "gcn", "--splits", 1, "--set", "epochs=2", "--directed", "--out", run)
    (run / "result.json").unlink()
    assert answer(capsys, "train", graph, "--out", run, "--resume")["graph"] == "small"
    assert answer(capsys, "evaluate", run)["as_recorded"]


def test_two_tuning_processes_share_a_study(graph, tmp_path):
    pytest.importorskip("optuna")
    study = tmp_path / "study"
    arguments = ("tune", graph, "--model", "mlp", "--splits", 1, "--set", "epochs=5", "--out", study, "--json", "--trials")
    processes = [started(*arguments, 10_000) for _ in range(2)]
    heard = [next(line for line in process.stderr if line.startswith("trial ")) for process in processes]  # both work
    for process in processes:
        process.terminate()
    told = [first + process.communicate(timeout=60)[1] for first, process in zip(heard, processes, strict=True)]
    first, second = (set(re.findall(r"^trial (\d+)", text, re.MULTILINE)) for text in told)
    assert first and second and not first & second, "none twice"
    done = len(first | second)
    call(*arguments, done + 3)  # continues the study that was cut off
    rows = json.loads((study / "tune.json").read_text())["trials"]
    numbers = [row["number"] for row in rows]
    assert numbers == sorted(set(numbers)) and sum(row["state"] in ("complete", "pruned") for row in rows) >= done + 3
    call("train", graph, "--config", study / "config.toml", "--splits", 1, "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"] == "mlp"


def test_graphs_lists_what_is_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = {row["name"]: row for row in answer(capsys, "graphs")}
    assert rows["cora"]["published"]["nodes"] == 2708 and rows["cora"]["found"] is None and rows["cora"]["path"] is None
    call("graphs")
    assert "cora" in capsys.readouterr().out


@needs("texas")
def test_graphs_counts_a_file_that_is_there(capsys):
    row = next(row for row in answer(capsys, "graphs") if row["name"] == "texas")
    assert row["found"] == row["published"] and row["path"] == str(DATA / "texas.npz")


def test_doctor_finds_nothing_wrong_here(capsys):
    found = answer(capsys, "doctor")
    assert found["ok"] and all(test["ok"] for test in found["tests"]) and found["versions"]["torch"]
    call("doctor")
    assert "all is well" in capsys.readouterr().out


def test_doctor_says_what_is_wrong(capsys, monkeypatch):
    from phgcn.cli import doctor

    def broken(device):
        raise ValueError(f"the error on {device} is 1")

    monkeypatch.setitem(doctor.TESTS, "attention, exact sum", broken)
    assert app.run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out and "the error on cpu is 1" in out


def test_curves_for_tensorboard_are_written_on_request(graph, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    call("train", graph, "--model", "mlp", "--splits", 1, "--set", "epochs=3", "--out", tmp_path / "run", "--tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "split-00"))
    events.Reload()
    curve = [event.value for event in events.Scalars("val_loss")]
    rows = (tmp_path / "run" / "split-00.csv").read_text().splitlines()[1:]
    assert curve == pytest.approx([float(row.split(",")[2]) for row in rows])
