import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import call, words
from installed import environment, phgcn, started
from real_graphs import needs
from run_folders import outcome
from small_graphs import small_graph, write_tables

from phgcn.data import load_graph, public_masks, splits

SETTINGS = (
    "--set epochs=150 --set patience=150 --set local_epochs=40 --set global_dropout=0.2 "
    "--set schedule=cosine --set edge_dropout=0.1 --set hidden_channels=8"
)
SHORT_INTERVAL = """
from phgcn.cli.app import main
from phgcn.train import checkpoints

checkpoints.SHORTEST_INTERVAL, checkpoints.SHARE = 0.01, 1.0
main()
"""


@needs("texas")
def test_a_real_graph_from_training_to_pictures(tmp_path, monkeypatch, capsys):
    """The training by the installed command; what follows runs here, since a new process takes
    seconds to import torch."""
    run = tmp_path / "run"
    quick = "--set epochs=60 --set heads=2 --set method=exact"
    options = f"--model phgcn --protocol geom --splits 2 {quick} --json --out"
    found = phgcn(*words("train texas", options, run))
    assert found.returncode == 0 and "Warning" not in found.stderr, found.stderr
    result = json.loads(found.stdout)
    assert result["graph"] == "texas"
    assert result["protocol"] == "geom"
    assert len(result["splits"]) == 2
    assert result["test"]["mean"] > majority_share("texas") + 0.1, "better than one answer"
    monkeypatch.chdir(tmp_path)
    call("predict", run, "texas -o predictions.csv")
    assert "predictions.csv" in capsys.readouterr().out
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 184
    call("plot", run, "-o", tmp_path / "plots")
    names = {"curves", "confusion", "embeddings", "distances"}
    names |= {"attention-neighbours", "attention-global"}
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == names
    assert all(is_drawn(path) for path in (tmp_path / "plots").iterdir())


def majority_share(name):
    """The test accuracy of saying the most frequent class always, over the first two splits of
    protocol geom."""
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
    drawn = (pixels != pixels[0, 0]).any(axis=-1).mean()
    return pixels.shape[0] > 100 and drawn > 0.01 and len(set(pixels.ravel())) > 10


def test_each_command_on_a_table_of_ones_own(graph, tmp_path, answer, capsys):
    run = tmp_path / "run"
    options = "--model global-gnn --splits 2 --set epochs=40 --set heads=2 --out"
    result = answer("train", graph, options, run)
    assert result["test"]["mean"] > 0.6
    evaluation = answer("evaluate", run)
    assert evaluation["as_recorded"]
    assert evaluation["test"] == result["test"]
    assert evaluation["classes"] == ["blue", "green", "red"]
    new = write_tables(small_graph(nodes=30, seed=3), tmp_path / "new", labels=False)
    predicted = answer("predict", run, new, "-o", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert predicted["nodes"] == 30 and [row["id"] for row in rows] == [f"n{k}" for k in range(30)]
    right = sum(row["label"] == ("blue", "green", "red")[k % 3] for k, row in enumerate(rows))
    assert right > 15, "the classes of a new graph, by features of the same kind"
    assert len(evaluation["splits"][0]["global_attention"]) == 1
    assert evaluation["global_path"] == result["global_path"]
    files = answer("plot", run, "--node n7")["files"]
    names = {"curves", "confusion", "embeddings", "distances", "attention-global"}
    assert {Path(file).stem for file in files} == names
    assert all(Path(file).stat().st_size > 5000 for file in files)
    call("evaluate", run)
    call("predict", run, new, "-o", tmp_path / "again.csv")
    call("plot", run)
    said = capsys.readouterr().out
    assert "as recorded" in said
    assert "Global attention, medians" in said
    assert "global path: gates" in said


def wait_for(folder, pattern, process):
    """Until a file of that name is there."""
    for _ in range(2400):
        if any(folder.glob(pattern)):
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError(f"{pattern} did not appear")


def started_with_many_checkpoints(*arguments):
    """The command, running, with a checkpoint sooner than after a second: trainings of tests are
    short."""
    command, pipe = [sys.executable, "-c", SHORT_INTERVAL, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True)


def test_killed_and_terminated_a_run_still_gives_the_same_bits(graph, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for trial, number, code, extra in (
        ("split-00", signal.SIGKILL, -signal.SIGKILL, ""),
        ("split-01", signal.SIGTERM, 130, "--resume"),
    ):
        arguments = words("train", graph, "--splits 2", SETTINGS, extra, "--out", cut)
        process = started_with_many_checkpoints(*arguments)
        wait_for(cut, f"{trial}.state-*.safetensors", process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == code and not (cut / "result.json").exists()
        left = len(list(cut.glob(f"{trial}.state-*.safetensors")))
        # three if it was killed before the oldest was removed
        assert 1 <= left <= 2 or (left == 3 and number == signal.SIGKILL)
    assert "--resume continues" in said and said.splitlines()[-1] == "phgcn: interrupted"
    call("train", graph, "--out", cut, "--resume")
    call("train", graph, "--splits 2", SETTINGS, "--out", whole)
    assert outcome(whole) == outcome(cut)
    assert not list(cut.glob("*.state-*")) and not list(cut.glob(".*.tmp"))


def test_resuming_with_other_settings_is_refused(graph, tmp_path, said):
    run = tmp_path / "run"
    call("train", graph, "--splits 1 --model mlp --set epochs=2 --out", run)
    for arguments, text in (
        ("--splits 2", "was begun with splits 1, not 2"),
        ("--model gcn", "was begun with model 'mlp', not 'gcn'"),
        ("--set heads=3", "was begun with heads 8, not 3"),
        ("--set epochs=1", "epochs is 1; allowed: 2 or more, as"),
    ):
        code, _, err = said("train", graph, arguments, "--resume --out", run)
        assert code == 2 and text in err
    other = write_tables(small_graph(seed=9), tmp_path / "other")
    code, _, err = said("train", other, "--resume --out", run)
    assert code == 2 and "was begun on another graph" in err
    # all as it was: nothing to do
    call("train", graph, "--resume --set epochs=2 --splits 1 --out", run)
    code, _, err = said("train", graph, "--out", run)
    assert code == 2 and "continue it with --resume" in err


def test_a_directed_run_is_continued_as_such(graph, tmp_path, answer):
    run = tmp_path / "run"
    call("train", graph, "--model gcn --splits 1 --set epochs=2 --directed --out", run)
    (run / "result.json").unlink()
    assert answer("train", graph, "--out", run, "--resume")["graph"] == "small"
    assert answer("evaluate", run)["as_recorded"]


def test_two_tuning_processes_share_a_study(graph, tmp_path):
    pytest.importorskip("optuna")
    study = tmp_path / "study"
    options = "--model mlp --splits 1 --set epochs=5 --json --out"
    arguments = words("tune", graph, options, study, "--trials")
    processes = [started(*arguments, 10_000) for _ in range(2)]
    told = [next(line for line in one.stderr if line.startswith("trial ")) for one in processes]
    for process in processes:  # both work
        process.terminate()
    for number, process in enumerate(processes):
        told[number] += process.communicate(timeout=60)[1]
    first, second = (set(re.findall(r"^trial (\d+)", text, re.MULTILINE)) for text in told)
    assert first and second and not first & second, "none twice"
    done = len(first | second)
    call(*arguments, done + 3)  # continues the study that was cut off
    rows = json.loads((study / "tune.json").read_text())["trials"]
    numbers = [row["number"] for row in rows]
    assert numbers == sorted(set(numbers))
    assert sum(row["state"] in ("complete", "pruned") for row in rows) >= done + 3
    call("train", graph, "--config", study / "config.toml", "--splits 1 --out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"] == "mlp"


def test_graphs_lists_what_is_there(tmp_path, answer, capsys, monkeypatch):
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = {row["name"]: row for row in answer("graphs")}
    assert rows["cora"]["published"]["nodes"] == 2708
    assert rows["cora"]["found"] is None
    assert rows["cora"]["path"] is None
    call("graphs")
    assert "cora" in capsys.readouterr().out


def test_doctor_finds_nothing_wrong_here(answer, capsys):
    found = answer("doctor")
    assert found["ok"] and all(test["ok"] for test in found["tests"]) and found["versions"]["torch"]
    call("doctor")
    assert "all is well" in capsys.readouterr().out


def test_doctor_says_what_is_wrong(said, monkeypatch):
    from phgcn.cli import doctor

    def broken(device):
        raise ValueError(f"the error on {device} is 1")

    monkeypatch.setitem(doctor.TESTS, "attention, exact sum", broken)
    code, out, _ = said("doctor")
    assert code == 1 and "WRONG" in out and "the error on cpu is 1" in out


def test_curves_for_tensorboard_are_written_on_request(graph, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = "--model mlp --splits 1 --set epochs=3 --tensorboard --out"
    call("train", graph, options, tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "split-00"))
    events.Reload()
    curve = [event.value for event in events.Scalars("val_loss")]
    rows = (tmp_path / "run" / "split-00.csv").read_text().splitlines()[1:]
    assert curve == pytest.approx([float(row.split(",")[2]) for row in rows])
