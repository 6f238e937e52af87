r"""A search for settings: Optuna's TPE sampler over the space of a model, judged by validation,
every trial kept as JSON.

A study lives in one file, written whole after every trial; the study in memory is made again from
it, so that a search that was cut off continues.  The labels of test nodes are removed before a
training starts."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from phgcn.files import write_json
from phgcn.train import TrainingError

from ..experiment import TimeUp, journal
from ..extra import needed
from ..results import Row
from ..workers import Report
from .spaces import CHOOSING_SPLITS, FIXED, GRAPHS, OFF, OURS, PATHS, RECIPES, SEED, SPACES
from .training import choose, free_memory, origin, plan_of, train_split

if TYPE_CHECKING:
    import optuna

STARTUP_TRIALS = 8
"""Trials before the sampler follows what it has seen: the recipes, then random ones."""
LEAST_SECONDS = 5.0  # What a trial may take, however little time is left
SAMPLER = (
    f"TPE, seed {SEED} + the number of trials before, {STARTUP_TRIALS} at random; median pruner"
)
ENDED = ("complete", "pruned", "failed")


@dataclass(frozen=True)
class Study:
    graph: str
    model: str
    trials: int
    # Of all calls together, times the graph's effort.  Until a trial is complete the search goes
    # on, and a trial may take so long alone.
    seconds: float
    device: str
    epochs: int | None = None  # at most, instead of those of the graph

    @property
    def name(self) -> str:
        return f"{self.graph}-{self.model}"

    @property
    def limit(self) -> float:
        return self.seconds * GRAPHS[self.graph].effort

    def file(self, out: Path) -> Path:
        return out / "search" / f"{self.name}.json"

    def read(self, out: Path) -> Row:
        """Reads the study, or begins a new one; a study of another space is refused."""
        setup = GRAPHS[self.graph]
        about: Row = {"graph": self.graph, "model": self.model}
        about["protocol"] = setup.protocol
        about |= {"splits": list(CHOOSING_SPLITS), "epochs": self.epochs or setup.epochs}
        about |= {"patience": setup.patience, "fixed": FIXED.get(self.model, {})}
        about["space"] = {key: list(values) for key, values in SPACES[self.model].items()}
        about["sampler"] = SAMPLER
        return journal(self.file(out), about, "trials", refuse=True)

    def done(self, content: Row) -> bool:
        trials = content["trials"]
        out_of_time = best_trial(content) is not None and seconds_of(trials) >= self.limit
        return out_of_time or len(ended(trials)) >= self.trials


def seconds_of(trials: list[Row]) -> float:
    return float(sum(trial["seconds"] for trial in trials))


def ended(trials: list[Row]) -> list[Row]:
    """Selects the trials that came to an end; others were cut off by time, and may be tried
    again."""
    return [trial for trial in trials if trial["state"] in ENDED]


def best_trial(content: Row) -> Row | None:
    """Of GlobalGNN the best with a global path."""
    return next((trial for trial in ranked_trials(content) if not is_body(trial)), None)


def is_body(trial: Row) -> bool:
    return bool(trial["settings"].get("global_layers") == 0)


def ranked_trials(content: Row) -> list[Row]:
    """Sorts by the mean validation metric, then by the loss."""
    complete = [trial for trial in content["trials"] if trial["state"] == "complete"]
    return sorted(complete, key=lambda trial: (-trial["value"], trial["val_loss"]))


def run_study(study: Study, out: Path, deadline: float, report: Report) -> Row:
    content = study.read(out)
    if study.done(content):
        return content
    sampler = _make_sampler(study, content)
    while not study.done(content) and time.time() < deadline:
        content["trials"].append(_run_trial(study, content, sampler, deadline))
        write_json(study.file(out), content)
        best, count = best_trial(content), len(ended(content["trials"]))
        value = f", best {best['value']:.4f}" if best else ""
        report(f"{count} trials{value}", count / study.trials)
        free_memory()
    return content


def _run_trial(study: Study, content: Row, sampler: optuna.Study, deadline: float) -> Row:
    path = _next_path(study, content)
    trial, values = (None, path) if path else _ask(study, content, sampler)
    begin, results, state = time.perf_counter(), [], "complete"
    spent = 0.0 if best_trial(content) is None else seconds_of(content["trials"])
    left = study.limit - spent
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
    except (TrainingError, torch.OutOfMemoryError) as error:  # not worth more time
        state, problem = "failed", " ".join(str(error).split())[:200]
    value, loss = (
        _mean(results, key) if state == "complete" else None for key in ("val", "val_loss")
    )
    if trial is not None:
        sampler.tell(trial, value, state=_state(state))
    return {
        "number": len(content["trials"]),
        "state": state,
        "value": value,
        "val_loss": loss,
        "val": [row["val"] for row in results],
        "epochs": [row["epochs"] for row in results],
        "seconds": time.perf_counter() - begin,
        "settings": values,
        "recipe": _searched(study, values) in RECIPES[study.model],
        **({"problem": problem} if problem else {}),
        **origin(study.device),
    }


def _mean(results: list[Row], key: str) -> float:
    return float(sum(row[key] for row in results) / len(results))


def _searched(study: Study, settings: Row) -> Row:
    return {key: settings[key] for key in SPACES[study.model]}


def _next_path(study: Study, content: Row) -> Row | None:
    """GlobalGNN's best body with the next global path, after half of the budget for bodies."""
    if study.model != OURS:
        return None
    bodies = [trial for trial in content["trials"] if is_body(trial)]
    if len(ended(bodies)) < study.trials / 2 and seconds_of(bodies) < study.limit / 2:
        return None
    ranked = [trial["settings"] for trial in ranked_trials(content) if is_body(trial)]
    tried = [trial["settings"] for trial in ended(content["trials"])]
    left = ({**body, **path} for body in ranked for path in PATHS if {**body, **path} not in tried)
    return next(left, None)


# Optuna


def _make_sampler(study: Study, content: Row) -> optuna.Study:
    """Makes the study in memory from the trials so far; enqueues the recipes that are left."""
    needed("phgcn reproduce benchmark", "optuna", install="'phgcn[tune]'")
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    seed, pruner = SEED + len(content["trials"]), optuna.pruners.MedianPruner(n_startup_trials=4)
    tpe = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    sampler = optuna.create_study(direction="maximize", sampler=tpe, pruner=pruner)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        key: optuna.distributions.CategoricalDistribution(choices)
        for key, choices in SPACES[study.model].items()
    }
    bodies = [row for row in ended(content["trials"]) if study.model != OURS or is_body(row)]
    for row in bodies:
        means = [sum(row["val"][: step + 1]) / (step + 1) for step in range(len(row["val"]))]
        told = optuna.trial.create_trial(
            state=_state(row["state"]),
            value=row["value"],
            params=_searched(study, row["settings"]),
            distributions=space,
            intermediate_values=dict(enumerate(means)),
        )
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


def _ask(study: Study, content: Row, sampler: optuna.Study) -> tuple[optuna.Trial, Row]:
    """Asks for new settings; those tried before are answered from the file, a few times at most."""
    tried = [row for row in content["trials"] if row["state"] == "complete"]
    for left in reversed(range(20)):
        trial = sampler.ask()
        values: Row = dict(OFF) if study.model == OURS else {}
        for key, choices in SPACES[study.model].items():
            values[key] = trial.suggest_categorical(key, choices)
        same = [row for row in tried if row["settings"] == values]
        if not same or left == 0:
            break
        sampler.tell(trial, same[0]["value"])
    return trial, values
