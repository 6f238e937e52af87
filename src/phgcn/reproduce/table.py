r"""The paper's Table 2, and whether the lattice costs accuracy: models on graphs, trained on the same splits.

::

    OUT/tune/<graph>-<model>/                       a search for settings (:func:`phgcn.train.tune`)
    OUT/configs/<graph>-<model>.toml                what it found; used for both protocols and all methods
    OUT/runs/<graph>-<model>-<protocol>[-<method>]/ a run of :mod:`phgcn.train`, and its ``provenance.json``
    OUT/table.json, table.md, table.png, table.svg  the results (:mod:`phgcn.reproduce.table_report`)

Several processes and machines can work into the same folder: what is done is not done again.  Each row of ``table.json`` has
its own provenance, and rows that a call does not ask for stay: a table grows over many calls and commits without merging by
hand.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import locked, write_text
from ..registry import model_names
from ..train import Plan
from ..train import settings as config
from . import table_report
from .table_jobs import FIXED, SOURCES, Job, Study, Trainer, Tuner, is_done, is_tuned
from .workers import Progress, run_all

GRAPHS = tuple(FIXED)
PROTOCOLS = ("paper", "geom")
METHODS = ("lattice", "exact", "lattice-fine", "separable")
STAGES = ("all", "tune", "train", "table")
COMPARED = "phgcn"  # the model that is trained with every method; others attend through the lattice, as the paper's does
MODELS = (
    "gcn", "gat", "geom-gcn-i", "geom-gcn-p", "geom-gcn-s", "gat-eda", "phgcn",
    "gcn-residual", "gat-eda-residual", "phgcn-residual", "mlp",
)  # fmt: skip
"""The rows of the paper's table, then those that it does not have; another registered model is a row if asked for."""


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
        known_models = tuple(dict.fromkeys((*MODELS, *model_names())))
        for name, allowed in (("graphs", GRAPHS), ("models", known_models), ("protocols", PROTOCOLS), ("methods", METHODS)):
            for value in getattr(self, name) or [""]:
                if value not in allowed:
                    raise ValueError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")
        if not 2 <= self.splits <= 10:
            raise ValueError(f"splits is {self.splits}; allowed: 2 to 10")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"tune is {self.trials}; allowed: 1 or more trials")

    @property
    def command(self) -> str:
        """Returns the command line that asks for this, its folder left out."""
        words = ["phgcn reproduce table"] + ["--quick"] * self.quick
        standard = quick_request() if self.quick else Request()
        for name in ("graphs", "models", "protocols", "methods"):
            if getattr(self, name) != getattr(standard, name):
                words.append(f"--{name} {','.join(getattr(self, name))}")
        words += [f"--splits {self.splits}"] * (self.splits != standard.splits)
        words += [f"--tune {self.trials}"] * (self.trials is not None) + [f"--device {self.device}"] * (self.device != "cpu")
        return " ".join(words)

    def jobs(self) -> list[Job]:
        """Lists all trainings of the table."""
        return [
            Job(graph, model, protocol, method, self.splits, self.device, self.quick, self.command)
            for protocol in self.protocols
            for graph in self.graphs
            for model in self.models
            for method in self._methods(model)
        ]

    def studies(self) -> list[Study]:
        """Lists all searches for settings."""
        pairs = [(graph, model) for graph in self.graphs for model in self.models]
        return [Study(graph, model, self.trials or 1, self.device, self.command) for graph, model in pairs]

    def _methods(self, model: str) -> tuple[str | None, ...]:
        if "neighbourhood" in config.keys(model):
            return SOURCES
        if "method" not in config.keys(model):
            return (None,)
        return self.methods if model == COMPARED else ("lattice",)


def quick_request() -> Request:
    """Returns a small version that takes minutes on two cores."""
    quick_models = tuple(model for model in MODELS if not model.startswith("geom-gcn"))
    return Request(("texas", "cornell"), quick_models, ("paper",), ("lattice", "exact"), splits=3, quick=True)


def print_progress(progress: Progress) -> None:
    """Prints on stderr what begins and ends."""
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
    on_progress: Callable[[Progress], None] = print_progress,
) -> dict[str, Any]:
    """Searches for settings, trains what is not trained yet, and writes the table.

    Args:
        out (str or Path): The folder.
        request (Request, optional): What is asked for. (default: :obj:`None`, everything)
        stage (str): ``"tune"`` only searches for settings, and needs ``request.trials``; ``"train"`` only trains; ``"table"``
            only writes the table, of what is there; ``"all"`` does all. (default: :obj:`"all"`)
        jobs (int): How many processes. (default: :obj:`1`)
        on_progress (callable): Called with every :class:`~phgcn.reproduce.workers.Progress`. (default: prints)

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
        failures |= _tune(out, request.studies(), jobs, on_progress)
    if stage in ("all", "train"):
        failed = {name.removeprefix("tune ") for name in failures}
        ready = [job for job in request.jobs() if f"{job.graph}-{job.model}" not in failed]
        kept = table_report.read_rows(out, request.quick)
        failures |= run_all([job for job in ready if not is_done(job, out, kept)], Trainer(out), jobs, on_progress)
    content: dict[str, Any] = {}
    if stage in ("all", "table"):
        whole = replace(request, graphs=GRAPHS, models=MODELS, protocols=PROTOCOLS, methods=METHODS)
        with locked(out / ".table.lock"):
            content = table_report.write(out, request.jobs(), [job.name for job in whole.jobs()], request.quick)
    return {**content, "failures": failures, "seconds": time.perf_counter() - begin}


def _tune(out: Path, studies: Sequence[Study], jobs: int, on_progress: Callable[[Progress], None]) -> dict[str, str]:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ValueError("tune needs the package optuna: pip install 'phgcn[tune]'") from None
    failures = run_all([study for study in studies if not is_tuned(study, out)], Tuner(out), jobs, on_progress)
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
