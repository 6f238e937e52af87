r"""What all estimators share: a run of one split in a temporary folder."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from ..train.plan import OnEpoch, Plan
from ..train.run import Run
from ..train.tasks import TaskKind


class FittedRun:
    """An estimator whose training is a run of one split."""

    run_: Run

    def _train(
        self, plan: Plan, data: Data, on_epoch: OnEpoch = lambda progress: None, search: dict[str, Any] | None = None
    ) -> Run:
        """Trains a run in a temporary folder, which ends with the estimator; ``search`` is what a
        search saw."""
        self._scratch = tempfile.TemporaryDirectory(prefix="phgcn-")
        run = Run.create(Path(self._scratch.name) / "run", plan, data, search=search)
        run.train(data, on_epoch)
        return run

    @property
    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise ValueError(f"this {type(self).__name__} is not fitted; allowed: after fit or load")
        return self.run_

    @property
    def _trial(self) -> Any:
        return self._fitted.plan.trials()[0]

    @property
    def _kind(self) -> TaskKind:
        return self._fitted.kind(self._trial)
