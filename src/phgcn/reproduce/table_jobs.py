r"""One cell of the paper's table: its training, and the search for its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from ..data.names import GRAPHS as KNOWN
from ..data.splits import Protocol
from ..files import read_json, write_json, write_text
from ..provenance import provenance
from ..train import Plan, Run, Settings, find, tune
from ..train import settings as config
from ..train.graph import default_metric
from .workers import Report

SOURCES = ("published", "computed")  # of Geom-GCN's neighbourhoods, in the place of a method
SEED = 0

_WEBKB = {"hidden_channels": 16, "weight_decay": 1e-2, "epochs": 500, "patience": 60}
_LARGER = {"hidden_channels": 16, "weight_decay": 5e-4, "epochs": 500, "patience": 40}
FIXED: dict[str, dict[str, Any]] = {
    "cora": _LARGER,
    "citeseer": _LARGER,
    "pubmed": {**_LARGER, "epochs": 200, "patience": 20},  # the largest
    "cornell": _WEBKB,
    "cornell-2020": _WEBKB,
    "texas": _WEBKB,
    "wisconsin": _WEBKB,
    "actor": _LARGER,
}
"""What is not tuned, equal for all models of a graph; the rest are the defaults of :class:`phgcn.train.Settings`."""

QUICK = {"epochs": 25, "patience": 25}


def tuning_splits(graph: str) -> int:
    """Returns the number of splits of protocol paper that a trial is judged by, more where validation nodes are few."""
    return 3 if FIXED[graph] is _WEBKB else 1


# One training


@dataclass(frozen=True)
class Job:
    """One run: a model on the splits of a graph."""

    graph: str
    model: str
    protocol: str
    method: str | None
    splits: int
    device: str
    quick: bool
    command: str

    @property
    def name(self) -> str:
        return "-".join(part for part in (self.graph, self.model, self.protocol, self.method) if part)

    @property
    def cost(self) -> float:
        return cost(self.graph, self.model, self.method) * self.splits

    def settings(self, out: Path) -> tuple[Settings, str]:
        """Returns the settings of the run, and where they come from."""
        settings, source = settings_of(self.graph, self.model, out)
        changes: dict[str, Any] = dict(QUICK) if self.quick else {}
        if self.method is not None:
            changes["neighbourhood" if self.method in SOURCES else "method"] = self.method
        return config.change(settings, changes, self.model, self.name), source

    def plan(self, out: Path) -> Plan:
        metric, protocol = KNOWN[self.graph].metric, cast(Protocol, self.protocol)  # Plan checks it
        return Plan(self.graph, self.model, protocol, self.splits, 1, SEED, metric, False, self.device,
                    self.settings(out)[0])  # fmt: skip


def cost(graph: str, model: str, method: str | None) -> float:
    """Estimates the duration of an epoch, in any unit: long jobs begin first."""
    nodes = KNOWN[graph].published.nodes
    factor = {"mlp": 1.0, "gcn": 1.5, "gat": 3.0, "gat-eda": 2.0}.get(model, 3.0)
    if method is not None and method not in SOURCES:
        factor = {"lattice": 10.0, "lattice-fine": 25.0, "separable": 6.0, "exact": 3.0 + nodes / 300}[method]
    return (nodes + 500) * factor


def settings_of(graph: str, model: str, out: Path) -> tuple[Settings, str]:
    """Returns the settings of a model on a graph, and their source: those in OUT/configs, else those in ``configs.toml``."""
    path = config_file(out, graph, model)
    if path.is_file():
        settings, source = config.resolve(model, config=path).settings, f"configs/{path.name}"
    else:
        settings, source = config.resolve(model, graph).settings, f"{config.tuned_source(model, graph)} of phgcn"
    if "residual" in config.keys(model) and settings.residual:
        raise ValueError(f"{source}: residual is True; allowed in the table: False, as {model} is the model without")
    return settings, source


def standard(graph: str, model: str) -> Settings:
    """Returns the settings that a search begins with."""
    fixed = {key: value for key, value in FIXED[graph].items() if key in config.keys(model)}
    return config.change(Settings(), fixed, model, "FIXED")


def config_file(out: Path, graph: str, model: str) -> Path:
    return out / "configs" / f"{graph}-{model}.toml"


def is_done(job: Job, out: Path, kept: Mapping[str, dict[str, Any]]) -> bool:
    """Returns whether a run is finished; a run with other settings is refused.

    ``kept`` are the rows of the table so far, by job.  Without the folder of a run, its row counts if it was measured with
    the same settings.
    """
    folder, plan = out / "runs" / job.name, job.plan(out)
    used = config.used(plan.settings, job.model)
    standard = config.used(Settings(), job.model)  # of settings that a row is too old to have
    if not (folder / "run.json").is_file():
        row = kept.get(job.name)
        return row is not None and {**standard, **row["config"]} == used and len(row["per_split"]) == job.splits
    recorded, asked = read_json(folder / "run.json"), {**asdict(plan), "settings": used}
    finished = (folder / "result.json").is_file()
    for key in asked:
        if key == "device" and finished:  # may have been another machine
            continue
        if isinstance(asked[key], dict):
            _check_same(folder, recorded.get(key) or {}, asked[key])
        else:
            _check_same(folder, {key: recorded.get(key)}, {key: asked[key]})
    return finished


def _check_same(folder: Path, recorded: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuses a run whose JSON says something else than is asked for."""
    for key, value in asked.items():
        as_json = list(value) if isinstance(value, tuple) else value
        if recorded.get(key) != as_json:
            raise ValueError(
                f"{folder}: was made with {key} {recorded.get(key)!r}, not {as_json!r}; allowed: the same, or another --out"
            )


@dataclass(frozen=True)
class Trainer:
    """Trains a job into a folder; an object, so that processes get the folder with it."""

    out: Path

    def __call__(self, job: Job, report: Report) -> None:
        folder, plan = self.out / "runs" / job.name, job.plan(self.out)
        _, data = find(job.graph)
        source = job.settings(self.out)[1]
        begun = (folder / "run.json").is_file()
        heading = f"{job.model} on {job.graph}; settings from {source}"
        run = Run.open(folder) if begun else Run.create(folder, plan, data, heading)
        origin = {**provenance(SEED, job.device), "command": job.command, "settings_from": source}
        # A run that is continued was begun with the code of run.json, perhaps another.
        origin["begun_at_commit"] = run.about.get("provenance", {}).get("commit")
        write_json(folder / "provenance.json", origin)
        names = [trial.name for trial in plan.trials()]
        epochs = plan.settings.epochs
        run.train(
            run.data() if begun else data,
            lambda progress: report(
                f"split {progress.trial.split + 1} of {job.splits}, epoch {progress.epoch}",
                (names.index(progress.trial.name) + progress.epoch / epochs) / job.splits,
            ),
        )


# One search for settings


@dataclass(frozen=True)
class Study:
    """A search for the settings of a model on a graph, under protocol paper, with the default method of attention."""

    graph: str
    model: str
    trials: int
    device: str
    command: str

    @property
    def name(self) -> str:
        return f"{self.graph}-{self.model}"

    @property
    def cost(self) -> float:
        method = "exact" if "method" in config.keys(self.model) else None
        return cost(self.graph, self.model, method) * self.trials


@dataclass(frozen=True)
class Tuner:
    """Tunes a study into a folder."""

    out: Path

    def __call__(self, study: Study, report: Report) -> None:
        source, data = find(study.graph)
        settings = standard(study.graph, study.model)
        splits, metric = tuning_splits(study.graph), default_metric(data)
        plan = Plan(source, study.model, "paper", splits, 1, SEED, metric, False, study.device, settings)
        folder = self.out / "tune" / study.name
        tune(
            folder, plan, data, study.trials, [],
            lambda trial: report(f"{trial.ended} of {study.trials} trials", trial.ended / study.trials), command=study.command,
        )  # fmt: skip
        write_text(config_file(self.out, study.graph, study.model), (folder / "config.toml").read_text(encoding="utf-8"))


def is_tuned(study: Study, out: Path) -> bool:
    """Returns whether there are settings from that many trials, or more."""
    path = out / "tune" / study.name / "tune.json"
    if not config_file(out, study.graph, study.model).is_file() or not path.is_file():
        return False
    ended = [trial for trial in read_json(path)["trials"] if trial["state"] in ("complete", "pruned")]
    return len(ended) >= study.trials
