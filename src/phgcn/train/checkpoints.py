r"""Checkpoints of a trial: when to write one, and how an interrupt waits for it.

Checkpoints are written by time, not by epoch.  A write that follows another comes only when all writes so far, this one
included, take at most :data:`SHARE` of the time since training began.  A process that is killed loses what it has trained
since the last write: a second, or 20 times what a write takes if that is more (40 times before the second write, which makes
up for the first).  An interrupt (Ctrl-C) loses nothing, because it waits until the epoch is complete and a checkpoint is
written.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from .loop import Training

SHARE = 0.05
"""Upper bound of the time that checkpoints take, as a part of the training time."""

SHORTEST_INTERVAL = 1.0
"""Seconds between the end of one write and the start of the next: quick epochs need not wear out a disk."""


class CheckpointSchedule:
    """Decides when the next checkpoint of a run is due.

    Args:
        clock (callable): Returns seconds. (default: :func:`time.monotonic`)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started = self.last_end = clock()
        self.total = 0.0  # seconds that all writes have taken
        self.last_duration = 0.0  # what the next write is expected to take

    def due(self) -> bool:
        """Whether another write keeps within :data:`SHARE`.  The first one's duration is not known, so it counts as 0."""
        now = self.clock()
        affordable = self.total + self.last_duration <= SHARE * (now - self.started)
        return affordable and now - self.last_end >= SHORTEST_INTERVAL

    def timed(self, write: Callable[[], None]) -> float:
        """Calls ``write``, and returns the seconds that it took."""
        begin = self.clock()
        write()
        self.last_end = self.clock()
        self.last_duration = self.last_end - begin
        self.total += self.last_duration
        return self.last_duration


class Checkpoints:
    """The checkpoint files of one trial.

    Args:
        folder (Path): The folder of the run.
        name (str): The name of the trial.
        training (Training): What is saved and restored.
        schedule (CheckpointSchedule): Of the run: all its trials share one budget of time.
    """

    def __init__(self, folder: Path, name: str, training: Training, schedule: CheckpointSchedule) -> None:
        self.folder, self.name, self.training, self.schedule = folder, name, training, schedule
        self.saved_epoch = training.state.epoch

    def restore(self) -> None:
        """Continues from the latest checkpoint that is whole, if there is any; removes damaged ones, with a warning.

        A trial that was finished and has more epochs now continues from its last state.
        """
        last = last_state(self.folder, self.name)
        files = [last] * last.is_file() + checkpoint_files(self.folder, self.name)
        while files:
            try:
                self.training.load(files[-1])
            except ValueError as error:
                damaged = files.pop()
                if not files:
                    raise ValueError(f"{error}; remove the file to train {self.name} from the start") from None
                warnings.warn(f"{error}; training continues from {files[-1].name}", stacklevel=2)
                damaged.unlink(missing_ok=True)
            else:
                self.saved_epoch = self.training.state.epoch
                return

    def outdated(self) -> bool:
        """Whether epochs have been trained since the last checkpoint."""
        return self.training.state.epoch != self.saved_epoch

    def save_if_due(self) -> None:
        """Writes a checkpoint if the schedule allows one now."""
        if self.schedule.due():
            self.save()

    def save(self) -> None:
        """Writes a checkpoint if the last one is outdated, and keeps it and the one before, in case it is damaged.

        Each has a name of its own: to replace a file would take longer, as some file systems wait for the disk then.
        """
        if not self.outdated():
            return
        epoch = self.training.state.epoch
        path = self.folder / f"{self.name}.state-{epoch:06d}.safetensors"
        self.training.state.checkpoint_seconds += self.schedule.timed(lambda: self.training.save(path))
        self.saved_epoch = epoch
        for file in checkpoint_files(self.folder, self.name)[:-2]:
            file.unlink(missing_ok=True)  # another process of the same training may have been quicker


def checkpoint_files(folder: Path, name: str) -> list[Path]:
    """Lists the checkpoints of a trial by epoch: up to two, or three if a process was killed between writing and removing."""
    return sorted(folder.glob(f"{name}.state-*.safetensors"))


def last_state(folder: Path, name: str) -> Path:
    """Returns the file with the state of a finished trial after its last epoch."""
    return folder / f"last-{name}.safetensors"


class DelayedInterrupt:
    """Delays Ctrl-C until a checkpoint can be written: within an epoch weights and curves do not belong together.

    In this context the first interrupt is only noted while ``needed()``; :meth:`check` raises it, or the end of the context.
    A second one is raised at once, for epochs that take long.  SIGTERM is treated alike where the program handles it, as the
    command line does; where it does not, SIGTERM ends the process as ever.

    Args:
        needed (callable): Whether something would be lost without a checkpoint.
    """

    def __init__(self, needed: Callable[[], bool]) -> None:
        self.needed, self.noted = needed, False
        self.replaced: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> DelayedInterrupt:
        if threading.current_thread() is threading.main_thread():  # signals are delivered to no other thread
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):  # neither ignored nor left to the system
                    self.replaced[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self.replaced.items():
            signal.signal(number, handler)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises the interrupt that was noted, if any."""
        if self.noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted or not self.needed():
            self.replaced[number](number, frame)
        self.noted = True
