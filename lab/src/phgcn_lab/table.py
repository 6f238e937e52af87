r"""The paper's Table 2, and whether the lattice costs accuracy: models on graphs, trained on the
same splits.

::

    OUT/tune/<graph>-<model>/                       a search for settings (:func:`phgcn.train.tune`)
    OUT/configs/<graph>-<model>.toml                what it found; used for both protocols and all methods
    OUT/runs/<graph>-<model>-<protocol>[-<method>]/ a run of :mod:`phgcn.train`, and its ``provenance.json``
    OUT/table.json, table.md, table.png, table.svg  the results (:mod:`phgcn_lab.table_report`)

Several processes and machines can work into the same folder: what is done is not done again.  Each
row of ``table.json`` has its own provenance, and rows that a call does not ask for stay: a table
grows over many calls and commits without merging by hand."""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phgcn.devices import check_device
from phgcn.files import locked, write_text
from phgcn.registry import model_names
from phgcn.train import settings as config

from . import table_report
from .experiment import check_names, check_stage, execute
from .extra import needed
from .table_jobs import FIXED, PUBLISHED, Job, Study, is_done, is_tuned, train_job, tune_study
from .workers import Progress, Report

GRAPHS = tuple(FIXED)
PROTOCOLS = ("paper", "geom")
METHODS = ("lattice", "exact", "lattice-fine", "separable")
COMPARED = "phgcn"
"""The model that is trained with every method; others attend through the lattice, as the paper's
does.
"""
GEOM_GCN = ("geom-gcn-i", "geom-gcn-p", "geom-gcn-s")
RESIDUAL = ("gcn-residual", "gat-eda-residual", "phgcn-residual")
MODELS = ("gcn", "gat", *GEOM_GCN, "gat-eda", "phgcn", *RESIDUAL, "mlp")
"""The rows of the paper's table, then those that it does not have; another registered model is a
row if asked for.
"""


@dataclass(frozen=True)
class Request:
    graphs: tuple[str, ...] = GRAPHS
    models: tuple[str, ...] = MODELS
    protocols: tuple[str, ...] = PROTOCOLS
    methods: tuple[str, ...] = METHODS  # of `phgcn`; other models use the lattice
    splits: int = 10
    trials: int | None = None  # of the search for settings of each graph and model; None: no search
    device: str = "cpu"
    quick: bool = False  # few epochs

    def __post_init__(self) -> None:
        known_models = tuple(dict.fromkeys((*MODELS, *model_names())))
        check_names(graphs=(self.graphs, GRAPHS), models=(self.models, known_models))
        check_names(protocols=(self.protocols, PROTOCOLS), methods=(self.methods, METHODS))
        if not 2 <= self.splits <= 10:
            raise ValueError(f"splits is {self.splits}; allowed: 2 to 10")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"tune is {self.trials}; allowed: 1 or more trials")
        if self.trials is not None and self.quick:
            raise ValueError(f"tune is {self.trials}; allowed with quick: no tuning")
        check_device(self.device)

    def jobs(self) -> list[Job]:
        return [
            Job(graph, model, protocol, method, self.splits, self.device, self.quick)
            for protocol in self.protocols
            for graph in self.graphs
            for model in self.models
            for method in self._methods(model)
        ]

    def studies(self) -> list[Study]:
        pairs = [(graph, model) for graph in self.graphs for model in self.models]
        return [Study(graph, model, self.trials or 1, self.device) for graph, model in pairs]

    def _methods(self, model: str) -> tuple[str | None, ...]:
        if model in GEOM_GCN:
            return (PUBLISHED,)
        if "method" not in config.keys(model):
            return (None,)
        return self.methods if model == COMPARED else ("lattice",)


def quick_request(**changes: Any) -> Request:
    models = tuple(model for model in MODELS if model not in GEOM_GCN)
    methods = ("lattice", "exact")
    small = Request(("texas", "cornell"), models, ("paper",), methods, splits=3, quick=True)
    return replace(small, **changes)


@dataclass(frozen=True)
class Tuning:
    out: Path
    request: Request

    def cells(self) -> list[Study]:
        return [study for study in self.request.studies() if not is_tuned(study, self.out)]

    def run(self, study: Study, report: Report) -> None:
        tune_study(self.out, study, report)

    def report(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Table:
    """The trainings, without those whose settings were looked for in vain."""

    out: Path
    request: Request
    untuned: tuple[str, ...] = ()
    write: bool = True

    def cells(self) -> list[Job]:
        kept = table_report.read_rows(self.out, self.request.quick)
        ready = [j for j in self.request.jobs() if f"{j.graph}-{j.model}" not in self.untuned]
        waiting = [job for job in ready if not is_done(job, self.out, kept)]
        return sorted(waiting, key=lambda job: (-job.cost, job.name))

    def run(self, job: Job, report: Report) -> None:
        train_job(self.out, job, report)

    def report(self) -> dict[str, Any]:
        if not self.write:
            return {}
        request = self.request
        whole = replace(request, graphs=GRAPHS, models=MODELS, protocols=PROTOCOLS, methods=METHODS)
        order = [job.name for job in whole.jobs()]
        with locked(self.out / ".table.lock"):
            return table_report.write(self.out, request.jobs(), order, request.quick)


def run(
    out: str | Path,
    request: Request | None = None,
    stage: str = "all",
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Searches for settings, trains what is not trained yet, and writes the table.

    The stage is ``"tune"``, which needs ``request.trials``, ``"train"``, ``"table"``, of what is
    there, or ``"all"``. Returns the content of the table, ``failures`` by job, and ``seconds``.
    """
    out, request = Path(out), request or Request()
    check_stage(stage, "all", "tune", "train", "table")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    if stage == "tune" and request.trials is None:
        raise ValueError("tune is None; allowed in the stage tune: a number of trials")
    _check_folder(out)
    tuned: dict[str, Any] = {"failures": {}, "seconds": 0.0}
    trained = tuned
    if stage in ("all", "tune") and request.trials is not None:
        needed("tune", "optuna", install="'phgcn[tune]'")
        tuned = execute(Tuning(out, request), jobs, on_progress)
    if stage != "tune":
        table = Table(out, request, tuple(tuned["failures"]), write=stage != "train")
        trained = execute(table, jobs, on_progress, only_report=stage == "table")
    failures = {f"tune {name}": text for name, text in tuned["failures"].items()}
    failures |= trained["failures"]
    return {**trained, "failures": failures, "seconds": tuned["seconds"] + trained["seconds"]}


def _check_folder(out: Path) -> None:
    """Refuses a folder that cannot be written, before anything is computed."""
    probe = out / ".writable"
    write_text(probe, "")
    probe.unlink()
