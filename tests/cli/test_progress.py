import io
import re
from functools import partial

import pytest
from rich.console import Console

from phgcn.cli import display as module
from phgcn.cli import progress
from phgcn.cli.progress import Pace, TrainingDisplay
from phgcn.runtime import warm
from phgcn.train import EpochProgress, Plan, Settings
from phgcn.train.compiling import missing_kernels


@pytest.fixture
def clock(monkeypatch):
    """The time, which a test moves on."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 80 columns gets."""
    text = io.StringIO()
    console = partial(Console, file=text, force_terminal=True, width=80, color_system=None, legacy_windows=False)
    monkeypatch.setattr(module, "Console", lambda **_: console())
    monkeypatch.setattr(module, "REDRAW", 0.0)
    return text


def train(display, clock, seconds, trial=0, epochs=None):
    """Reports epochs of so many seconds."""
    trials = display.plan.trials()
    for epoch in range(1, (epochs or len(seconds)) + 1):
        clock[0] += seconds[epoch - 1] if isinstance(seconds, list) else seconds
        display.on_epoch(EpochProgress(trials[trial], epoch, (1.5, 1.25, 0.5 + epoch / 10_000, 0.1), 1.2))


def plan(splits=10, epochs=1000, patience=100):
    return Plan("small", model="mlp", splits=splits, settings=Settings(epochs=epochs, patience=patience))


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_the_first_epoch_compiles_and_is_not_counted():
    pace = Pace()
    for now in (60.0, 61.0, 62.0, 90.0, 91.0):  # one epoch of a minute, one cut short by another program
        pace.epoch_ended(now)
    assert pace.seconds == 1.0 and pace.measured


def test_after_the_first_epochs_it_is_said_how_long_all_may_take(clock, capsys):
    with TrainingDisplay(plan()) as display:
        train(display, clock, [60.0, 2.0, 2.0, 2.0, 2.0])
    said = [line for line in lines(capsys) if line.startswith("an epoch takes")]
    assert said == [
        "an epoch takes 2.0 s: at most 5 h 33 min for 10 trainings of 1,000 epochs, less where 100 epochs bring nothing "
        "better; --splits 1 or --set epochs=... takes less"
    ]


def test_slow_epochs_are_announced_after_the_second(clock, capsys):
    with TrainingDisplay(plan(splits=1)) as display:
        train(display, clock, [80.0, 70.0])
    assert "an epoch takes 1 min 10 s: at most 19 h 24 min for 1 training of 1,000 epochs" in capsys.readouterr().err


def test_the_time_left_follows_the_epochs_of_trainings_that_have_ended(clock, capsys):
    with TrainingDisplay(plan(splits=3, epochs=1000)) as display:
        train(display, clock, 1.0, epochs=50)
        train(display, clock, 1.0, trial=1, epochs=40)
    said = lines(capsys)
    assert "at most 49 min 5" in next(line for line in said if "left" in line)
    assert said[-1].startswith("split-01 of 3, epoch 4") and "about 1 min 0" in said[-1] and said[-1].endswith("s left")


def test_every_split_has_its_line_the_last_one_too(clock, capsys):
    with TrainingDisplay(plan(splits=2)) as display:
        train(display, clock, 0.001, epochs=3)
        train(display, clock, 0.001, trial=1, epochs=4)
        display.trial_ended()
        display.trial_ended()  # says nothing twice
    done = [line for line in lines(capsys) if line.endswith(": done")]
    assert [line.split(":")[0] for line in done] == ["split-00 of 2, epoch 3", "split-01 of 2, epoch 4"]


def test_at_80_columns_metric_and_time_left_are_seen(clock, terminal):
    with TrainingDisplay(plan(splits=10, epochs=9999, patience=9999)) as display:
        train(display, clock, 4.0, trial=9, epochs=1000)
        display.bar.refresh()
    shown = re.findall(r"split 10/10, epoch 1000, accuracy 0\.600 [^\r]* at most 9 h 59 min left", terminal.getvalue())
    assert shown and len(shown[-1]) <= 80


def test_kernels_that_are_compiled_are_announced_with_their_progress(clock, capsys):
    class Slow:
        def is_kept(self, real):
            return False

        def compile(self, real):
            clock[0] += 6.0

    with module.Display(total=1) as display:
        display.compile(warm.Compilation([Slow(), Slow(), Slow()]))
        display.compile(warm.Compilation([]))
    expected = f"compiling kernels, once, about {3 * warm.SECONDS:.0f} s"
    assert lines(capsys) == [expected, "compiled 2 of 3 kernels, about 6 s left", "compiled 3 kernels in 18 s"]


@pytest.mark.parametrize(
    ("model", "nodes", "settings", "rooms"),
    [
        ("mlp", 100, {}, set()),
        ("gat-eda", 100, {}, {"runtime", "structural"}),
        ("phgcn", 100, {}, {"runtime", "structural", "exact"}),
        ("phgcn", 100_000, {}, {"runtime", "structural", "lattice"}),
        ("global-gnn", 100, {"global_layers": 0}, {"runtime", "structural"}),
        ("global-gnn", 100, {"global_layers": 1, "tolerance": 0.1}, {"runtime", "structural", "exact", "lattice"}),
    ],
)
def test_only_the_kernels_that_a_training_calls_are_compiled(model, nodes, settings, rooms, monkeypatch):
    monkeypatch.setattr(warm.compiled.Kernel, "is_kept", lambda self, real="float32": False)
    missing = missing_kernels(Plan("small", model=model, settings=Settings(**settings)), nodes)
    assert {kernel.function.__module__.split(".")[1] for kernel in missing.kernels} == rooms


def test_short_and_long_epochs_are_told_in_their_units():
    assert [progress._epoch_time(seconds) for seconds in (0.0123, 2.34, 75.0)] == ["12 ms", "2.3 s", "1 min 15 s"]
