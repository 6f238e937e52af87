r"""A search for settings: Optuna's TPE sampler over the space of a model, judged by validation, every trial kept as JSON.

A study lives in one file, written whole after every trial; the study in memory is made again from it, so that a search that
was cut off continues.  The labels of test nodes are removed before a training starts.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...files import read_json, write_json
from ...train import TrainingError
from .spaces import CHOOSING_SPLITS, FIXED, GRAPHS, OFF, OURS, PATHS, RECIPES, SEED, SPACES
from .training import Report, TimeUp, choose, free_memory, origin, plan_of, train_split

if TYPE_CHECKING:
    import optuna

STARTUP_TRIALS = 8
"""Trials before the sampler follows what it has seen: the recipes, then random ones."""
LEAST_SECONDS = 5.0
"""What a trial may take, however little time is left."""
ENDED = ("complete", "pruned", "failed")


@dataclass(frozen=True)
class Study:
    """A search for the settings of a model on a graph.

    Args:
        graph, model (str): Their names.
        trials (int): How many trials.
        seconds (float): How long at most, all calls together; the graph's ``effort`` multiplies it. Until a trial is
            complete the search goes on, and a trial may take so long alone.
        device (str): Where to compute.
        epochs (int, optional): Epochs at most, instead of those of the graph. (default: :obj:`None`)
    """

    graph: str
    model: str
    trials: int
    seconds: float
    device: str
    epochs: int | None = None

    @property
    def name(self) -> str:
        return f"{self.graph}-{self.model}"

    @property
    def limit(self) -> float:
        """The seconds that this study may take."""
        return self.seconds * GRAPHS[self.graph].effort

    def file(self, out: Path) -> Path:
        return out / "search" / f"{self.name}.json"

    def read(self, out: Path) -> dict[str, Any]:
        """Reads the study, or begins a new one; a study of another space is refused."""
        setup = GRAPHS[self.graph]
        about: dict[str, Any] = {
            "graph": self.graph,
            "model": self.model,
            "protocol": setup.protocol,
            "splits": list(CHOOSING_SPLITS),
            "epochs": self.epochs or setup.epochs,
            "patience": setup.patience,
            "fixed": FIXED.get(self.model, {}),
            "space": {key: list(values) for key, values in SPACES[self.model].items()},
            "sampler": f"TPE, seed {SEED} + the number of trials before, {STARTUP_TRIALS} at random; median pruner",
        }
        path = self.file(out)
        if not path.is_file():
            return {**about, "trials": []}
        content: dict[str, Any] = read_json(path)
        for key, value in about.items():
            if content.get(key) != value:
                raise ValueError(f"{path} was made with {key} {content.get(key)!r}, not {value!r}; choose another --out")
        return content

    def done(self, content: dict[str, Any]) -> bool:
        """Returns whether trials or time are used up."""
        trials = content["trials"]
        spent = sum(trial["seconds"] for trial in trials)
        return len(ended(trials)) >= self.trials or (best_trial(content) is not None and spent >= self.limit)


def ended(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Selects the trials that came to an end; others were cut off by time, and may be tried again."""
    return [trial for trial in trials if trial["state"] in ENDED]


def best_trial(content: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the best trial; of GlobalGNN the best with a global path."""
    ranked = [trial for trial in ranked_trials(content) if trial["settings"].get("global_layers") != 0]
    return ranked[0] if ranked else None


def ranked_trials(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Sorts complete trials, those with the best mean validation metric first; of equals those with the smallest loss."""
    complete = [trial for trial in content["trials"] if trial["state"] == "complete"]
    return sorted(complete, key=lambda trial: (-trial["value"], trial["val_loss"]))


def run_study(study: Study, out: Path, deadline: float, report: Report) -> dict[str, Any]:
    """Runs trials until the study is done or the deadline has passed; returns its content, as the file has it."""
    content = study.read(out)
    if study.done(content):
        return content
    sampler = _make_sampler(study, content)
    while not study.done(content) and time.time() < deadline:
        content["trials"].append(_run_trial(study, content, sampler, deadline))
        write_json(study.file(out), content)
        best, count = best_trial(content), len(ended(content["trials"]))
        report(f"{count} trials, best {best['value']:.4f}" if best else f"{count} trials", count / study.trials)
        free_memory()
    return content


def _run_trial(study: Study, content: dict[str, Any], sampler: optuna.Study, deadline: float) -> dict[str, Any]:
    """Trains one trial on the choosing splits, and tells the sampler."""
    path = _next_path(study, content)
    trial, values = (None, path) if path else _ask(study, content, sampler)
    begin, results, state = time.perf_counter(), [], "complete"
    spent = sum(row["seconds"] for row in content["trials"])
    left = study.limit - spent if best_trial(content) is not None else study.limit
    deadline = min(deadline, time.time() + max(left, LEAST_SECONDS))
    problem = None
    try:
        settings, arguments = choose(study.graph, study.model, values, study.epochs)
        plan = plan_of(study.graph, study.model, settings, study.device)
        for step, split in enumerate(CHOOSING_SPLITS):
            results.append(train_split(plan, arguments, split, deadline, show_test=False)[0])
            if trial is not None:
                trial.report(_mean(results, "val"), step)
                if step < len(CHOOSING_SPLITS) - 1 and trial.should_prune():
                    state = "pruned"
                    break
    except TimeUp:
        state = "cut"
    except (TrainingError, torch.OutOfMemoryError) as error:  # such settings are not worth more time
        state, problem = "failed", " ".join(str(error).split())[:200]
    if trial is not None:
        _tell(sampler, trial, state, results)
    return {
        "number": len(content["trials"]),
        "state": state,
        "value": _mean(results, "val") if state == "complete" else None,
        "val_loss": _mean(results, "val_loss") if state == "complete" else None,
        "val": [row["val"] for row in results],
        "epochs": [row["epochs"] for row in results],
        "seconds": time.perf_counter() - begin,
        "settings": values,
        "recipe": _searched(study, values) in RECIPES[study.model],
        **({"problem": problem} if problem else {}),
        **origin(study.device),
    }


def _mean(results: list[dict[str, Any]], key: str) -> float:
    return float(sum(row[key] for row in results) / len(results))


def _searched(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """Selects the settings that are in the model's space."""
    return {key: settings[key] for key in SPACES[study.model]}


def _next_path(study: Study, content: dict[str, Any]) -> dict[str, Any] | None:
    """Returns GlobalGNN's best body with the next global path, once half of the budget went into bodies."""
    if study.model != OURS:
        return None
    alone = [trial for trial in content["trials"] if trial["settings"]["global_layers"] == 0]
    half = len(ended(alone)) >= study.trials / 2 or sum(trial["seconds"] for trial in alone) >= study.limit / 2
    bodies = [trial["settings"] for trial in ranked_trials(content) if trial["settings"]["global_layers"] == 0]
    tried = [trial["settings"] for trial in ended(content["trials"])]
    left = ({**body, **path} for body in bodies for path in PATHS if {**body, **path} not in tried)
    return next(left, None) if half else None


# Optuna


def _make_sampler(study: Study, content: dict[str, Any]) -> optuna.Study:
    """Makes the study in memory from the trials so far, and enqueues the recipes that have not been tried."""
    try:
        import optuna
    except ImportError:
        raise ValueError("phgcn reproduce benchmark needs the package optuna: pip install 'phgcn[tune]'") from None
    optuna.logging.set_verbosity(logging.WARNING)
    tried = ended(content["trials"])
    sampler = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=SEED + len(content["trials"]), n_startup_trials=STARTUP_TRIALS),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    space: dict[str, optuna.distributions.BaseDistribution] = {
        key: optuna.distributions.CategoricalDistribution(choices) for key, choices in SPACES[study.model].items()
    }
    bodies = [row for row in tried if study.model != OURS or row["settings"]["global_layers"] == 0]
    for row in bodies:
        means = [sum(row["val"][: step + 1]) / (step + 1) for step in range(len(row["val"]))]
        told = optuna.trial.create_trial(
            state=_state(row["state"]), value=row["value"], params=_searched(study, row["settings"]),
            distributions=space,
            intermediate_values=dict(enumerate(means)),
        )  # fmt: skip
        sampler.add_trial(told)
    settings_tried = [_searched(study, row["settings"]) for row in bodies]
    for recipe in RECIPES[study.model]:
        if recipe not in settings_tried:
            sampler.enqueue_trial(recipe)
    return sampler


def _state(name: str) -> optuna.trial.TrialState:
    import optuna

    states = optuna.trial.TrialState
    return {"complete": states.COMPLETE, "pruned": states.PRUNED}.get(name, states.FAIL)


def _ask(study: Study, content: dict[str, Any], sampler: optuna.Study) -> tuple[optuna.Trial, dict[str, Any]]:
    """Asks for the next settings; those tried before are answered from the file, a few times at most."""
    tried = [row for row in content["trials"] if row["state"] == "complete"]
    for left in reversed(range(20)):
        trial = sampler.ask()
        values: dict[str, Any] = {key: trial.suggest_categorical(key, choices) for key, choices in SPACES[study.model].items()}
        values |= OFF if study.model == OURS else {}
        same = [row for row in tried if row["settings"] == values]
        if not same or left == 0:
            break
        sampler.tell(trial, same[0]["value"])
    return trial, values


def _tell(sampler: optuna.Study, trial: optuna.Trial, state: str, results: list[dict[str, Any]]) -> None:
    value = _mean(results, "val") if state == "complete" else None
    sampler.tell(trial, value, state=_state(state))
