r"""Searches for good settings with Optuna, by validation loss.

A study lives in a SQLite file: several processes can work on it at once, and a later day can continue it.  The labels of test
nodes are removed before a training starts (:func:`without_test`).
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from torch_geometric.data import Data

from ..data.labels import without_labels
from ..files import write_json, write_text
from ..provenance import provenance
from . import graph as graphs
from . import settings as config
from .loop import Task, TrainingError
from .plan import Plan
from .prepare import prepare, seeded, start

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
    "hidden_channels": lambda trial: trial.suggest_categorical("hidden_channels", [4, 8, 16, 32, 64, 128, 256]),
    "num_layers": lambda trial: trial.suggest_int("num_layers", 1, 12),
    "local": lambda trial: trial.suggest_categorical("local", ["gcn", "sage", "gat", "none"]),
    "global_layers": lambda trial: trial.suggest_int("global_layers", 0, 2),
    "weight_decay": lambda trial: trial.suggest_float("weight_decay", 1e-6, 1e-1, log=True),
    "decay_local": lambda trial: trial.suggest_float("decay_local", 0.1, 10.0, log=True),
    "decay_global": lambda trial: trial.suggest_float("decay_global", 1.0, 100.0, log=True),
    "embedding_dim": lambda trial: trial.suggest_categorical("embedding_dim", [2, 3, 4, 6, 8]),
}


@dataclass(frozen=True)
class TrialReport:
    """One trial that has ended.

    Args:
        number (int): The trial's number in the study.
        val_loss (float, optional): Its mean validation loss; :obj:`None` if it failed or was cut short.
        best_val_loss (float, optional): The smallest of the study so far; :obj:`None` if no trial is complete.
        ended (int): The number of trials of the study that have ended.
    """

    number: int
    val_loss: float | None
    best_val_loss: float | None
    ended: int


def check_trials(trials: int) -> None:
    """Refuses a study without trials."""
    if trials < 1:
        raise ValueError(f"trials is {trials}; allowed: 1 or more")


def space(model: str, also: list[str]) -> dict[str, Suggest]:
    """Returns the settings to vary: the paper's three (both dropouts counting as one), and others on request."""
    allowed = config.keys(model)
    for name in also:
        if name not in ON_REQUEST or name not in allowed:
            choices = ", ".join(key for key in ON_REQUEST if key in allowed)
            raise ValueError(f"also is {name!r}; allowed for {model}: {choices}")
    varied = {*ALWAYS, *also}
    return {name: suggest for name, suggest in (ALWAYS | ON_REQUEST).items() if name in allowed and name in varied}


def tune(
    folder: str | Path,
    plan: Plan,
    data: Data,
    trials: int,
    also: list[str],
    report: Callable[[TrialReport], None] = lambda report: None,
    command: str | None = None,
    without: Sequence[str] = (),
) -> dict[str, Any]:
    """Runs trials until the study has ``trials`` of them, and writes ``config.toml`` and ``tune.json`` beside it.

    Args:
        folder (str or Path): The folder of the study; made if need be.
        plan (Plan): What to train; its settings are the first trial, those not varied stay as they are.
        data (torch_geometric.data.Data): The graph.
        trials (int): The number of trials, counting those of other processes and days.
        also (list of str): Settings to vary on request.
        report (callable): Called after every trial. (default: nothing)
        command (str, optional): How to repeat the search, for the heading of ``config.toml``. (default: :obj:`None`,
            ``phgcn tune``)
        without (list of str): Settings that ``config.toml`` leaves open, as those of a search need not be those of a training.
            (default: none)
    """
    check_trials(trials)
    folder, varied = Path(folder), space(plan.model, also)
    study = _study(folder, plan, data, varied)
    command = command or _command(plan, data, varied)
    search = _Search(folder, study, plan, data, varied, command, provenance(plan.seed, plan.device), without)
    tasks = [without_test(task) for task in prepare(plan, data)]

    def objective(trial: optuna.Trial) -> float:
        for key in ("commit", "dirty"):  # of each trial: a study may be continued with other code
            trial.set_user_attr(key, search.origin[key])
        suggested = {name: suggest(trial) for name, suggest in varied.items()}
        return _mean_loss(replace(plan, settings=_settings(plan, suggested)), tasks, trial)

    def trial_ended(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        search.write()  # after every trial: a kill loses only the running one
        val_loss = trial.value if trial.state.name == "COMPLETE" else None
        report(TrialReport(trial.number, val_loss, _best(study), _ended(study)))

    with _study_errors(folder):
        while _ended(study) < trials:
            study.optimize(objective, n_trials=1, callbacks=[trial_ended])
        result = search.write()
    if result["best"] is None:
        raise TrainingError(f"{folder}: no trial came to an end; see {folder / 'tune.json'}")
    return result


def _settings(plan: Plan, suggested: dict[str, Any]) -> config.Settings:
    """Replaces settings of the plan by suggested ones, numbers rounded to three digits as the file will have them."""
    rounded = {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in suggested.items()}
    return config.change(plan.settings, rounded, plan.model, "the trial")


def without_test(task: Task) -> Task:
    """Removes the test nodes from a task: they have no labels any more, and no node is a test node."""
    return replace(task, y=without_labels(task.y, task.test), test=task.test[:0])


def _study(folder: Path, plan: Plan, data: Data, varied: dict[str, Suggest]) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise ValueError("phgcn tune needs the package optuna: pip install 'phgcn[tune]'") from None
    optuna.logging.set_verbosity(logging.WARNING)
    # Trials can be compared only if they agree in all this; otherwise they belong to another study.
    common = {key: value for key, value in asdict(plan).items() if key not in ("settings", "device")}
    fixed = {key: value for key, value in config.used(plan.settings, plan.model).items() if key not in varied}
    about = {**common, "digest": graphs.digest(data), "fixed": fixed, "varied": sorted(varied)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Locked: two processes must not create the tables at once.
        with FileLock(folder / ".lock"), warnings.catch_warnings(), _study_errors(folder):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = _open(folder)
            _same_study(folder, study, about)
            first = {key: value for key, value in config.used(plan.settings, plan.model).items() if key in varied}
            study.enqueue_trial(first, skip_if_exists=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(folder)) from error
    return study


@contextmanager
def _study_errors(folder: Path) -> Iterator[None]:
    """Names the study in one line where its database is damaged, or cannot be written."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except (StorageInternalError, DatabaseError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        reason = getattr(cause, "orig", None) or cause or error
        raise ValueError(f"{folder / 'study.db'}: cannot be used ({reason}); move it away to begin a new study") from None


def _open(folder: Path) -> optuna.Study:
    """Opens the study in a folder, or creates it."""
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
    if differing := list(_differences(_flat(kept), _flat(about))):
        raise ValueError(f"{folder}: the study there has {'; '.join(differing)}; choose another --out")


def _differences(kept: dict[str, Any], about: dict[str, Any]) -> Iterator[str]:
    """Says in what a study differs from what is asked for now; keys that only one version of phgcn writes do not count."""
    for key in (key for key in {**kept, **about} if key != "varied"):
        if key in kept and key in about:
            if kept[key] != about[key]:
                yield f"{key} {kept[key]!r}, not {about[key]!r}"
        elif key in about["varied"]:
            yield f"{key} fixed, not varied"
        elif key in kept["varied"]:
            yield f"{key} varied, not fixed"


def _flat(about: dict[str, Any]) -> dict[str, Any]:
    """Returns what a study is about with a key for each setting and for each column of the graph's tables."""
    flat = {key: value for key, value in about.items() if key not in ("fixed", "columns")}
    flat |= about["fixed"]
    return flat | {f"column {key}": value for key, value in about.get("columns", {}).items()}


def _mean_loss(plan: Plan, tasks: list[Task], trial: optuna.Trial) -> float:
    """Trains on every split; returns the mean of the smallest validation losses."""
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
        losses.append(training.best_by_loss.val_loss)
        trial.report(sum(losses) / len(losses), len(losses))
        if len(losses) < len(plan.trials()) and trial.should_prune():
            raise optuna.TrialPruned
    return sum(losses) / len(losses)


def _ended(study: optuna.Study) -> int:
    """Counts the trials that have ended; those of a process that was killed have not."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))


def _best(study: optuna.Study) -> float | None:
    """Returns the smallest validation loss of all complete trials."""
    import optuna

    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return min((trial.value for trial in complete if trial.value is not None), default=None)


def _command(plan: Plan, data: Data, varied: dict[str, Suggest]) -> str:
    also = "".join(f" --also {name}" for name in varied if name in ON_REQUEST)
    return f"phgcn tune {data.name} --model {plan.model} --protocol {plan.protocol} --splits {plan.splits}{also}"


@dataclass(frozen=True)
class _Search:
    """A study and what its files say about it."""

    folder: Path
    study: optuna.Study
    plan: Plan
    data: Data
    varied: dict[str, Suggest]
    command: str
    origin: dict[str, Any]  # provenance of this process
    without: Sequence[str]  # settings that are not written

    def write(self) -> dict[str, Any]:
        """Writes ``tune.json``, all trials, and ``config.toml``, the settings of the best one."""
        plan = self.plan
        rows = [
            {"number": trial.number, "state": trial.state.name.lower(), "val_loss": trial.value, **trial.params}
            | {key: trial.user_attrs.get(key) for key in ("commit", "dirty")}
            for trial in self.study.get_trials(deepcopy=False)
        ]
        result: dict[str, Any] = {
            "graph": str(self.data.name), "source": plan.source, "model": plan.model, "protocol": plan.protocol,
            "splits": plan.splits, "seed": plan.seed, "varied": sorted(self.varied),
            "study": str(self.folder / "study.db"), "best": None, "config": None, "trials": rows, "provenance": self.origin,
        }  # fmt: skip
        if (val_loss := _best(self.study)) is not None:
            best = self.study.best_trial
            settings = _settings(plan, best.params)
            heading = self._heading(len(rows), val_loss)
            write_text(self.folder / "config.toml", config.as_toml(settings, plan.model, heading, self.without))
            result["best"] = {"number": best.number, "val_loss": val_loss, "settings": config.used(settings, plan.model)}
            result["config"] = str(self.folder / "config.toml")
        write_json(self.folder / "tune.json", result)
        return result

    def _heading(self, trials: int, val_loss: float) -> str:
        plan = self.plan
        return (
            f"{plan.model} on {self.data.name}: the best of {trials} trials by validation loss ({val_loss:.4f}, mean of "
            f"{plan.splits} splits of protocol {plan.protocol}).\nFound by: {self.command}, what is not varied set as below."
        )
