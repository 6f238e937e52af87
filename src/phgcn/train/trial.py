"""Trains one trial of a run, from its checkpoint on, in one process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..files import write_csv, write_tensors
from ..provenance import provenance
from ..tolerance import Tolerance
from .checkpoints import Checkpoints, CheckpointSchedule, DelayedInterrupt, last_state
from .global_path import ATTENTION, summarise
from .loop import Task, Training, TrainingError
from .metrics import spread
from .plan import EpochProgress, OnEpoch, Plan, Trial
from .prepare import seeded, start
from .processes import OneProcess
from .state import CURVES
from .yardsticks import (
    LOCAL,
    LinearModel,
    fit_simple,
    local_trial,
    simple_score,
    summarise_yardsticks,
)

# epochs between two samples of the global path: a sample costs about a forward pass
SAMPLE_EVERY = 25

KEPT = "prepared."  # prefix of tensors in a file of weights that were fitted to the training nodes


def weights_file(folder: Path, trial: Trial) -> Path:
    """Returns the path of a trial's weights, which exist when it is trained."""
    return folder / f"{trial.name}.safetensors"


class Logged(NamedTuple):
    """Reports beside the training of a trial: ``on_epoch`` is called after every epoch,
    ``tensorboard`` writes curves."""

    on_epoch: OnEpoch
    tensorboard: bool

    def report(
        self, trial: Trial, training: Training, row: tuple[float, ...], yardstick: bool = False
    ) -> None:
        best = training.best_by_loss.val_loss
        self.on_epoch(EpochProgress(trial, training.state.epoch, row, best, yardstick))


def train_trial(
    folder: Path,
    trial: Trial,
    task: Task,
    schedule: CheckpointSchedule,
    processes: OneProcess,
    logged: Logged,
) -> None:
    """Trains a trial from its checkpoint, if there is one, and writes weights and curves."""
    with seeded(trial.seed, task):
        training = start(trial.plan, task, SAMPLE_EVERY, processes)
        checkpoints = Checkpoints(folder, trial.name, training, schedule)
        processes.restore(checkpoints)
        logs = folder / "tensorboard" / trial.name
        log = curve_log(logs, training.state.epoch, logged.tensorboard)
        needed = checkpoints.outdated if processes.alone else lambda: True
        with DelayedInterrupt(needed) as interrupt, log as log_row:
            while not training.done:
                row = run_epoch(training, trial)
                # Processes note an interrupt at different times, and stop together.
                noted = processes.any(interrupt.noted)
                try:
                    if processes.decide(schedule.due()) or noted:
                        checkpoints.save()
                    if processes.leads:
                        log_row(training.state.epoch, row)
                        logged.report(trial, training, row)
                    if noted or (processes.alone and interrupt.noted):
                        raise KeyboardInterrupt
                except KeyboardInterrupt:
                    if processes.alone:
                        checkpoints.save()
                    raise
            simple, scores = {}, {}
            if trial.plan.yardsticks != "none":
                simple = fit_simple(task, processes)
                scores = {
                    key: simple_score(task, model, processes) for key, model in simple.items()
                }
            if trial.plan.yardsticks == "all":
                checkpoints.save()  # an interrupt may follow
                scores |= _train_local(folder, trial, training, interrupt, logged)
            # before the result, which loads the best weights
            training.save(last_state(folder, trial.name))
            result = split_result(trial, training)
            if scores:
                result["yardsticks"] = scores
            _write(folder, trial, training, result, simple)


def _write(
    folder: Path,
    trial: Trial,
    training: Training,
    result: dict[str, Any],
    simple: Mapping[str, LinearModel],
) -> None:
    """Writes the curves, then the weights, with which the trial is finished."""
    state, task = training.state, training.task
    fitted: dict[str, Any] = {"task": task.kind, "features": task.transform, **simple}
    if training.labels:
        training.model.load_state_dict(state.best_weights)
        fitted["labels"] = training.processes.kept_keys(training)
    if not training.processes.leads:
        return
    rows = [(number, *row) for number, row in enumerate(state.curves, start=1)]
    write_csv(folder / f"{trial.name}.csv", ("epoch", *CURVES), rows)
    if state.attention:
        write_csv(folder / f"attention-{trial.name}.csv", ATTENTION, state.attention)
    tensors = dict(state.best_weights)
    for part, values in fitted.items():
        kept = {} if values is None else values.tensors()
        tensors |= {f"{KEPT}{part}.{name}": value for name, value in kept.items()}
    write_tensors(weights_file(folder, trial), tensors, result)


def _train_local(
    folder: Path, trial: Trial, training: Training, interrupt: DelayedInterrupt, logged: Logged
) -> dict[str, float]:
    """Trains and writes the trial's local network, if any; returns its score by name."""
    local = local_trial(trial)
    if local is None:
        return {}
    task, processes = training.task, training.processes
    with seeded(trial.seed, task):
        without = start(local.plan, task, 0, processes)
        while not without.done and without.state.epoch < training.state.epoch:
            row = run_epoch(without, trial)
            if processes.leads:
                logged.report(trial, without, row, yardstick=True)
            if processes.any(interrupt.noted):
                raise KeyboardInterrupt
    _write(folder, local, without, split_result(local, without), {})
    return {LOCAL: without.best.test_metric if len(task.test) else without.best.val_metric}


def run_epoch(training: Training, trial: Trial) -> tuple[float, ...]:
    """Trains for one epoch; an error names the trial."""
    try:
        return training.epoch()
    except TrainingError as error:
        raise TrainingError(f"{trial.name}: {error}") from None


@contextmanager
def curve_log(
    folder: Path, epoch: int, wanted: bool
) -> Iterator[Callable[[int, tuple[float, ...]], None]]:
    """Yields a function that writes a row of the curves for TensorBoard, if ``wanted``. Drops rows
    after ``epoch`` that a killed process has left."""
    if not wanted:
        yield lambda epoch, row: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        problem = "--tensorboard needs the package tensorboard: pip install 'phgcn[log]'"
        raise ValueError(problem) from None
    with SummaryWriter(str(folder), purge_step=epoch + 1) as writer:

        def log_row(number: int, row: tuple[float, ...]) -> None:
            for name, value in zip(CURVES, row, strict=True):
                writer.add_scalar(name, value, number)

        yield log_row


def split_result(trial: Trial, training: Training) -> dict[str, Any]:
    """Returns the result of a trial after its last epoch; ``seconds`` include checkpoints."""
    best, state, task = training.best, training.state, training.task
    times = [row[CURVES.index("seconds")] for row in state.curves]
    tolerances = [module for module in training.model.modules() if isinstance(module, Tolerance)]
    return {
        "split": trial.split,
        "repeat": trial.repeat,
        "model": trial.plan.model,
        "seed": trial.seed,
        "test": best.test_metric,
        "test_at_best_val_loss": training.best_by_loss.test_metric,
        "test_at_best_val_metric": training.best_by_metric.test_metric,
        "val_loss": best.val_loss,
        "val_metric": best.val_metric,
        "best_epoch": best.epoch,
        "epochs": state.epoch,
        "nodes": {"train": len(task.train), "val": len(task.val), "test": len(task.test)},
        "local_epochs": state.epoch if state.global_off else state.phase_start,
        "global_attention": training.global_attention(),
        "methods_within_tolerance": [tolerance.chosen for tolerance in tolerances],
        "seconds": sum(times) + state.checkpoint_seconds,
        "seconds_per_epoch": sorted(times)[len(times) // 2],
    }


def run_result(plan: Plan, about: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    scores = ("test", "test_at_best_val_loss", "test_at_best_val_metric", "val_loss", "val_metric")
    global_attention = [row["global_attention"] for row in rows]
    times = sorted(row["seconds_per_epoch"] for row in rows)
    return {
        "graph": about["graph"]["name"],
        "source": plan.source,
        "model": plan.model,
        "protocol": plan.protocol,
        "task": plan.task,
        "metric": plan.metric,
        "config": about["settings"],
        "seed": plan.seed,
        "seeds": [row["seed"] for row in rows],
        **{name: spread([row[name] for row in rows]) for name in scores},
        "global_path": summarise(global_attention, about["graph"]["nodes"]),
        "epochs": sum(row["epochs"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "seconds_per_epoch": times[len(times) // 2],
        "splits": rows,
        "yardsticks": summarise_yardsticks(rows),
        "commonest": about.get("commonest", ""),
        "search": about.get("search"),
        "versions": about["versions"],
        "provenance": provenance(plan.seed, plan.device),
    }
