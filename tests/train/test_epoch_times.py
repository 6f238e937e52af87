"""The benchmarks of training time measure what ``phgcn train`` does, checkpoints included."""

import time
from pathlib import Path

import pytest
from small_graphs import small_graph

from phgcn.data import save_graph
from phgcn.train import Plan, Settings, Training, find
from phgcn.train.checkpoints import CheckpointSchedule


def test_timed_epochs_hold_their_checkpoints(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "lab" / "bench"))
    from training import WARM_UP, time_epochs

    save_graph(small_graph(), tmp_path / "small.npz")
    source, data = find(str(tmp_path / "small.npz"))
    plan = Plan(
        source, model="mlp", splits=1, settings=Settings(hidden_channels=4, epochs=WARM_UP + 5)
    )
    save = Training.save

    def slow(self, path):
        time.sleep(0.02)
        save(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointSchedule, "due", lambda self: True)
        patched.setattr(Training, "save", slow)
        times = time_epochs(plan, data, seconds=60)
    assert times.epochs == 5 and times.seconds > times.checkpoint_seconds >= 0.02
    assert time_epochs(plan, data, seconds=0).epochs == 1
    few = Plan(source, model="mlp", splits=1, settings=Settings(hidden_channels=4, epochs=WARM_UP))
    with pytest.raises(ValueError, match="the run had 3 epochs; allowed: more than 3"):
        time_epochs(few, data, seconds=1)
