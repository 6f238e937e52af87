"""A training over ranks is that of one process, and its folder is too."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rank_pool import free_port
from real_graphs import needs
from run_folders import losses, outcome
from training_cases import make_plan

from phgcn.cli.app import run as command
from phgcn.files import read_tensors
from phgcn.train import Run, find
from phgcn.train.labels import label_attentions
from phgcn.train.prediction import evaluate, trial_model
from phgcn.train.prepare import prepare
from phgcn.train.settings import as_toml
from phgcn.train.yardsticks import describe_yardsticks

pytestmark = needs("texas", "cora")

# With a batch norm, a bias before it has a gradient of 0 but for rounding, which Adam makes steps
# of: no two orders of a sum train alike.  tests/distributed/test_rank_models.py has batch norms, in
# float64.
SMALL = {"hidden_channels": 16, "heads": 2, "dropout": 0.0, "learning_rate": 0.01}
TEXAS = make_plan(
    "texas", "global-gnn", 8, **SMALL, norm="layer", global_layers=1, local="sage", residual=True
)
CORA = make_plan("cora", "phgcn", 2, **SMALL | {"hidden_channels": 4}, decay_global=1.0)
WITH_LABELS = make_plan("texas", "global-gnn", 6, **SMALL, norm="layer", labels=True)
WITH_DROPOUT = make_plan("texas", "global-gnn", 8, **SMALL | {"dropout": 0.5}, global_layers=1)


@pytest.fixture(scope="module")
def texas(tmp_path_factory):
    """The folder of a run on texas by one process."""
    folder = tmp_path_factory.mktemp("one") / "texas"
    data = find("texas")[1]
    Run.create(folder, TEXAS, data).train(data)
    return folder


def test_texas_with_two_ranks_equals_one(pool, texas, tmp_path):
    assert pool.run("training_cases:train", 2, folder=str(tmp_path / "run"), plan=TEXAS) == [
        "done",
        "done",
    ]
    torch.testing.assert_close(losses(tmp_path / "run"), losses(texas), rtol=0, atol=1e-4)
    # The folder is that of one process: files, what evaluate finds, and numbers.
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        file.name for file in texas.iterdir()
    }
    run = Run.open(tmp_path / "run")
    assert evaluate(run, run.data())["as_recorded"]
    ours, theirs = run.result(), Run.open(texas).result()
    assert ours["test"] == theirs["test"]
    assert ours["global_path"]["effective_nodes"] == pytest.approx(
        theirs["global_path"]["effective_nodes"], rel=1e-3
    )


def test_cora_with_two_ranks_equals_one(pool, tmp_path):
    data = find("cora")[1]
    Run.create(tmp_path / "one", CORA, data).train(data)
    pool.run("training_cases:train", 2, folder=str(tmp_path / "two"), plan=CORA)
    torch.testing.assert_close(
        losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=0, atol=1e-4
    )


def test_labels_are_attended_to_over_ranks(pool, tmp_path):
    """Each rank draws its own keys, so losses differ from those of one process; what is attended to
    when all is trained is the same, and a process alone finds the same scores."""
    pool.run("training_cases:train", 2, folder=str(tmp_path / "run"), plan=WITH_LABELS)
    run = Run.open(tmp_path / "run")
    data, trial = run.data(), run.plan.trials()[0]
    task, kept = prepare(run.plan, data)[0], run.kept_keys(trial)
    assert torch.equal(kept.nodes, task.train.sort().values)
    assert kept.names() == [data.node_id[n] if "node_id" in data else str(n) for n in kept.nodes]
    torch.testing.assert_close(
        kept.values, torch.nn.functional.one_hot(task.y[kept.nodes], task.classes).float()
    )
    row = run.trial_result(trial)
    out = trial_model(run, trial, data).logits()
    for nodes, score in ((task.val, row["val_metric"]), (task.test, row["test"])):
        assert float(task.kind.metric("accuracy", out[nodes], task.y[nodes])) == score
    model = run.model(trial)
    for layer in label_attentions(model).values():
        read = torch.nn.functional.layer_norm(*hidden_of(model, task))
        torch.testing.assert_close(
            layer.kept_positions, layer.positions(read)[kept.nodes], rtol=1e-4, atol=1e-4
        )


def hidden_of(model, task):
    """The input of the last linear map, and its width."""
    seen = []
    model.lin_out.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(*task.inputs)
    return seen[0], seen[0].shape[1:]


def test_an_interrupted_run_goes_on_with_the_same_bits(pool, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    pool.run("training_cases:train", 2, folder=str(whole), plan=WITH_DROPOUT)
    stopped = pool.run("training_cases:train", 2, folder=str(cut), plan=WITH_DROPOUT, interrupt=4)
    assert stopped == ["interrupted", "interrupted"]
    (checkpoint,) = cut.glob("*.state-*.safetensors")
    states = read_tensors(checkpoint)[0]
    assert not torch.equal(states["random.cpu"], states["random-1.cpu"])  # dropout differs by rank
    pool.run("training_cases:train", 2, folder=str(cut), plan=WITH_DROPOUT)
    assert outcome(cut) == outcome(whole)


def test_an_interrupted_run_goes_on_with_another_number_of_ranks(pool, texas, tmp_path):
    for place, sizes in enumerate(((3, 1), (2, 4))):
        folder = tmp_path / str(place)
        pool.run("training_cases:train", sizes[0], folder=str(folder), plan=TEXAS, interrupt=3)
        if sizes[1] == 1:  # a plain process, not a group of one
            Run.open(folder).train(find("texas")[1])
        else:
            pool.run("training_cases:train", sizes[1], folder=str(folder), plan=TEXAS)
        torch.testing.assert_close(losses(folder), losses(texas), rtol=0, atol=1e-4)


def test_ranks_train_on_parts_that_they_read_alone(pool, texas, tmp_path, capsys):
    assert (
        command(
            [
                "partition",
                "texas",
                "--parts",
                "2",
                "--division",
                "contiguous",
                "--out",
                str(tmp_path / "parts"),
            ]
        )
        == 0
    )
    assert "of the edges are cut; written to" in capsys.readouterr().out
    pool.run(
        "training_cases:train",
        2,
        folder=str(tmp_path / "run"),
        plan=TEXAS,
        parts=str(tmp_path / "parts"),
    )
    torch.testing.assert_close(losses(tmp_path / "run"), losses(texas), rtol=0, atol=1e-4)
    assert (
        Run.open(tmp_path / "run").about["graph"]["digest"]
        == Run.open(texas).about["graph"]["digest"]
    )


def test_yardsticks_are_those_of_one_process(pool, tmp_path):
    plan, data = replace(TEXAS, yardsticks="all"), find("texas")[1]
    one = Run.create(tmp_path / "one", plan, data).train(data)["yardsticks"]
    pool.run("training_cases:train", 2, folder=str(tmp_path / "two"), plan=plan)
    two = Run.open(tmp_path / "two").result()
    assert set(one) == {"commonest", "linear", "local"} and two["yardsticks"] == one
    assert any(
        line.startswith("the network without global attention: ")
        for line in describe_yardsticks(two)
    )
    assert (
        command(
            [
                "partition",
                "texas",
                "--parts",
                "2",
                "--division",
                "contiguous",
                "--out",
                str(tmp_path / "parts"),
            ]
        )
        == 0
    )
    pool.run(
        "training_cases:train",
        2,
        folder=str(tmp_path / "held"),
        plan=plan,
        parts=str(tmp_path / "parts"),
    )
    assert Run.open(tmp_path / "held").result()["yardsticks"] == one


def test_a_model_that_needs_the_whole_graph_is_refused(monkeypatch, tmp_path, capsys):
    for key, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }.items():
        monkeypatch.setenv(key, value)
    assert (
        command(
            ["train", "texas", "--model", "h2gcn", "--splits", "1", "--out", str(tmp_path / "run")]
        )
        == 2
    )
    assert "model is 'h2gcn'; allowed for several processes: phgcn," in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


SHORT_INTERVAL = """
from phgcn.cli.app import main
from phgcn.train import checkpoints

checkpoints.SHORTEST_INTERVAL, checkpoints.SHARE = 0.01, 1.0
main()
"""
"""The command ``phgcn`` with checkpoints more often than once a second: trainings of tests are
short.
"""


def torchrun(*arguments):
    """Starts a program in two processes."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PHGCN_DATA": os.environ.get("PHGCN_DATA", ""),
    }
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.Popen(
        [*start, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def rank_process(launcher, rank):
    """Finds the process of a rank among the children of torchrun."""
    for entry in Path("/proc").iterdir():
        try:
            is_child = (
                entry.name.isdigit()
                and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == launcher
            )
            if is_child and f"\0RANK={rank}\0".encode() in b"\0" + (entry / "environ").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    return None


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_a_killed_rank_ends_all_and_resume_goes_on(pool, tmp_path):
    """Through torchrun: kill -9 of one rank after a checkpoint, one clear line, then --resume to
    the bits of a whole run.
    """
    folder = tmp_path / "run"
    plan = make_plan("texas", "global-gnn", 60, **SMALL | {"dropout": 0.5}, global_layers=1)
    plan = replace(plan, yardsticks="all")
    config, program = tmp_path / "config.toml", tmp_path / "program.py"
    config.write_text(as_toml(plan.settings, plan.model, "a test"))
    program.write_text(SHORT_INTERVAL)
    options = ["--splits=1", "--division=contiguous", f"--out={folder}"]
    first = torchrun(
        str(program), "train", "texas", "--model=global-gnn", f"--config={config}", *options
    )
    deadline = time.monotonic() + 100
    while (
        not list(folder.glob("*.state-*.safetensors"))
        and first.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    os.kill(rank_process(first.pid, 1), signal.SIGKILL)
    _, said = first.communicate(timeout=60)
    assert first.returncode != 0
    lines = [line for line in said.splitlines() if line.startswith("phgcn: ")]
    assert (
        len(lines) == 1
        and "another process ended, or did not answer within the timeout" in lines[0]
    )
    assert not (folder / "result.json").exists()
    second = torchrun(
        "-m", "phgcn", "train", "texas", f"--out={folder}", "--resume", "--division=contiguous"
    )
    shown, said = second.communicate(timeout=100)
    assert second.returncode == 0, said
    assert "always answering" in shown and "the network without global attention: " in shown
    pool.run("training_cases:train", 2, folder=str(tmp_path / "whole"), plan=plan)
    assert outcome(folder)[1:] == outcome(tmp_path / "whole")[1:]
