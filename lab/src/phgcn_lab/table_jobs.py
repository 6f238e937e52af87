r"""One cell of the paper's table: its training, and the search for its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from phgcn.data.names import GRAPHS as KNOWN
from phgcn.data.splits import Protocol
from phgcn.files import read_json, write_json, write_text
from phgcn.provenance import provenance
from phgcn.train import Plan, Run, Settings, find, tune
from phgcn.train import settings as config
from phgcn.train.graph import default_metric
from phgcn.train.tuning import TrialReport

from .workers import Report, describe

PUBLISHED = "published"  # In the place of a method: the source of Geom-GCN's neighbourhoods
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
"""What is not tuned, equal for all models of a graph; the rest are the defaults of
:class:`phgcn.train.Settings`.
"""

QUICK = {"epochs": 25, "patience": 25}


def tuning_splits(graph: str) -> int:
    """How many splits of protocol paper judge a trial: more where validation nodes are few."""
    return 3 if FIXED[graph] is _WEBKB else 1


# One training


def job_name(*parts: str | None) -> str:
    return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Job:
    graph: str
    model: str
    protocol: str
    method: str | None
    splits: int
    device: str
    quick: bool

    @property
    def name(self) -> str:
        return job_name(self.graph, self.model, self.protocol, self.method)

    @property
    def cost(self) -> float:
        return cost(self.graph, self.model, self.method) * self.splits

    def settings(self, out: Path) -> tuple[Settings, str]:
        settings, source = settings_of(self.graph, self.model, out)
        changes: dict[str, Any] = dict(QUICK) if self.quick else {}
        if self.method not in (None, PUBLISHED):
            changes["method"] = self.method
        return config.change(settings, changes, self.model, self.name), source

    def plan(self, out: Path) -> Plan:
        return Plan(
            self.graph,
            self.model,
            cast(Protocol, self.protocol),  # Plan checks it
            self.splits,
            seed=SEED,
            metric=KNOWN[self.graph].metric,
            device=self.device,
            settings=self.settings(out)[0],
        )


def cost(graph: str, model: str, method: str | None) -> float:
    """Estimates the duration of an epoch, in any unit: long jobs begin first."""
    nodes = KNOWN[graph].published.nodes
    methods = {"lattice": 10.0, "lattice-fine": 25.0, "separable": 6.0, "exact": 3.0 + nodes / 300}
    models = {"mlp": 1.0, "gcn": 1.5, "gat": 3.0, "gat-eda": 2.0}
    return (nodes + 500) * (methods.get(method or "") or models.get(model, 3.0))


def settings_of(graph: str, model: str, out: Path) -> tuple[Settings, str]:
    """Returns settings and their source: OUT/configs, else ``configs.toml``."""
    path = config_file(out, graph, model)
    if path.is_file():
        settings, source = config.resolve(model, config=path).settings, f"configs/{path.name}"
    else:
        settings = config.resolve(model, graph).settings
        source = f"{config.tuned_source(model, graph)} of phgcn"
    if "residual" in config.keys(model) and settings.residual:
        allowed = f"allowed in the table: False, as {model} is the model without"
        raise ValueError(f"{source}: residual is True; {allowed}")
    return settings, source


def standard(graph: str, model: str) -> Settings:
    fixed = {key: value for key, value in FIXED[graph].items() if key in config.keys(model)}
    return config.change(Settings(), fixed, model, "FIXED")


def config_file(out: Path, graph: str, model: str) -> Path:
    return out / "configs" / f"{graph}-{model}.toml"


def is_done(job: Job, out: Path, kept: Mapping[str, dict[str, Any]]) -> bool:
    """Refuses a run with other settings.

    ``kept`` are the rows of the table so far, by job. Without the folder of a run, its row counts
    if it was measured with the same settings.
    """
    folder, plan = out / "runs" / job.name, job.plan(out)
    used = config.used(plan.settings, job.model)
    standard = config.used(Settings(), job.model)  # of settings that a row is too old to have
    if not (folder / "run.json").is_file():
        if (row := kept.get(job.name)) is None or len(row["per_split"]) != job.splits:
            return False
        return {key: row["config"].get(key, standard[key]) for key in used} == used
    recorded, asked = read_json(folder / "run.json"), {**asdict(plan), "settings": used}
    finished = (folder / "result.json").is_file()
    if finished:
        del asked["device"]  # may have been another machine
    for key, value in asked.items():
        _check_same(folder, key, recorded.get(key), value)
    return finished


def _check_same(folder: Path, key: str, recorded: Any, asked: Any) -> None:
    if isinstance(asked, dict):
        for name, value in asked.items():
            _check_same(folder, name, (recorded or {}).get(name), value)
        return
    as_json = list(asked) if isinstance(asked, tuple) else asked
    if recorded != as_json:
        made = f"{folder}: was made with {key} {recorded!r}, not {as_json!r}"
        raise ValueError(f"{made}; allowed: the same, or another --out")


def train_job(out: Path, job: Job, report: Report) -> None:
    folder, plan = out / "runs" / job.name, job.plan(out)
    _, data = find(job.graph)
    source = job.settings(out)[1]
    begun = (folder / "run.json").is_file()
    heading = f"{job.model} on {job.graph}; settings from {source}"
    run = Run.open(folder) if begun else Run.create(folder, plan, data, heading)
    origin = {**provenance(SEED, job.device), "settings_from": source}
    # A run that is continued was begun with the code of run.json, perhaps another.
    origin["begun_at_commit"] = run.about.get("provenance", {}).get("commit")
    write_json(folder / "provenance.json", origin)
    run.train(run.data() if begun else data, lambda progress: report(*describe(plan, progress)))


# One search for settings


@dataclass(frozen=True)
class Study:
    """A search under protocol paper, with the default method of attention."""

    graph: str
    model: str
    trials: int
    device: str

    @property
    def name(self) -> str:
        return f"{self.graph}-{self.model}"

    @property
    def cost(self) -> float:
        method = "exact" if "method" in config.keys(self.model) else None
        return cost(self.graph, self.model, method) * self.trials


def tune_study(out: Path, study: Study, report: Report) -> None:
    source, data = find(study.graph)
    plan = Plan(
        source,
        study.model,
        splits=tuning_splits(study.graph),
        seed=SEED,
        metric=default_metric(data),
        device=study.device,
        settings=standard(study.graph, study.model),
    )
    folder, command = out / "tune" / study.name, provenance()["command"]

    def after_trial(trial: TrialReport) -> None:
        report(f"{trial.ended} of {study.trials} trials", trial.ended / study.trials)

    tune(folder, plan, data, study.trials, [], after_trial, command=command)
    found = (folder / "config.toml").read_text(encoding="utf-8")
    write_text(config_file(out, study.graph, study.model), found)


def is_tuned(study: Study, out: Path) -> bool:
    path = out / "tune" / study.name / "tune.json"
    if not config_file(out, study.graph, study.model).is_file() or not path.is_file():
        return False
    states = [trial["state"] for trial in read_json(path)["trials"]]
    return sum(state in ("complete", "pruned") for state in states) >= study.trials
