"""The progress of commands, above all of ``phgcn train`` and ``tune``: bars, epochs, the time
left."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from ..text import printable
from .display import duration, show_result

if TYPE_CHECKING:
    from torch_geometric.data import Data
    from typing_extensions import Self

    from ..runtime.warm import Compilation
    from ..train.entrant import Entrant, RoundProgress
    from ..train.plan import EpochProgress, OnEpoch, Plan
    from ..train.run import Run
    from ..train.tuning import TrialReport

# epochs, or seconds of fewer, that are timed before it is said how long the whole may take
MEASURED, ENOUGH = 3, 5.0

LONG = 3600.0  # seconds of a run above which a way to a shorter one is named
BAR = 8  # characters: with texts of a run, a line of 80 has room for no more
REDRAW = 0.1  # seconds between two updates of a bar
LOG = 10.0  # seconds between two lines of a log


class Display:
    """Shows progress: a bar if stderr is a terminal, else a line every ``every`` seconds."""

    def __init__(self, total: float, every: float = LOG) -> None:
        self.every, self.last = every, time.monotonic()
        terminal = Console(stderr=True)
        self.bar = self.task = None
        if terminal.is_terminal:
            text, rest = TextColumn("{task.description}"), TextColumn("{task.fields[rest]}")
            bar = BarColumn(bar_width=BAR)
            self.bar = Progress(text, bar, rest, console=terminal, transient=True)
            self.task = self.bar.add_task("starting", total=total, rest="")
        self.begin = time.monotonic()

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self.last < (REDRAW if self.bar else self.every):
            return False
        self.last = now
        return True

    def show(self, completed: float, text: str, rest: str) -> None:
        """Updates the bar, or prints a line: the share done, and the time left."""
        if self.bar and self.task is not None:
            text, rest = escape(text), escape(rest)
            self.bar.update(self.task, completed=completed, description=text, rest=rest)
        else:
            self.say(f"{text}, {rest}" if rest else text)

    def compile(self, compilation: Compilation) -> None:
        """Compiles kernels and shows the progress, or nothing if all are kept."""
        total, expected, begin = len(compilation.kernels), compilation.seconds, time.monotonic()
        kernels = "kernels" if compilation.real == "float32" else f"{compilation.real} kernels"
        if expected:
            self.say(f"compiling {kernels}, once, about {duration(expected)}")

        def report(done: int) -> None:
            if self.due():
                left = duration((time.monotonic() - begin) / done * (total - done))
                self.show(0, f"compiled {done} of {total} {kernels}", f"about {left} left")

        compilation.run(report)
        if expected:
            self.say(f"compiled {total} {kernels} in {duration(time.monotonic() - begin)}")

    def say(self, text: str) -> None:
        """Prints lines above the bar."""
        text = "\n".join(printable(line) for line in text.splitlines())
        if self.bar:
            self.bar.console.print(escape(text), highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


class Pace:
    """The median time of the latest epochs. The first epoch of a process does not count: it
    compiles kernels and allocates memory."""

    def __init__(self) -> None:
        self.intervals: deque[float] = deque(maxlen=50)
        self.last: float | None = None

    def epoch_ended(self, now: float) -> None:
        if self.last is not None:
            self.intervals.append(now - self.last)
        self.last = now

    @property
    def known(self) -> bool:
        """Whether any epoch has been timed."""
        return bool(self.intervals)

    @property
    def measured(self) -> bool:
        """Whether enough epochs have been timed to estimate the whole."""
        return len(self.intervals) >= MEASURED or sum(self.intervals) >= ENOUGH

    @property
    def seconds(self) -> float:
        return median(self.intervals)


class TrainingDisplay(Display):
    """Shows epoch, metric and time left of a run, and an estimate of the whole."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.trials = plan, [trial.name for trial in plan.trials()]
        super().__init__(total=len(self.trials))
        self.pace, self.announced = Pace(), False
        self.lengths: list[int] = []  # epochs of trainings that have ended
        self.latest: EpochProgress | None = None

    def on_epoch(self, progress: EpochProgress) -> None:
        if progress.yardstick:
            self._on_yardstick(progress)
            return
        self.pace.epoch_ended(time.monotonic())
        if self.latest is not None and progress.trial != self.latest.trial:
            self.trial_ended()
        self.latest = progress
        if self.pace.measured and not self.announced:
            self.announced = True
            self.say(self._announcement(progress))
        if self.due():
            text = self._short_text(progress) if self.bar else self._text(progress)
            done = self._place(progress) + min(progress.epoch / self._expected(), 1)
            self.show(done, text, self._time_left(progress))

    def _on_yardstick(self, progress: EpochProgress) -> None:
        """Shows an epoch of the network without global attention, at the end of the first split."""
        self.pace.last = None  # its epochs are not those of the model
        if self.due():
            what = f"without global attention for comparison, epoch {progress.epoch}"
            self.show(self._place(progress) + 1, f"{progress.trial.name}, {what}", "")

    def trial_ended(self) -> None:
        """Reports the latest trial as done; after the last one the caller calls it."""
        if self.latest is not None:
            self.lengths.append(self.latest.epoch)
            self.say(f"{self._text(self.latest)}: done")
            self.latest = None

    def _place(self, progress: EpochProgress) -> int:
        return self.trials.index(progress.trial.name)

    def _expected(self) -> float:
        """Returns the expected epochs of a trial: the mean of ended trials, else the most."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else self.plan.settings.epochs

    def _epochs_left(self, progress: EpochProgress) -> float:
        expected, later = self._expected(), len(self.trials) - self._place(progress) - 1
        return max(expected - progress.epoch, 0) + expected * later

    def _time_left(self, progress: EpochProgress) -> str:
        if not self.pace.known:
            return ""
        about = "about" if self.lengths else "at most"
        return f"{about} {duration(self._epochs_left(progress) * self.pace.seconds)} left"

    def _announcement(self, progress: EpochProgress) -> str:
        """Returns the time per epoch, an estimate of the whole, and ways to take less."""
        settings, whole = self.plan.settings, self._epochs_left(progress) * self.pace.seconds
        trials = f"{len(self.trials)} trainings" if len(self.trials) > 1 else "1 training"
        advice = "; --splits 1 or --set epochs=... takes less" if whole > LONG else ""
        return (
            f"an epoch takes {_epoch_time(self.pace.seconds)}: at most "
            f"{duration(math.ceil(whole))} for {trials} of {settings.epochs:,} epochs, less where "
            f"{settings.patience} epochs bring nothing better{advice}"
        )

    def _text(self, progress: EpochProgress) -> str:
        train_loss, val_loss, val_metric, _ = progress.row
        best = f"best {progress.best_loss:.3f}"
        losses = f"train {train_loss:.3f}, validation {val_loss:.3f} ({best})"
        place = f"{progress.trial.name} of {len(self.trials)}, epoch {progress.epoch}"
        return f"{place}: {losses}, {self.plan.metric} {val_metric:.3f}"

    def _short_text(self, progress: EpochProgress) -> str:
        """Leaves out the losses, for which a line of 80 characters has no room."""
        place = f"split {self._place(progress) + 1}/{len(self.trials)}, epoch {progress.epoch}"
        return f"{place}, {self.plan.metric} {progress.row[2]:.3f}"


def _epoch_time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def show_training(
    run: Run,
    data: Data,
    heading: str,
    train: Callable[[OnEpoch], dict[str, Any]],
    as_json: bool,
) -> None:
    """Trains a run by ``train``, which takes a callback after each epoch, and prints its result."""
    from ..train.prepare import missing_kernels

    with TrainingDisplay(run.plan) as display:
        display.say(heading)
        try:
            display.compile(missing_kernels(run.plan, int(data.num_nodes)))
            result = train(display.on_epoch)
            display.trial_ended()
        except KeyboardInterrupt:
            display.say(f"the same command with --out {run.folder} --resume continues")
            raise
    show_result(result, run.folder, as_json)


class SearchDisplay(Display):
    """Shows the candidate in training, its epoch, and the time left of a round of a search."""

    def __init__(self) -> None:
        super().__init__(total=1)
        self.entrants: Sequence[Entrant] = ()
        self.began, self.done = 0.0, 0.0  # when the round began, and its share that was done then

    def on_epoch(self, progress: RoundProgress) -> None:
        if progress.entrants is not self.entrants:
            self.entrants, self.began, self.done = (
                progress.entrants,
                time.monotonic(),
                progress.done,
            )
        if self.due():
            name, epoch = progress.entrant.candidate.name, progress.entrant.epochs
            place = f"{progress.number}/{len(self.entrants)}"
            text = f"{name} ({place}), epoch {epoch}/{progress.epochs}"
            self.show(progress.done, text, self._time_left(progress.done))

    def _time_left(self, done: float) -> str:
        if done <= self.done:
            return ""
        pace = (time.monotonic() - self.began) / (done - self.done)
        return f"about {duration(pace * (1 - done))} left in round"


class TuningDisplay(Display):
    def __init__(self, trials: int) -> None:
        super().__init__(total=trials)

    def update(self, report: TrialReport) -> None:
        loss = "cut short" if report.val_loss is None else f"validation loss {report.val_loss:.4f}"
        best = "" if report.best_val_loss is None else f", best {report.best_val_loss:.4f}"
        self.say(f"trial {report.number}: {loss}{best}")
        if self.bar:
            self.show(report.ended, f"{report.ended} trials{best}", "")
