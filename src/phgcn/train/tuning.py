r"""Looks for good settings with Optuna, by validation loss.

A study lives in a SQLite file: several processes can work on it at once, and a later day can continue it.  Labels of test
nodes are taken away before a training starts.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from torch_geometric.data import Data

from . import graph as graphs
from . import settings as config
from .files import write_json, write_text
from .loop import Task, TrainingError
from .run import Plan, prepare, seeded, start

if TYPE_CHECKING:
    import optuna

Suggest = Callable[["optuna.Trial"], Any]

ALWAYS: dict[str, Suggest] = {
    "heads": lambda trial: trial.suggest_categorical("heads", [1, 2, 4, 8]),
    "dropout": lambda trial: trial.suggest_float("dropout", 0.0, 0.9, step=0.1),
    "attention_dropout": lambda trial: trial.suggest_float("attention_dropout", 0.0, 0.8, step=0.1),
    "learning_rate": lambda trial: trial.suggest_float("learning_rate", 1e-3, 5e-2, log=True),
}
ON_REQUEST: dict[str, Suggest] = {
    "hidden_channels": lambda trial: trial.suggest_categorical("hidden_channels", [4, 8, 16, 32, 64]),
    "weight_decay": lambda trial: trial.suggest_float("weight_decay", 1e-6, 1e-1, log=True),
    "decay_local": lambda trial: trial.suggest_float("decay_local", 0.1, 10.0, log=True),
    "decay_global": lambda trial: trial.suggest_float("decay_global", 1.0, 100.0, log=True),
    "embedding_dim": lambda trial: trial.suggest_categorical("embedding_dim", [2, 3, 4, 6, 8]),
}


@dataclass(frozen=True)
class Told:
    """What is told after every trial."""

    number: int
    value: float | None  # the mean validation loss; None if the trial failed or was cut short
    best: float | None
    done: int


def space(model: str, also: list[str]) -> dict[str, Suggest]:
    """The settings to vary: the paper's three (dropout counting as one), and others on request."""
    allowed = config.keys(model)
    for name in also:
        if name not in ON_REQUEST or name not in allowed:
            choices = ", ".join(key for key in ON_REQUEST if key in allowed)
            raise ValueError(f"also is {name!r}; allowed for {model}: {choices}")
    wanted = {*ALWAYS, *also}
    return {name: suggest for name, suggest in (ALWAYS | ON_REQUEST).items() if name in allowed and name in wanted}


def tune(
    folder: str | Path,
    plan: Plan,
    data: Data,
    trials: int,
    also: list[str],
    told: Callable[[Told], None] = lambda told: None,
    command: str | None = None,
) -> dict[str, Any]:
    """Runs trials until the study has so many, and writes ``config.toml`` and ``tune.json`` beside it.

    Args:
        folder (str or Path): Where the study is, or will be.
        plan (Plan): What to train; its settings are the first trial, those not varied stay as they are.
        data (torch_geometric.data.Data): The graph.
        trials (int): How many the study shall have, counting those of other processes and days.
        also (list of str): Settings to vary on request.
        told (callable): Called after every trial. (default: nothing)
        command (str, optional): How it is repeated, for the heading of the file. (default: :obj:`None`, `phgcn tune`)
    """
    if trials < 1:
        raise ValueError(f"trials is {trials}; allowed: 1 or more")
    folder, varied = Path(folder), space(plan.model, also)
    study = _study(folder, plan, data, varied)
    command = command or _command(plan, data, varied)
    tasks = [without_test(task) for task in prepare(plan, data)]

    def objective(trial: optuna.Trial) -> float:
        found = {name: suggest(trial) for name, suggest in varied.items()}
        return _mean_loss(replace(plan, settings=_settings(plan, found)), tasks, trial)

    def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        _write(folder, study, plan, data, varied, command)  # after every trial: what was found outlives a kill
        value = trial.value if trial.state.name == "COMPLETE" else None
        told(Told(trial.number, value, _best(study), _ended(study)))

    while _ended(study) < trials:
        study.optimize(objective, n_trials=1, callbacks=[tell])
    result = _write(folder, study, plan, data, varied, command)
    if result["best"] is None:
        raise TrainingError(f"{folder}: no trial came to an end; see {folder / 'tune.json'}")
    return result


def _settings(plan: Plan, found: dict[str, Any]) -> config.Settings:
    """The plan's settings with those that were found, numbers rounded to three digits as the file will have them."""
    rounded = {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in found.items()}
    return config.change(plan.settings, rounded, plan.model, "the trial")


def without_test(task: Task) -> Task:
    """The task with its test nodes unlabelled and forgotten."""
    y = task.y.clone()
    y[task.test] = -1
    return replace(task, y=y, test=task.test[:0])


def _study(folder: Path, plan: Plan, data: Data, varied: dict[str, Suggest]) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise ValueError("phgcn tune needs the package optuna: pip install 'phgcn[tune]'") from None
    optuna.logging.set_verbosity(logging.WARNING)
    # What trials must have in common to be compared; a study of something else is another study.
    common = {key: value for key, value in asdict(plan).items() if key not in ("settings", "device")}
    fixed = {key: value for key, value in config.used(plan.settings, plan.model).items() if key not in varied}
    about = {**common, "digest": graphs.digest(data), "fixed": fixed, "varied": sorted(varied)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"), warnings.catch_warnings():  # two processes must not make the tables at once
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = _open(folder)
            _same_study(folder, study, about)
            first = {key: value for key, value in config.used(plan.settings, plan.model).items() if key in varied}
            study.enqueue_trial(first, skip_if_exists=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(folder)) from error
    return study


def _open(folder: Path) -> optuna.Study:
    """The study in a folder, made if need be."""
    import optuna

    storage = optuna.storages.RDBStorage(
        f"sqlite:///{(folder / 'study.db').resolve()}",
        engine_kwargs={"connect_args": {"timeout": 60}},  # seconds to wait for another process to have written
        heartbeat_interval=30,  # so that trials of a process that was killed do not count as running for ever
        grace_period=120,
    )
    return optuna.create_study(
        storage=storage,
        study_name="phgcn",
        sampler=optuna.samplers.TPESampler(constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
        direction="minimize",
        load_if_exists=True,
    )


def _same_study(folder: Path, study: optuna.Study, about: dict[str, Any]) -> None:
    """Refuses to mix trials that cannot be compared."""
    about = json.loads(json.dumps(about))
    kept = study.user_attrs.get("about")
    if kept is None:
        study.set_user_attr("about", about)
        return
    for key, value in about.items():
        if kept.get(key) != value:
            raise ValueError(f"{folder}: the study there has {key} {kept.get(key)!r}, not {value!r}; choose another --out")


def _mean_loss(plan: Plan, tasks: list[Task], trial: optuna.Trial) -> float:
    """The mean over splits of the smallest validation loss."""
    import optuna

    losses: list[float] = []
    for run in plan.trials():
        with seeded(run.seed, tasks[run.split]):
            training = start(plan, tasks[run.split])
            try:
                while not training.done:
                    training.epoch()
            except TrainingError as error:  # such settings are not worth more time
                trial.set_user_attr("error", str(error))
                raise optuna.TrialPruned from None
        losses.append(training.best.val_loss)
        trial.report(sum(losses) / len(losses), len(losses))
        if len(losses) < len(plan.trials()) and trial.should_prune():
            raise optuna.TrialPruned
    return sum(losses) / len(losses)


def _ended(study: optuna.Study) -> int:
    """How many trials came to an end; those of a process that was killed did not."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))


def _best(study: optuna.Study) -> float | None:
    import optuna

    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return min((trial.value for trial in complete if trial.value is not None), default=None)


def _command(plan: Plan, data: Data, varied: dict[str, Suggest]) -> str:
    also = "".join(f" --also {name}" for name in varied if name in ON_REQUEST)
    return f"phgcn tune {data.name} --model {plan.model} --protocol {plan.protocol} --splits {plan.splits}{also}"


def _write(
    folder: Path, study: optuna.Study, plan: Plan, data: Data, varied: dict[str, Suggest], command: str
) -> dict[str, Any]:
    """Writes the settings of the best trial, and all trials."""
    rows = [
        {"number": trial.number, "state": trial.state.name.lower(), "val_loss": trial.value, **trial.params}
        for trial in study.get_trials(deepcopy=False)
    ]
    result: dict[str, Any] = {
        "graph": str(data.name), "source": plan.source, "model": plan.model, "protocol": plan.protocol,
        "splits": plan.splits, "seed": plan.seed, "varied": sorted(varied),
        "study": str(folder / "study.db"), "best": None, "config": None, "trials": rows,
    }  # fmt: skip
    if _best(study) is not None:
        best = study.best_trial
        settings = _settings(plan, best.params)
        heading = (
            f"{plan.model} on {data.name}: the best of {len(rows)} trials by validation loss ({best.value:.4f}, mean of "
            f"{plan.splits} splits of protocol {plan.protocol}).\nFound by: {command}, what is not varied set as below."
        )
        write_text(folder / "config.toml", config.as_toml(settings, plan.model, heading))
        result["best"] = {"number": best.number, "val_loss": best.value, "settings": config.used(settings, plan.model)}
        result["config"] = str(folder / "config.toml")
    write_json(folder / "tune.json", result)
    return result
