import io
import re
from functools import partial
from types import SimpleNamespace

import pytest
from rich.console import Console
from small_graphs import small_graph, write_tables

from phgcn.cli import progress
from phgcn.cli.progress import Pace, SearchDisplay, TrainingDisplay
from phgcn.runtime import warm
from phgcn.train import EpochProgress, Plan, Settings
from phgcn.train.entrant import RoundProgress
from phgcn.train.prepare import missing_kernels

ALL_ROOMS = {"runtime", "structural", "exact", "lattice"}


@pytest.fixture
def clock(monkeypatch):
    """The time, which a test moves on."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 80 columns gets."""
    text = io.StringIO()
    plain = {"force_terminal": True, "color_system": None, "legacy_windows": False}
    console = partial(Console, file=text, width=80, **plain)
    monkeypatch.setattr(progress, "Console", lambda **_: console())
    monkeypatch.setattr(progress, "REDRAW", 0.0)
    return text


def train(display, clock, seconds, trial=0, epochs=None):
    """Reports epochs of so many seconds."""
    trials = display.plan.trials()
    for epoch in range(1, (epochs or len(seconds)) + 1):
        clock[0] += seconds[epoch - 1] if isinstance(seconds, list) else seconds
        row = (1.5, 1.25, 0.5 + epoch / 10_000, 0.1)
        display.on_epoch(EpochProgress(trials[trial], epoch, row, 1.2))


def plan(splits=10, epochs=1000, patience=100):
    settings = Settings(epochs=epochs, patience=patience)
    return Plan("small", model="mlp", splits=splits, settings=settings)


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_the_first_epoch_compiles_and_is_not_counted():
    pace = Pace()
    # one epoch of a minute, one cut short by another program
    for now in (60.0, 61.0, 62.0, 90.0, 91.0):
        pace.epoch_ended(now)
    assert pace.seconds == 1.0 and pace.measured


def test_after_the_first_epochs_it_is_said_how_long_all_may_take(clock, capsys):
    with TrainingDisplay(plan()) as display:
        train(display, clock, [60.0, 2.0, 2.0, 2.0, 2.0])
    said = [line for line in lines(capsys) if line.startswith("an epoch takes")]
    assert said == [
        "an epoch takes 2.0 s: at most 5 h 33 min for 10 trainings of 1,000 epochs, less where 100 "
        "epochs bring nothing "
        "better; --splits 1 or --set epochs=... takes less"
    ]


def test_slow_epochs_are_announced_after_the_second(clock, capsys):
    with TrainingDisplay(plan(splits=1)) as display:
        train(display, clock, [80.0, 70.0])
    line = "an epoch takes 1 min 10 s: at most 19 h 24 min for 1 training of 1,000 epochs"
    assert line in capsys.readouterr().err


def test_the_time_left_follows_the_epochs_of_trainings_that_have_ended(clock, capsys):
    with TrainingDisplay(plan(splits=3, epochs=1000)) as display:
        train(display, clock, 1.0, epochs=50)
        train(display, clock, 1.0, trial=1, epochs=40)
    said = lines(capsys)
    assert "at most 49 min 5" in next(line for line in said if "left" in line)
    assert said[-1].startswith("split-01 of 3, epoch 4")
    assert "about 1 min 0" in said[-1]
    assert said[-1].endswith("s left")


def test_every_split_has_its_line_the_last_one_too(clock, capsys):
    with TrainingDisplay(plan(splits=2)) as display:
        train(display, clock, 0.001, epochs=3)
        train(display, clock, 0.001, trial=1, epochs=4)
        display.trial_ended()
        display.trial_ended()  # says nothing twice
    done = [line for line in lines(capsys) if line.endswith(": done")]
    splits = [line.split(":")[0] for line in done]
    assert splits == ["split-00 of 2, epoch 3", "split-01 of 2, epoch 4"]


def test_at_80_columns_metric_and_time_left_are_seen(clock, terminal):
    with TrainingDisplay(plan(splits=10, epochs=9999, patience=9999)) as display:
        train(display, clock, 4.0, trial=9, epochs=1000)
        display.bar.refresh()
    line = r"split 10/10, epoch 1000, accuracy 0\.600 [^\r]* at most 9 h 59 min left"
    shown = re.findall(line, terminal.getvalue())
    assert shown and len(shown[-1]) <= 80


def test_a_search_shows_the_candidate_its_epoch_and_the_time_left_of_the_round(clock, terminal):
    names = ["mlp", "similar nodes + sage", "gcn"]
    entrants = [SimpleNamespace(candidate=SimpleNamespace(name=name), epochs=0) for name in names]
    with SearchDisplay() as display:
        for entrant in entrants[:2]:
            for _ in range(12):
                clock[0] += 10.0
                entrant.epochs += 1
                display.on_epoch(RoundProgress(entrants, entrant, 15))
        display.bar.refresh()
    line = r"similar nodes \+ sage \(2/3\), epoch 12/15 [^\r]* about \d min \d\d s left in round"
    shown = re.findall(line, terminal.getvalue())
    assert shown and len(shown[-1]) <= 80


@pytest.mark.parametrize("edges", [90, 0])
def test_no_candidate_of_a_search_trains_in_silence(edges, said, tmp_path, monkeypatch):
    """With edges by candidates in rounds, of a table without edges by its three parts."""
    monkeypatch.setattr(progress.Display, "due", lambda self: True)
    data = small_graph(90)
    if edges:
        graph, label = write_tables(data, tmp_path / "small"), ""
    else:
        graph, label = write_tables(data, tmp_path / "small") / "nodes.csv", "--label label"
        graph = graph.rename(tmp_path / "rows.csv")
    code, _, err = said("train", graph, label, "--splits 1 --set epochs=3 --out", tmp_path / "run")
    assert code == 0
    first, count = re.search(r"search: (\d+) candidates .*?(\d+) epochs", err).groups()[::-1]
    rounds = "|".join(str(pace * int(first)) for pace in (1, 2, 3))  # quick ones are longer
    of = re.findall(rf"^(.*) \(\d/{count}\), epoch \d+/(?:{rounds})\b", err, flags=re.MULTILINE)
    assert len(set(of)) == int(count)


def test_kernels_that_are_compiled_are_announced_with_their_progress(clock, capsys):
    class Slow:
        def is_kept(self, real):
            return False

        def compile(self, real):
            clock[0] += 6.0

    with progress.Display(total=1) as display:
        display.compile(warm.Compilation([Slow(), Slow(), Slow()]))
        display.compile(warm.Compilation([]))
    expected = f"compiling kernels, once, about {3 * warm.SECONDS:.0f} s"
    assert lines(capsys) == [
        expected,
        "compiled 2 of 3 kernels, about 6 s left",
        "compiled 3 kernels in 18 s",
    ]


@pytest.mark.parametrize(
    ("model", "nodes", "settings", "rooms"),
    [
        ("mlp", 100, {}, set()),
        ("gat-eda", 100, {}, {"runtime", "structural"}),
        ("phgcn", 100, {}, {"runtime", "structural", "exact"}),
        ("phgcn", 100_000, {}, {"runtime", "structural", "lattice"}),
        ("global-gnn", 100, {"global_layers": 0}, {"runtime", "structural"}),
        ("global-gnn", 100, {"global_layers": 1, "tolerance": 0.1}, ALL_ROOMS),
    ],
)
def test_only_the_kernels_that_a_training_calls_are_compiled(
    model, nodes, settings, rooms, monkeypatch
):
    monkeypatch.setattr(warm.compiled.Kernel, "is_kept", lambda self, real="float32": False)
    missing = missing_kernels(Plan("small", model=model, settings=Settings(**settings)), nodes)
    assert {kernel.function.__module__.split(".")[1] for kernel in missing.kernels} == rooms


def test_short_and_long_epochs_are_told_in_their_units():
    shown = [progress._epoch_time(seconds) for seconds in (0.0123, 2.34, 75.0)]
    assert shown == ["12 ms", "2.3 s", "1 min 15 s"]
