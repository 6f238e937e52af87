r"""The progress of ``phgcn train`` and ``phgcn tune``: what is done, what an epoch takes, and the time left."""

from __future__ import annotations

import math
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from .display import Display, duration

if TYPE_CHECKING:
    from ..train.plan import EpochProgress, Plan
    from ..train.tuning import TrialReport

MEASURED = 3
"""Epochs that are timed before it is said how long the whole may take; fewer if they take :data:`ENOUGH` seconds."""

ENOUGH = 5.0

LONG = 3600.0
"""Seconds of a run above which a way to a shorter one is named."""


class Pace:
    """The time from the end of one epoch to the end of the next, the median of the latest.

    The first epoch of a process is not counted: it compiles kernels and allocates memory.
    """

    def __init__(self, latest: int = 50) -> None:
        self.intervals: deque[float] = deque(maxlen=latest)
        self.last: float | None = None

    def epoch_ended(self, now: float) -> None:
        if self.last is not None:
            self.intervals.append(now - self.last)
        self.last = now

    @property
    def known(self) -> bool:
        """Whether epochs have been timed at all."""
        return bool(self.intervals)

    @property
    def measured(self) -> bool:
        """Whether enough epochs have been timed to say how long the whole may take."""
        return len(self.intervals) >= MEASURED or sum(self.intervals) >= ENOUGH

    @property
    def seconds(self) -> float:
        """What an epoch takes."""
        return median(self.intervals)


class TrainingDisplay(Display):
    """Shows epoch, metric and time left of a run, and after its first epochs how long the whole may take."""

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
        """Shows an epoch of the network without global attention, which the first split ends with."""
        self.pace.last = None  # its epochs are not those of the model
        if self.due():
            place = f"{progress.trial.name}, without global attention for comparison, epoch {progress.epoch}"
            self.show(self._place(progress) + 1, place, "")

    def trial_ended(self) -> None:
        """Says that the latest trial is done; called for the last one by whoever trains."""
        if self.latest is not None:
            self.lengths.append(self.latest.epoch)
            self.say(f"{self._text(self.latest)}: done")
            self.latest = None

    def _place(self, progress: EpochProgress) -> int:
        """Returns how many trials come before this one."""
        return self.trials.index(progress.trial.name)

    def _expected(self) -> float:
        """Returns how many epochs a trial has: the mean of those that have ended, else all that it may have."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else self.plan.settings.epochs

    def _epochs_left(self, progress: EpochProgress) -> float:
        expected = self._expected()
        return max(expected - progress.epoch, 0) + expected * (len(self.trials) - self._place(progress) - 1)

    def _time_left(self, progress: EpochProgress) -> str:
        if not self.pace.known:
            return ""
        about = "about" if self.lengths else "at most"
        return f"{about} {duration(self._epochs_left(progress) * self.pace.seconds)} left"

    def _announcement(self, progress: EpochProgress) -> str:
        """Says what an epoch takes, how long the whole may take, and how to take less if that is long."""
        settings, whole = self.plan.settings, self._epochs_left(progress) * self.pace.seconds
        trials = f"{len(self.trials)} trainings" if len(self.trials) > 1 else "1 training"
        return (
            f"an epoch takes {_epoch_time(self.pace.seconds)}: at most {duration(math.ceil(whole))} for {trials} of "
            f"{settings.epochs:,} epochs, less where {settings.patience} epochs bring nothing better"
            + ("; --splits 1 or --set epochs=... takes less" if whole > LONG else "")
        )

    def _text(self, progress: EpochProgress) -> str:
        train_loss, val_loss, val_metric, _ = progress.row
        losses = f"train {train_loss:.3f}, validation {val_loss:.3f} (best {progress.best_loss:.3f})"
        place = f"{progress.trial.name} of {len(self.trials)}, epoch {progress.epoch}"
        return f"{place}: {losses}, {self.plan.metric} {val_metric:.3f}"

    def _short_text(self, progress: EpochProgress) -> str:
        """Leaves out the losses: with bar and time left, a line of 80 characters has no room for them."""
        place = f"split {self._place(progress) + 1}/{len(self.trials)}, epoch {progress.epoch}"
        return f"{place}, {self.plan.metric} {progress.row[2]:.3f}"


def _epoch_time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


class TuningDisplay(Display):
    """Shows the trials of a study."""

    def __init__(self, trials: int) -> None:
        super().__init__(total=trials)

    def update(self, report: TrialReport) -> None:
        loss = "cut short" if report.val_loss is None else f"validation loss {report.val_loss:.4f}"
        best = "" if report.best_val_loss is None else f", best {report.best_val_loss:.4f}"
        self.say(f"trial {report.number}: {loss}{best}")
        if self.bar:
            self.show(report.ended, f"{report.ended} trials{best}", "")
