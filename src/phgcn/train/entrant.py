"""A candidate of a search: trained rung by rung, on a split without test nodes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from .candidates import Candidate
from .loop import Task, Training, TrainingError
from .metrics import goodness
from .plan import Plan
from .prepare import seeded, start
from .state import random_states, set_random_states


@dataclass(eq=False)
class Entrant:
    """A candidate in a search: its training on a split, and its score so far. Several rungs give
    the bits of one training."""

    candidate: Candidate
    plan: Plan
    task: Task
    training: Training | None = None
    seconds: float = 0.0
    seed: int = 0
    pace: int = 1  # its epochs for each epoch of a rung, more where its epochs take less work
    failure: str = ""  # why the training ended early
    random: dict[str, Tensor] = field(default_factory=dict)  # of torch's generators, after a rung
    before: float = math.nan  # its metric before the last run

    def run(self, epochs: int, on_epoch: Callable[[], None] = lambda: None) -> None:
        begin, self.before = time.perf_counter(), self.metric
        with seeded(self.seed, self.task):
            if self.random:
                set_random_states(self.random, self.task.x.device)
            try:
                self.training = self.training or start(self.plan, self.task)
                while (
                    not self.failure
                    and not self.training.done
                    and self.training.state.epoch < epochs
                ):
                    self.training.epoch()
                    on_epoch()
            except TrainingError as error:
                self.failure = str(error)
            self.random = random_states(self.task.x.device)
        self.seconds += time.perf_counter() - begin

    @property
    def epochs(self) -> int:
        return 0 if self.training is None else self.training.state.epoch

    @property
    def done(self) -> bool:
        return self.training is not None and self.training.done

    @property
    def loss(self) -> float:
        assert self.training is not None
        return self.training.best_by_loss.val_loss

    @property
    def metric(self) -> float:
        """The best validation metric; NaN before the first epoch ends."""
        known = self.training is not None and self.training.state.by_metric is not None
        return self.training.best_by_metric.val_metric if known and self.training else math.nan

    @property
    def order(self) -> tuple[float, float]:
        """The sort key of entrants: the metric, ties by the smaller loss."""
        if math.isnan(self.metric) or self.training is None:
            return -math.inf, -math.inf
        return goodness(self.plan.metric, self.metric), -self.training.best_by_metric.val_loss

    def outputs(self) -> tuple[Tensor, Tensor]:
        """Returns the outputs for the validation nodes with the best weights, and their labels."""
        assert self.training is not None
        model = self.training.model
        latest = {name: value.clone() for name, value in model.state_dict().items()}
        out = self.training.outputs()
        model.load_state_dict(latest)
        return out[self.task.val], self.task.y[self.task.val]


@dataclass(frozen=True)
class RoundProgress:
    """A round of a search: its entrants, the one in training, and its epochs at the end of the
    round."""

    entrants: Sequence[Entrant]
    entrant: Entrant
    epochs: int

    @property
    def number(self) -> int:
        """The number of the entrant in training, from 1 on."""
        return self.entrants.index(self.entrant) + 1

    @property
    def done(self) -> float:
        """The complete share of the round."""
        return (self.number - 1 + self.entrant.epochs / self.epochs) / len(self.entrants)


OnRound = Callable[[RoundProgress], None]


def run_round(
    entrants: Sequence[Entrant], epochs: int, on_epoch: OnRound = lambda progress: None
) -> None:
    for entrant in entrants:
        own = epochs * entrant.pace
        entrant.run(own, partial(on_epoch, RoundProgress(entrants, entrant, own)))
