r"""Times epochs of ``phgcn train``: a real run in a folder, with checkpoints, curves and progress
events.

Not run by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch_geometric.data import Data

from phgcn.train import EpochProgress, Plan, Run
from phgcn.train.loop import Training

WARM_UP = 3
"""Epochs before the clock starts: kernels are compiled, and on a GPU the epoch is recorded as a
CUDA graph.
"""


@dataclass(frozen=True)
class EpochTimes:
    """What the epochs of one run took."""

    seconds: float  # wall time per epoch, everything that the run does included
    checkpoint_seconds: float  # per epoch
    epochs: int  # that were timed
    training: Training


class _TimeIsUp(Exception):
    """Ends a run from within."""


def time_epochs(
    plan: Plan,
    data: Data,
    seconds: float,
    on_epoch: Callable[[EpochProgress], None] = lambda progress: None,
) -> EpochTimes:
    """Trains the first trial of a plan through :meth:`phgcn.train.Run.train` for so many seconds
    after the warm-up.

    The plan must ask for more epochs than fit in.  The time of ``on_epoch``, a progress display as
    the command line has one, counts."""
    # after each epoch: wall time, and seconds in checkpoints so far
    events: list[tuple[float, float]] = []
    trained: list[Training] = []
    epoch = Training.epoch

    def watched(self: Training) -> tuple[float, ...]:
        trained[:] = [self]
        return epoch(self)

    def note(progress: EpochProgress) -> None:
        on_epoch(progress)
        events.append((time.perf_counter(), trained[0].state.checkpoint_seconds))
        if len(events) > WARM_UP and events[-1][0] - events[WARM_UP - 1][0] >= seconds:
            raise _TimeIsUp

    Training.epoch = watched  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            Run.create(Path(folder) / "run", plan, data).train(data, note)
    except _TimeIsUp:
        pass
    finally:
        Training.epoch = epoch  # type: ignore[method-assign]
    if len(events) <= WARM_UP:
        raise ValueError(f"the run had {len(events)} epochs; allowed: more than {WARM_UP}")
    count = len(events) - WARM_UP
    wall, checkpoints = (
        (last - first) / count for first, last in zip(events[WARM_UP - 1], events[-1], strict=True)
    )
    return EpochTimes(wall, checkpoints, count, trained[0])
