"""The base of all estimators: a run of one split in a temporary folder."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from ..data import Columns, splits, task_of
from ..data.splits import Split
from ..train.candidates import start_settings
from ..train.leaks import describe_leaks
from ..train.plan import OnEpoch, Plan
from ..train.prediction import TrialModel, trial_model
from ..train.run import Run
from ..train.settings import change, follow_epochs, resolve
from ..train.tasks import TaskKind
from .graphs import column_names


class Scratch:
    """A temporary folder that is removed with this object."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="phgcn-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def split_of(plan: Plan, data: Data) -> Split:
    (split,) = splits(data.y, plan.protocol, plan.splits, plan.seed)
    return split


class FittedRun:
    device: str
    run_: Run

    def _make_plan(
        self, data: Data, model: str, changes: Mapping[str, Any], columns: Columns, **options: Any
    ) -> Plan:
        """Makes the plan of a training on all labelled nodes, with the settings of ``phgcn train``
        and changes. Warns of features that predict the labels by themselves; called in ``fit``."""
        begun = resolve(model, start=start_settings(data, model, self.device)).settings
        settings = change(begun, changes, model, type(self).__name__)
        coordinates = column_names(columns.coordinates, data)
        plan = Plan(
            "graph",
            model,
            protocol="final",
            splits=1,
            device=self.device,
            settings=follow_epochs(begun, settings, changes),
            task=task_of(data.y),
            columns=replace(columns, coordinates=coordinates),
            yardsticks="simple",
            **options,
        )
        for leak in describe_leaks(data, split_of(plan, data).train.nonzero().flatten()):
            warnings.warn(leak, stacklevel=3)
        return plan

    def _train(
        self,
        plan: Plan,
        data: Data,
        on_epoch: OnEpoch = lambda progress: None,
        search: dict[str, Any] | None = None,
    ) -> None:
        """Trains a run in a temporary folder; ``search`` is the record of a search."""
        self._scratch = Scratch()
        run = Run.create(self._scratch.folder / "run", plan, data, search=search)
        run.train(data, on_epoch)
        self._set_run(run)

    def _set_run(self, run: Run) -> None:
        self.run_ = run
        self.validation_score_ = float(run.trial_result(self._trial)["val_metric"])

    @property
    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            allowed = "after fit or load"
            raise ValueError(f"this {type(self).__name__} is not fitted; allowed: {allowed}")
        return self.run_

    @property
    def _trial(self) -> Any:
        return self._fitted.plan.trials()[0]

    @property
    def _kind(self) -> TaskKind:
        return self._fitted.kind(self._trial)

    def _on(self, data: Data) -> TrialModel:
        """Returns the trained model and its arguments for a graph."""
        return trial_model(self._fitted, self._trial, data)
