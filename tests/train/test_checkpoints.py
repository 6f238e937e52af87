import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from run_folders import outcome
from small_graphs import small_graph

from phgcn.data import save_graph
from phgcn.files import read_tensors, write_tensors
from phgcn.train import Plan, Run, Settings, evaluate, find
from phgcn.train.checkpoints import (
    SHARE,
    SHORTEST_INTERVAL,
    CheckpointSchedule,
    DelayedInterrupt,
    checkpoint_files,
)
from phgcn.train.loop import Training


class Clock:
    """A clock that a test moves on."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


def simulate(epoch, write, hours=1.0):
    """Trains with epochs of so many seconds, and writes that take ``write(number)``; returns the
    times of all writes."""
    clock = Clock()
    schedule, writes = CheckpointSchedule(clock), []
    while clock.now < 1000 + 3600 * hours:
        clock.advance(epoch)
        if schedule.due():
            begin = clock.now
            schedule.timed(lambda: clock.advance(write(len(writes))))
            writes.append((begin - 1000, clock.now - 1000))
    return writes


@pytest.mark.parametrize("epoch", [0.001, 0.3, 7.0, 100.0])
@pytest.mark.parametrize("duration", [0.0001, 0.004, 0.2, 3.0])
def test_checkpoints_take_at_most_their_share_of_the_time(epoch, duration):
    writes = simulate(epoch, lambda number: duration, hours=0.2 if epoch < 0.1 else 2.0)
    assert len(writes) > 2
    # how long the first one takes is not known before
    for number, (_, end) in enumerate(writes[1:], start=2):
        assert number * duration <= SHARE * end * (1 + 1e-9)


@pytest.mark.parametrize("epoch", [0.001, 0.3, 7.0])
@pytest.mark.parametrize("duration", [0.0001, 0.004, 0.2, 3.0])
def test_a_kill_loses_a_second_or_twenty_writes_and_the_current_epoch(epoch, duration):
    writes = simulate(epoch, lambda number: duration, hours=0.2)
    ends = [0.0, *(end for _, end in writes)]
    gaps = [begin - end for (begin, _), end in zip(writes, ends, strict=False)]
    assert gaps[1] <= max(SHORTEST_INTERVAL, 2 * duration / SHARE) + epoch + 1e-6, (
        "makes up for the first"
    )
    assert max(gaps[:1] + gaps[2:]) <= max(SHORTEST_INTERVAL, duration / SHARE) + epoch + 1e-6


def test_a_write_that_took_long_is_made_up_for():
    writes = simulate(0.1, lambda number: 5.0 if number == 3 else 0.01)
    slow_begin, slow_end = writes[3]
    assert slow_end - slow_begin == pytest.approx(5)
    next_begin, _ = writes[4]
    assert next_begin >= (5 + 5) / SHARE, "it and another like it"
    assert len(writes) > 1000, "then about once a second again"


def test_quick_writes_are_a_second_apart():
    writes = simulate(0.01, lambda number: 1e-6, hours=0.05)
    assert all(begin - end >= SHORTEST_INTERVAL - 1e-9 for (_, end), (begin, _) in pairwise(writes))


# Interrupts


@pytest.fixture
def small_run(tmp_path):
    """A run of two splits that never has a checkpoint due, its graph, and the outcome of the same
    run in one go."""
    save_graph(small_graph(), tmp_path / "small.npz")
    source, data = find(str(tmp_path / "small.npz"))
    settings = Settings(hidden_channels=4, heads=2, epochs=6, attention_dropout=0.3)
    plan = Plan(source, model="phgcn", splits=2, settings=settings)
    Run.create(tmp_path / "whole", plan, data).train(data)
    return Run.create(tmp_path / "cut", plan, data), data, outcome(tmp_path / "whole")


@pytest.fixture
def never_due(monkeypatch):
    monkeypatch.setattr(CheckpointSchedule, "due", lambda self: False)


def saved_epochs(run, name):
    """How many epochs the checkpoints of a trial hold."""
    return [len(read_tensors(file)[0]["curves"]) for file in checkpoint_files(run.folder, name)]


@pytest.mark.parametrize("place", ["in the epoch", "after the epoch"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_followed_by_a_checkpoint_of_the_epoch(
    number, place, small_run, never_due, monkeypatch
):
    run, data, wanted = small_run
    # within an epoch: the weights are changed, the curves are not yet
    update = Training._update_best

    def interrupted(self, *arguments):
        if place == "in the epoch" and self.state.epoch == 3:
            os.kill(os.getpid(), number)
        update(self, *arguments)

    def on_epoch(progress):
        if place == "after the epoch" and progress.epoch == 4:
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command line does
    try:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Training, "_update_best", interrupted)
            run.train(data, on_epoch)
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert saved_epochs(run, "split-00") == [4], "the epoch was completed"
    Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted


def test_a_second_interrupt_ends_the_epoch_at_once(small_run, never_due, monkeypatch):
    run, data, wanted = small_run
    step, ended = Training._step, []

    def interrupted(self):
        if self.state.epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)  # the first is only noted
            ended.append("first")
            os.kill(os.getpid(), signal.SIGINT)
            ended.append("second")
        return step(self)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Training, "_step", interrupted)
        run.train(data)
    assert ended == ["first"]
    assert saved_epochs(run, "split-00") == [], "what is within an epoch is not saved"
    Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted


def test_an_interrupt_is_not_delayed_if_nothing_would_be_lost():
    with pytest.raises(KeyboardInterrupt), DelayedInterrupt(lambda: False):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        raise AssertionError("not reached")


def test_an_interrupt_that_nobody_checked_is_raised_at_the_end():
    reached = False
    with pytest.raises(KeyboardInterrupt), DelayedInterrupt(lambda: True):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)
        reached = True
    assert reached


def test_signals_that_the_program_ignores_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DelayedInterrupt(lambda: True):
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_trains_in_a_thread_that_gets_no_signals(small_run):
    run, data, wanted = small_run
    thread = threading.Thread(target=run.train, args=(data,))
    thread.start()
    thread.join()
    assert outcome(run.folder) == wanted


def test_a_callback_that_interrupts_loses_nothing(small_run, never_due):
    run, data, wanted = small_run

    def on_epoch(progress):
        if (progress.trial.split, progress.epoch) == (1, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train(data, on_epoch)
    assert saved_epochs(run, "split-01") == [2]
    Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted


# Kills


TRAIN = """
import sys
from phgcn.train import Run
from phgcn.train.checkpoints import CheckpointSchedule

due = iter([False, False, True, False, False])
CheckpointSchedule.due = lambda self: next(due, False)
run = Run.open(sys.argv[1])

def on_epoch(progress):
    if progress.epoch == 5:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)

run.train(run.data(), on_epoch)
"""


def test_after_kill_9_a_run_continues_from_its_last_checkpoint_to_the_same_bits(small_run):
    run, data, wanted = small_run
    killed = subprocess.run(
        [sys.executable, "-c", TRAIN, str(run.folder)], env=dict(os.environ), check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert saved_epochs(run, "split-00") == [3], "two epochs are lost"
    Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted
    assert not list(Path(run.folder).glob("*.state-*"))


def test_the_seconds_of_a_run_are_those_of_epochs_and_checkpoints(small_run, monkeypatch):
    run, data, _ = small_run
    save = Training.save

    def slow(self, path):
        save(self, path)
        time.sleep(0.05)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointSchedule, "due", lambda self: True)
        patched.setattr(Training, "save", slow)
        result = run.train(data)
    for row in result["splits"]:
        lines = (run.folder / f"split-{row['split']:02d}.csv").read_text().splitlines()[1:]
        assert row["seconds"] >= sum(float(line.rsplit(",", 1)[1]) for line in lines) + 6 * 0.05


# Damaged checkpoints


@pytest.fixture
def cut_run(small_run, monkeypatch):
    """A run that was cut off after its fourth epoch, with the checkpoints of the third and fourth,
    and its whole outcome."""
    run, data, wanted = small_run

    def stop(progress):
        if progress.epoch == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(CheckpointSchedule, "due", lambda self: True)
        run.train(data, stop)
    assert saved_epochs(run, "split-00") == [3, 4]
    return run, data, wanted


def flip_a_byte(path, place=-100):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(cut_run):
    run, data, wanted = cut_run
    newest = checkpoint_files(run.folder, "split-00")[-1]
    flip_a_byte(newest)
    with pytest.warns(
        UserWarning,
        match=r"state-000004.*checksum is wrong.*; training continues from split-00.state-000003",
    ):
        Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted


@pytest.mark.parametrize("place", [10, 2000, -1])
def test_where_all_are_damaged_the_line_says_what_to_do(place, cut_run):
    run, data, wanted = cut_run
    for file in checkpoint_files(run.folder, "split-00"):
        flip_a_byte(file, place)
    with (
        pytest.warns(UserWarning),
        pytest.raises(ValueError, match=r"state-000003.*; remove the file to train split-00 from"),
    ):
        Run.open(run.folder).train(data)
    for file in checkpoint_files(run.folder, "split-00"):
        file.unlink()
    Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted


def first(tensors, end):
    return next(name for name in tensors if name.startswith("adam.") and name.endswith(end))


def shorten(name):
    def change(tensors, about):
        tensors[name] = tensors[name][:-1].clone()

    return change


def other_moment(tensors, about):
    name = first(tensors, "exp_avg")
    tensors[name] = torch.zeros(3)
    about["shapes"][name] = [3]


def without_moment(tensors, about):
    name = first(tensors, "exp_avg_sq")
    del tensors[name], about["shapes"][name]


def without_state(tensors, about):
    for name in [name for name in tensors if name.startswith("adam.")]:
        del tensors[name]


def short_curves(tensors, about):
    shorten("curves")(tensors, about)
    about["shapes"]["curves"][0] -= 1


def forged_loss(tensors, about):
    about["by_loss"]["val_loss"] = -1e9


def forged_epoch(tensors, about):
    about["by_metric"]["epoch"] = 77


def no_best_weights(tensors, about):
    for name in [name for name in tensors if name.startswith("best.")]:
        del tensors[name], about["shapes"][name]


def short_random_state(tensors, about):
    shorten("random.cpu")(tensors, about)
    about["shapes"]["random.cpu"][0] -= 1


def no_epoch(tensors, about):
    del about["epoch"]


FORGERIES = (
    other_moment,
    without_moment,
    without_state,
    short_curves,
    shorten("curves"),
    forged_loss,
    forged_epoch,
    no_best_weights,
    short_random_state,
    no_epoch,
)


@pytest.mark.parametrize("change", FORGERIES)
def test_a_checkpoint_that_does_not_fit_is_refused_though_its_checksum_is_right(change, cut_run):
    run, data, wanted = cut_run
    newest = checkpoint_files(run.folder, "split-00")[-1]
    tensors, about = read_tensors(newest)
    change(tensors, about)
    write_tensors(newest, tensors, about)
    with pytest.warns(
        UserWarning,
        match=r"state-000004.*not a checkpoint of this training .*; training continues from",
    ):
        Run.open(run.folder).train(data)
    assert outcome(run.folder) == wanted


def test_damaged_weights_are_refused(small_run):
    run, data, _ = small_run
    run.train(data)
    flip_a_byte(run.folder / "split-01.safetensors")
    with pytest.raises(ValueError, match=r"split-01.safetensors: .*checksum is wrong"):
        evaluate(run, data)
