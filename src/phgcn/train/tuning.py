"""Searches for good settings with Optuna, by validation loss.

A SQLite file holds the study: several processes can work on it at once, and a later one can
continue it. Tasks have no test labels (:func:`phgcn.train.prepare.without_test`)."""

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

from ..files import write_json, write_text
from ..provenance import provenance
from ..text import counted
from . import graph as graphs
from . import settings as config
from .candidates import Candidate
from .entrant import Entrant
from .loop import Task, TrainingError
from .plan import Plan
from .prepare import prepare, without_test
from .search import RUNGS

if TYPE_CHECKING:
    import optuna

Suggest = Callable[["optuna.Trial"], Any]

WIDTHS = [4, 8, 16, 32, 64, 128, 256]

ALWAYS: dict[str, Suggest] = {
    "heads": lambda trial: trial.suggest_categorical("heads", [1, 2, 4, 8]),
    "dropout": lambda trial: trial.suggest_float("dropout", 0.0, 0.9, step=0.1),
    "attention_dropout": lambda trial: trial.suggest_float("attention_dropout", 0.0, 0.8, step=0.1),
    "learning_rate": lambda trial: trial.suggest_float("learning_rate", 1e-3, 5e-2, log=True),
}
ON_REQUEST: dict[str, Suggest] = {
    "hidden_channels": lambda trial: trial.suggest_categorical("hidden_channels", WIDTHS),
    "num_layers": lambda trial: trial.suggest_int("num_layers", 1, 12),
    "local": lambda trial: trial.suggest_categorical("local", ["gcn", "sage", "gat", "none"]),
    "global_layers": lambda trial: trial.suggest_int("global_layers", 0, 2),
    "global_at": lambda trial: trial.suggest_categorical("global_at", ["top", "each", "input"]),
    "labels": lambda trial: trial.suggest_categorical("labels", [False, True]),
    "key_share": lambda trial: trial.suggest_float("key_share", 0.3, 0.9, step=0.1),
    "decay": lambda trial: trial.suggest_float("decay", 0.3, 30.0, log=True),
    "weight_decay": lambda trial: trial.suggest_float("weight_decay", 1e-6, 1e-1, log=True),
    "decay_local": lambda trial: trial.suggest_float("decay_local", 0.1, 10.0, log=True),
    "decay_global": lambda trial: trial.suggest_float("decay_global", 1.0, 100.0, log=True),
    "embedding_dim": lambda trial: trial.suggest_categorical("embedding_dim", [2, 3, 4, 6, 8]),
}


# epochs of the first rung, and the factor to the next, which one of so many trials reaches
FIRST_RUNG, REDUCTION = RUNGS["short"][0], 3


@dataclass(frozen=True)
class TrialReport:
    """One trial that has ended.

    Args:
        number (int): The index of the trial in the study.
        val_loss (float, optional): Its mean validation loss, if it is complete.
        best_val_loss (float, optional): The smallest of all complete trials, if there is one.
        ended (int): How many trials of the study have ended.
    """

    number: int
    val_loss: float | None
    best_val_loss: float | None
    ended: int


def check_trials(trials: int) -> None:
    if trials < 1:
        raise ValueError(f"trials is {trials}; allowed: 1 or more")


def space(model: str, also: list[str]) -> dict[str, Suggest]:
    """Returns the settings to vary: heads, dropouts and learning rate, and others on request."""
    allowed = config.keys(model)
    for name in also:
        if name not in ON_REQUEST or name not in allowed:
            choices = ", ".join(key for key in ON_REQUEST if key in allowed)
            raise ValueError(f"also is {name!r}; allowed for {model}: {choices}")
    varied = ALWAYS | {name: ON_REQUEST[name] for name in ON_REQUEST if name in also}
    return {name: suggest for name, suggest in varied.items() if name in allowed}


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
    """Runs trials until the study has ``trials`` of them, and writes ``config.toml`` and
    ``tune.json`` beside it.

    Args:
        folder (str or Path): The folder of the study; made if need be.
        plan (Plan): The training; its settings are the first trial.
        data (torch_geometric.data.Data): The graph.
        trials (int): The number of trials, with trials of other processes and earlier days.
        also (list of str): Settings to vary on request.
        report (callable): Called after every trial.
        command (str, optional): The command that repeats the search, for the heading of
            ``config.toml``. (default: ``phgcn tune``)
        without (list of str): Settings that ``config.toml`` leaves open.
    """
    check_trials(trials)
    folder, varied = Path(folder), space(plan.model, also)
    study = _study(folder, plan, data, varied)
    command = command or _command(plan, data, varied)
    origin = provenance(plan.seed, plan.device)
    search = _Search(folder, study, plan, data, varied, command, origin, without)
    tasks = [without_test(task) for task in prepare(plan, data)]

    def objective(trial: optuna.Trial) -> float:
        for key in ("commit", "dirty"):  # other code may continue the study
            trial.set_user_attr(key, origin[key])
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
    """Replaces settings of the plan by suggested ones, rounded to three digits as in the file."""
    floats = {key: value for key, value in suggested.items() if isinstance(value, float)}
    rounded = {key: float(f"{value:.3g}") for key, value in floats.items()}
    return config.change(plan.settings, suggested | rounded, plan.model, "the trial")


def _study(folder: Path, plan: Plan, data: Data, varied: dict[str, Suggest]) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise ValueError("phgcn tune needs the package optuna: pip install 'phgcn[tune]'") from None
    optuna.logging.set_verbosity(logging.WARNING)
    # Trials can be compared only if they agree in all this.
    about = asdict(plan) | {"digest": graphs.digest(data), "varied": sorted(varied)}
    del about["settings"], about["device"]
    settings = config.used(plan.settings, plan.model)
    about["fixed"] = {key: value for key, value in settings.items() if key not in varied}
    first = {key: value for key, value in settings.items() if key in varied}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Locked: two processes must not create the tables at once.
        with FileLock(folder / ".lock"), warnings.catch_warnings(), _study_errors(folder):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = _open(folder)
            _check_same(folder, study, about)
            study.enqueue_trial(first, skip_if_exists=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(folder)) from error
    return study


@contextmanager
def _study_errors(folder: Path) -> Iterator[None]:
    """Reports in one line a study whose database is damaged or cannot be written."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except (StorageInternalError, DatabaseError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        reason = getattr(cause, "orig", None) or cause or error
        problem = f"{folder / 'study.db'}: cannot be used ({reason})"
        raise ValueError(f"{problem}; move it away to begin a new study") from None


def _open(folder: Path) -> optuna.Study:
    import optuna

    storage = optuna.storages.RDBStorage(
        f"sqlite:///{(folder / 'study.db').resolve()}",
        # seconds to wait for another process to have written
        engine_kwargs={"connect_args": {"timeout": 60}},
        # so that trials of a process that was killed do not count as running for ever
        heartbeat_interval=30,
        grace_period=120,
    )
    return optuna.create_study(
        storage=storage,
        study_name="phgcn",
        sampler=optuna.samplers.TPESampler(constant_liar=True),
        pruner=optuna.pruners.SuccessiveHalvingPruner(FIRST_RUNG, REDUCTION),
        direction="minimize",
        load_if_exists=True,
    )


def _check_same(folder: Path, study: optuna.Study, about: dict[str, Any]) -> None:
    """Refuses to mix trials that cannot be compared."""
    about = json.loads(json.dumps(about))
    kept = study.user_attrs.get("about")
    if kept is None:
        study.set_user_attr("about", about)
    elif differing := "; ".join(_differences(_flat(kept), _flat(about))):
        raise ValueError(f"{folder}: the study there has {differing}; choose another --out")


def _differences(kept: dict[str, Any], about: dict[str, Any]) -> Iterator[str]:
    """Describes each difference of two studies; a key of another version does not count."""
    for key in (key for key in {**kept, **about} if key != "varied"):
        if key in kept and key in about:
            if kept[key] != about[key]:
                yield f"{key} {kept[key]!r}, not {about[key]!r}"
        elif key in about["varied"]:
            yield f"{key} fixed, not varied"
        elif key in kept["varied"]:
            yield f"{key} varied, not fixed"


def _flat(about: dict[str, Any]) -> dict[str, Any]:
    """Gives each fixed setting and each column of the graph's tables a key of its own."""
    fixed: dict[str, Any] = about["fixed"]
    flat = {key: value for key, value in about.items() if key not in ("fixed", "columns")}
    columns = about.get("columns", {}).items()
    return flat | fixed | {f"column {key}": value for key, value in columns}


def _mean_loss(plan: Plan, tasks: list[Task], trial: optuna.Trial) -> float:
    """Trains on every split, rung by rung. Returns the mean of the smallest validation losses."""
    import optuna

    candidate = Candidate(f"trial {trial.number}", plan.model, plan.settings)
    entrants = [Entrant(candidate, plan, tasks[run.split], seed=run.seed) for run in plan.trials()]
    epochs = FIRST_RUNG
    while True:
        for entrant in entrants:
            entrant.run(epochs)
            if entrant.failure:  # such settings are not worth more time
                trial.set_user_attr("error", entrant.failure)
                raise optuna.TrialPruned
        loss = sum(entrant.loss for entrant in entrants) / len(entrants)
        if all(entrant.done for entrant in entrants):
            return loss
        trial.report(loss, epochs)
        if trial.should_prune():
            raise optuna.TrialPruned
        epochs *= REDUCTION


def _ended(study: optuna.Study) -> int:
    """Counts the trials that have ended; a trial of a killed process has not."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))


def _best(study: optuna.Study) -> float | None:
    import optuna

    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return min((trial.value for trial in complete if trial.value is not None), default=None)


def _command(plan: Plan, data: Data, varied: dict[str, Suggest]) -> str:
    also = "".join(f" --also {name}" for name in varied if name in ON_REQUEST)
    protocol = f"--protocol {plan.protocol} --splits {plan.splits}"
    return f"phgcn tune {data.name} --model {plan.model} {protocol}{also}"


@dataclass(frozen=True)
class _Search:
    """A study and the content of its files."""

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
        plan, rows = self.plan, [_row(trial) for trial in self.study.get_trials(deepcopy=False)]
        result: dict[str, Any] = {
            "graph": str(self.data.name),
            "source": plan.source,
            "model": plan.model,
            "protocol": plan.protocol,
            "splits": plan.splits,
            "seed": plan.seed,
            "varied": sorted(self.varied),
            "study": str(self.folder / "study.db"),
            "best": None,
            "config": None,
            "trials": rows,
            "provenance": self.origin,
        }
        if (val_loss := _best(self.study)) is not None:
            best, file = self.study.best_trial, self.folder / "config.toml"
            settings = _settings(plan, best.params)
            heading = self._heading(len(rows), val_loss)
            write_text(file, config.as_toml(settings, plan.model, heading, self.without))
            used = config.used(settings, plan.model)
            result["best"] = {"number": best.number, "val_loss": val_loss, "settings": used}
            result["config"] = str(file)
        write_json(self.folder / "tune.json", result)
        return result

    def _heading(self, trials: int, val_loss: float) -> str:
        plan, splits = self.plan, counted(self.plan.splits, "split")
        return (
            f"{plan.model} on {self.data.name}: the best of {trials} trials by validation loss "
            f"({val_loss:.4f}, mean of {splits} of protocol {plan.protocol}).\n"
            f"Found by: {self.command}, what is not varied set as below."
        )


def _row(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    code = {key: trial.user_attrs.get(key) for key in ("commit", "dirty")}
    about = {"number": trial.number, "state": trial.state.name.lower(), "val_loss": trial.value}
    return {**about, **trial.params, **code}
