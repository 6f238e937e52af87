r"""What ``phgcn train`` adds to the layers' own time, and the time per epoch, for every model on
pubmed.

The layers' own time is that of forward, loss, backward, Adam's step, and the forward of an
evaluation.  ``phgcn train`` adds metrics, the choice of the best epoch, curves, checkpoints and the
progress display.  Both are timed in the same epochs of a real run; the mark is 10 % more at most,
and checkpoints take 5 % at most.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import common
import torch
from registry import measurement
from torch_geometric.data import Data

from phgcn.cli.progress import TrainingDisplay
from phgcn.registry import model_names
from phgcn.train import EpochProgress, Plan, Run, Settings, Training, find
from phgcn.train.checkpoints import SHARE
from phgcn_lab.markdown import origin, table

MARK, HELP_MARK = 1.10, 1.0
HELP_RUNS = 5
WARM_UP = 3  # Epochs before the clock starts, in which kernels are compiled


@dataclass(frozen=True)
class EpochTimes:
    """What the epochs of one run took."""

    seconds: float  # wall time per epoch, everything that the run does included
    checkpoint_seconds: float  # per epoch
    epochs: int  # that were timed


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
    the command line has one, counts.
    """
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
    return EpochTimes(wall, checkpoints, count)


@contextmanager
def layers_timed() -> Iterator[list[float]]:
    """Yields a list that gets the seconds of every step and every evaluation of trainings in this
    context.
    """
    seconds: list[float] = []
    originals = {name: getattr(Training, name) for name in ("_step", "_logits")}

    def timed(part: Callable) -> Callable:
        def call(self: Training) -> torch.Tensor:
            begin = time.perf_counter()
            out = part(self)
            seconds.append(time.perf_counter() - begin)
            return out

        return call

    try:
        for name, part in originals.items():
            setattr(Training, name, timed(part))
        yield seconds
    finally:
        for name, part in originals.items():
            setattr(Training, name, part)


def help_seconds() -> float:
    """Returns the median time of ``phgcn --help`` in a process of its own."""
    command = [str(Path(sys.executable).with_name("phgcn")), "--help"]
    runs = [common.run_process(command)[1]["seconds"] for _ in range(HELP_RUNS + 1)]
    return statistics.median(runs[1:])


def measure(model: str, graph: str, rounds: int, seconds: float) -> dict:
    """Measures seconds per epoch, medians over rounds: of a run, and of layers and checkpoints in
    it.
    """
    source, data = find(graph)
    plan = Plan(source, model=model, splits=1, settings=Settings(epochs=10**6, patience=10**6))
    times: dict[str, list[float]] = {"whole": [], "layers": [], "checkpoints": []}
    for _ in range(rounds):
        with layers_timed() as layers:
            run = time_epochs(plan, data, seconds, TrainingDisplay(plan).on_epoch)
        times["whole"].append(run.seconds)
        # a step and an evaluation each
        times["layers"].append(sum(layers[-2 * run.epochs :]) / run.epochs)
        times["checkpoints"].append(run.checkpoint_seconds)
    ratios = [w / l for w, l in zip(times["whole"], times["layers"], strict=True)]
    return {
        **{name: statistics.median(all_rounds) for name, all_rounds in times.items()},
        "ratio": statistics.median(ratios),
        "checkpoint_share": sum(times["checkpoints"]) / sum(times["whole"]),
        "all": times,
    }


def training_loop(training: dict) -> list[str]:
    rows = []
    for model, t in training["models"].items():
        times = [f"{1000 * t[part]:.0f}" for part in ("layers", "whole")]
        rows.append([f"`{model}`", *times, f"{t['ratio']:.3f}"])
    lines = table(["model", "layers, ms per epoch", "with the loop", "ratio"], rows)
    last = f"`phgcn --help` takes {training['help_seconds']:.1f} s."
    return [f"{training['graph']}, {origin(training)}:", "", *lines, "", last]


@measurement(
    tables=training_loop,
    quick="texas, one round of two seconds",
    models={"nargs": "+", "default": model_names(), "choices": model_names(), "metavar": "MODEL"},
)
def training(options: argparse.Namespace) -> dict:
    """Time that phgcn train adds to the layers' own, for every model on pubmed."""
    graph, rounds, seconds = ("texas", 1, 2.0) if options.quick else ("pubmed", 4, 5.0)
    taken = help_seconds()
    found = {model: measure(model, graph, rounds, seconds) for model in options.models}
    about = {"graph": graph, "rounds": rounds, "seconds": seconds}
    marks = {"ratio": MARK, "checkpoint_share": SHARE, "help_seconds": HELP_MARK}
    return {**about, "marks": marks, "models": found, "help_seconds": taken}
