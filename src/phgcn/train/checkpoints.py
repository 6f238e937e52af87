"""Checkpoints of a trial, and interrupts that wait for them.

All writes, with the next one, take at most :data:`SHARE` of the time since training began. A killed
process loses its training since the last write: a second, or 20 times the duration of a longer
write. An interrupt (Ctrl-C) waits until the epoch is complete and a checkpoint is written."""

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

SHARE = 0.05  # the most time of checkpoints, as a share of the training time
SHORTEST_INTERVAL = 1.0  # least seconds from the end of one write to the start of the next


class CheckpointSchedule:
    """Decides when the next checkpoint of a run is due. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started = self.last_end = clock()
        self.total = 0.0  # seconds of all writes
        self.last_duration = 0.0  # estimates the next write, 0 before the first

    def due(self) -> bool:
        """Whether another write keeps within :data:`SHARE`."""
        now = self.clock()
        affordable = self.total + self.last_duration <= SHARE * (now - self.started)
        return affordable and now - self.last_end >= SHORTEST_INTERVAL

    def timed(self, write: Callable[[], None]) -> float:
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
        training (Training): The training to save and restore.
        schedule (CheckpointSchedule): The schedule of the run, which all its trials share.
    """

    def __init__(
        self, folder: Path, name: str, training: Training, schedule: CheckpointSchedule
    ) -> None:
        self.folder, self.name, self.training, self.schedule = folder, name, training, schedule
        self.saved_epoch = training.state.epoch

    def restore(self) -> None:
        """Continues from the latest whole checkpoint, or from the last state of a finished trial
        with more epochs; removes damaged files with a warning."""
        last = last_state(self.folder, self.name)
        files = [last] * last.is_file() + checkpoint_files(self.folder, self.name)
        while files:
            file = files.pop()
            try:
                self.training.load(file)
            except ValueError as error:
                if not files:
                    problem = f"{error}; remove the file to train {self.name} from the start"
                    raise ValueError(problem) from None
                warnings.warn(f"{error}; training continues from {files[-1].name}", stacklevel=2)
                file.unlink(missing_ok=True)
            else:
                self.saved_epoch = self.training.state.epoch
                return

    def outdated(self) -> bool:
        """Whether epochs have been trained since the last checkpoint."""
        return self.training.state.epoch != self.saved_epoch

    def save(self) -> None:
        """Writes a checkpoint if the last one is outdated; keeps it and the one before. Each file
        has a new name: some file systems wait for the disk when a file is replaced."""
        if not self.outdated():
            return
        state = self.training.state
        path = self.folder / f"{self.name}.state-{state.epoch:06d}.safetensors"
        state.checkpoint_seconds += self.schedule.timed(lambda: self.training.save(path))
        self.saved_epoch = state.epoch
        for file in checkpoint_files(self.folder, self.name)[:-2]:
            file.unlink(missing_ok=True)  # another process of the training may have removed it


def checkpoint_files(folder: Path, name: str) -> list[Path]:
    """Lists the checkpoints of a trial by epoch, up to two, or three after a kill."""
    return sorted(folder.glob(f"{name}.state-*.safetensors"))


def last_state(folder: Path, name: str) -> Path:
    """Returns the path of a finished trial's state after its last epoch."""
    return folder / f"last-{name}.safetensors"


class DelayedInterrupt:
    """Delays Ctrl-C until a checkpoint can be written, after a complete epoch.

    The first interrupt is only noted while ``needed()``, and raised at the end of the context. A
    second interrupt is raised at once. SIGTERM is delayed too if the program handles it, as the
    command line does.

    Args:
        needed (callable): Returns whether an interrupt would lose something now.
    """

    def __init__(self, needed: Callable[[], bool]) -> None:
        self.needed, self.noted = needed, False
        self.replaced: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> DelayedInterrupt:
        # signals are delivered to no other thread
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):  # neither ignored nor left to the system
                    self.replaced[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self.replaced.items():
            signal.signal(number, handler)
        if kind is None and self.noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted or not self.needed():
            self.replaced[number](number, frame)
        self.noted = True
