r"""The paper's Table 2, and whether the lattice costs accuracy: models on graphs, trained on the same splits.

::

    OUT/tune/<graph>-<model>/                       a study that looks for settings (:func:`phgcn.train.tune`)
    OUT/configs/<graph>-<model>.toml                what it found; used for both protocols and all methods
    OUT/runs/<graph>-<model>-<protocol>[-<method>]/ a run of :mod:`phgcn.train`, and where it was made
    OUT/table.json, table.md, table.png, table.svg  the results (:mod:`phgcn.reproduce.table_report`)

Several processes and machines can work into the same folder: what is done is not done again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..data.names import GRAPHS as KNOWN
from ..train import Plan, Run, Settings, find, tune
from ..train import settings as config
from ..train.files import read_json, write_json, write_text
from ..train.graph import default_metric
from . import table_report
from .provenance import provenance
from .workers import Progress, Tell, run_all

GRAPHS = ("cora", "citeseer", "pubmed", "cornell", "cornell-2020", "texas", "wisconsin", "actor")
_ORDER = ("gcn", "gat", "geom-gcn-i", "geom-gcn-p", "geom-gcn-s", "gat-eda", "phgcn", "phgcn-residual", "mlp")
MODELS = tuple(model for model in _ORDER if model in config.MODELS)
PROTOCOLS = ("paper", "geom")
METHODS = ("lattice", "exact", "lattice-fine", "separable")
SOURCES = ("published", "computed")  # of Geom-GCN's neighbourhoods, in the place of a method
STAGES = ("all", "tune", "train", "table")
COMPARED = "phgcn"  # the model that is trained with every method; others attend through the lattice, as the paper's does
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
    """How many splits of protocol paper a trial is judged by, the first ones: more where validation nodes are few."""
    return 3 if FIXED[graph] is _WEBKB else 1


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        graphs, models, protocols (tuple of str): The cells of the table.
        methods (tuple of str): How ``phgcn`` attends; the other models with global attention use the lattice.
        splits (int): How many splits. (default: :obj:`10`)
        trials (int, optional): Settings are looked for with so many trials per graph and model. (default: :obj:`None`, not)
        device (str): Where to compute. (default: :obj:`"cpu"`)
        quick (bool): Few epochs. (default: :obj:`False`)
    """

    graphs: tuple[str, ...] = GRAPHS
    models: tuple[str, ...] = MODELS
    protocols: tuple[str, ...] = PROTOCOLS
    methods: tuple[str, ...] = METHODS
    splits: int = 10
    trials: int | None = None
    device: str = "cpu"
    quick: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("graphs", GRAPHS), ("models", MODELS), ("protocols", PROTOCOLS), ("methods", METHODS)):
            for value in getattr(self, name) or [""]:
                if value not in allowed:
                    raise ValueError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")
        if not 2 <= self.splits <= 10:
            raise ValueError(f"splits is {self.splits}; allowed: 2 to 10")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"tune is {self.trials}; allowed: 1 or more trials")

    @property
    def command(self) -> str:
        """The command line that asks for this, its folder left out."""
        words = ["phgcn reproduce table"] + ["--quick"] * self.quick
        standard = quick_request() if self.quick else Request()
        for name in ("graphs", "models", "protocols", "methods"):
            if getattr(self, name) != getattr(standard, name):
                words.append(f"--{name} {','.join(getattr(self, name))}")
        words += [f"--splits {self.splits}"] * (self.splits != standard.splits)
        words += [f"--tune {self.trials}"] * (self.trials is not None) + [f"--device {self.device}"] * (self.device != "cpu")
        return " ".join(words)

    def jobs(self) -> list[Job]:
        """All trainings of the table."""
        return [
            Job(graph, model, protocol, method, self.splits, self.device, self.quick, self.command)
            for protocol in self.protocols
            for graph in self.graphs
            for model in self.models
            for method in self._methods(model)
        ]

    def studies(self) -> list[Study]:
        """All searches for settings."""
        pairs = [(graph, model) for graph in self.graphs for model in self.models]
        return [Study(graph, model, self.trials or 1, self.device, self.command) for graph, model in pairs]

    def _methods(self, model: str) -> tuple[str | None, ...]:
        if model in config.EMBEDDINGS:
            return SOURCES
        if "method" not in config.keys(model):
            return (None,)
        return self.methods if model == COMPARED else ("lattice",)


def quick_request() -> Request:
    """A small version that takes minutes on two cores."""
    models = tuple(model for model in MODELS if not model.startswith("geom-gcn"))
    return Request(("texas", "cornell"), models, ("paper",), ("lattice", "exact"), splits=3, quick=True)


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
        """The settings of the run, and where they are from."""
        settings, source = settings_of(self.graph, self.model, out)
        changes: dict[str, Any] = dict(QUICK) if self.quick else {}
        if self.method is not None:
            changes["neighbourhood" if self.model in config.EMBEDDINGS else "method"] = self.method
        return config.change(settings, changes, self.model, self.name), source

    def plan(self, out: Path) -> Plan:
        metric = KNOWN[self.graph].metric
        return Plan(self.graph, self.model, self.protocol, self.splits, 1, SEED, metric, False, self.device,  # type: ignore[arg-type]
                    self.settings(out)[0])  # fmt: skip


def cost(graph: str, model: str, method: str | None) -> float:
    """About how long an epoch takes, in any unit: long jobs begin first."""
    nodes = KNOWN[graph].published.nodes
    factor = {"mlp": 1.0, "gcn": 1.5, "gat": 3.0, "gat-eda": 2.0}.get(model, 3.0)
    if method is not None and method not in SOURCES:
        factor = {"lattice": 10.0, "lattice-fine": 25.0, "separable": 6.0, "exact": 3.0 + nodes / 300}[method]
    return (nodes + 500) * factor


def settings_of(graph: str, model: str, out: Path) -> tuple[Settings, str]:
    """The settings of a model on a graph: those in OUT/configs, else those that come with phgcn."""
    own = config_file(out, graph, model)
    path = own if own.is_file() else config.shipped(model, graph)
    assert path is not None  # there is one for every graph of the table
    settings, _ = config.resolve(model, config=path)
    if "residual" in config.keys(model) and settings.residual:
        raise ValueError(f"{path}: residual is True; allowed in the table: False, as {model} is the model without")
    return settings, f"configs/{path.name}" + ("" if own.is_file() else " of phgcn")


def standard(graph: str, model: str) -> Settings:
    """The settings that a search begins with."""
    given = {key: value for key, value in FIXED[graph].items() if key in config.keys(model)}
    return config.change(Settings(), given, model, "FIXED")


def config_file(out: Path, graph: str, model: str) -> Path:
    return out / "configs" / f"{graph}-{model}.toml"


def is_done(job: Job, out: Path) -> bool:
    """Whether a run is finished; one that was made with other settings is refused."""
    folder, plan = out / "runs" / job.name, job.plan(out)
    if not (folder / "run.json").is_file():
        return False
    kept, asked = read_json(folder / "run.json"), {**asdict(plan), "settings": config.used(plan.settings, job.model)}
    finished = (folder / "result.json").is_file()
    for key in asked:
        if key == "device" and finished:  # may have been another machine
            continue
        if isinstance(asked[key], dict):
            _same(folder, kept.get(key) or {}, asked[key])
        else:
            _same(folder, {key: kept.get(key)}, {key: asked[key]})
    return finished


def _same(folder: Path, kept: dict[str, Any], asked: dict[str, Any]) -> None:
    for key, value in asked.items():
        if kept.get(key) != value:
            raise ValueError(
                f"{folder}: was made with {key} {kept.get(key)!r}, not {value!r}; allowed: the same, or another --out"
            )


@dataclass(frozen=True)
class Trainer:
    """Trains a job into a folder; an object, so that workers get the folder with it."""

    out: Path

    def __call__(self, job: Job, tell: Tell) -> None:
        folder, plan = self.out / "runs" / job.name, job.plan(self.out)
        _, data = find(job.graph)
        source = job.settings(self.out)[1]
        begun = (folder / "run.json").is_file()
        heading = f"{job.model} on {job.graph}; settings from {source}"
        run = Run.open(folder) if begun else Run.create(folder, plan, data, heading)
        about = {**provenance(), "command": job.command, "settings_from": source}
        write_json(folder / "provenance.json", about | {"device": about["device"] if "cuda" in job.device else "cpu"})
        names = [trial.name for trial in plan.trials()]
        epochs = plan.settings.epochs
        run.train(
            run.data() if begun else data,
            lambda moment: tell(
                f"split {moment.trial.split + 1} of {job.splits}, epoch {moment.epoch}",
                (names.index(moment.trial.name) + moment.epoch / epochs) / job.splits,
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

    def __call__(self, study: Study, tell: Tell) -> None:
        source, data = find(study.graph)
        settings = standard(study.graph, study.model)
        splits, metric = tuning_splits(study.graph), default_metric(data)
        plan = Plan(source, study.model, "paper", splits, 1, SEED, metric, False, study.device, settings)
        folder = self.out / "tune" / study.name
        tune(
            folder, plan, data, study.trials, [],
            lambda told: tell(f"{told.done} of {study.trials} trials", told.done / study.trials), command=study.command,
        )  # fmt: skip
        write_text(config_file(self.out, study.graph, study.model), (folder / "config.toml").read_text(encoding="utf-8"))


def is_tuned(study: Study, out: Path) -> bool:
    """Whether there are settings from so many trials, or more."""
    found = out / "tune" / study.name / "tune.json"
    if not config_file(out, study.graph, study.model).is_file() or not found.is_file():
        return False
    ended = [trial for trial in read_json(found)["trials"] if trial["state"] in ("complete", "pruned")]
    return len(ended) >= study.trials


# All


def print_progress(progress: Progress) -> None:
    """Tells on stderr what begins and ends."""
    if progress.kind == "running":
        return
    left = "" if progress.left is None else f", about {progress.left / 60:.0f} min left"
    text = f": {progress.text}" if progress.text else ""
    print(f"{progress.done} of {progress.total}{left}: {progress.name} {progress.kind}{text}", file=sys.stderr, flush=True)


def run(
    out: str | Path,
    request: Request | None = None,
    stage: str = "all",
    jobs: int = 1,
    told: Callable[[Progress], None] = print_progress,
) -> dict[str, Any]:
    """Looks for settings, trains what is not trained yet, and writes the table.

    Args:
        out (str or Path): The folder.
        request (Request, optional): What is asked for. (default: :obj:`None`, everything)
        stage (str): ``"tune"`` only looks for settings, and needs ``request.trials``; ``"train"`` only trains; ``"table"``
            only writes the table, of what is there; ``"all"`` does all. (default: :obj:`"all"`)
        jobs (int): How many processes. (default: :obj:`1`)
        told (callable): Called with every :class:`~phgcn.reproduce.workers.Progress`. (default: prints)

    Returns:
        What :func:`phgcn.reproduce.table_report.write` does, without ``rows`` if no table was written; and ``failures``,
        what went wrong by job, and ``seconds``.
    """
    out, request = Path(out), request or Request()
    _check(stage, jobs, request)
    _check_folder(out)
    begin = time.perf_counter()
    failures: dict[str, str] = {}
    if stage in ("all", "tune") and request.trials is not None:
        failures |= _tune(out, request.studies(), jobs, told)
    if stage in ("all", "train"):
        failed = {name.removeprefix("tune ") for name in failures}
        ready = [job for job in request.jobs() if f"{job.graph}-{job.model}" not in failed]
        failures |= run_all([job for job in ready if not is_done(job, out)], Trainer(out), jobs, told)
    content: dict[str, Any] = {}
    if stage in ("all", "table"):
        content = table_report.write(out, request.jobs(), is_done, request.quick)
    return {**content, "failures": failures, "seconds": time.perf_counter() - begin}


def _tune(out: Path, studies: Sequence[Study], jobs: int, told: Callable[[Progress], None]) -> dict[str, str]:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ValueError("tune needs the package optuna: pip install 'phgcn[tune]'") from None
    failures = run_all([study for study in studies if not is_tuned(study, out)], Tuner(out), jobs, told)
    return {f"tune {name}": text for name, text in failures.items()}


def _check(stage: str, jobs: int, request: Request) -> None:
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}; allowed: {', '.join(STAGES)}")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    if stage == "tune" and request.trials is None:
        raise ValueError("tune is None; allowed in the stage tune: a number of trials")
    if request.quick and request.trials is not None:
        raise ValueError(f"tune is {request.trials}; allowed with quick: no tuning")
    replace(Plan("texas"), device=request.device)  # refuses a device that is not there


def _check_folder(out: Path) -> None:
    """Refuses a folder that cannot be written, before anything is computed."""
    probe = out / ".writable"
    write_text(probe, "")
    probe.unlink()
