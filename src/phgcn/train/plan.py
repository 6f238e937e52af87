"""The plan of a run, its trials and their progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from ..data import PROTOCOLS, Columns
from ..data.splits import Protocol
from ..devices import check_device
from ..registry import DEFAULT_MODEL, find_model
from .recipe import check_amp
from .settings import Settings, attends
from .tasks import find_task


class Chosen(NamedTuple):
    """The choice of a search: the name of the candidate, its model, and its settings."""

    name: str
    model: str
    settings: Settings


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Args:
        source (str): The graph's name or the path of its file.
        model (str): The model's name. (default: :obj:`"phgcn"`)
        protocol (str): The protocol by which nodes are split. (default: :obj:`"paper"`)
        splits (int): The number of splits. (default: :obj:`10`)
        repeats (int): Trainings per split, each from its own random weights. (default: :obj:`1`)
        seed (int): The seed of splits, weights and dropout. (default: :obj:`0`)
        metric (str): The metric of predictions, one of the task's. (default: :obj:`"accuracy"`)
        directed (bool): Whether edges keep their direction. (default: :obj:`False`)
        device (str): The device of the computation. (default: :obj:`"cpu"`)
        settings (Settings): The settings of the model and its training.
        task (str): A name of :data:`phgcn.train.tasks.TASKS`. (default: :obj:`"classification"`)
        columns (Columns): The roles of columns in the graph's tables.
        yardsticks (str): The scores beside the model's (:mod:`phgcn.train.yardsticks`): ``"none"``;
            ``"simple"``, models that take no training; or ``"all"``, the network without global
            attention too. (default: :obj:`"none"`)
        per_split (tuple of Chosen): The model and settings of each split, if a search chose them
            for each. (default: the same for all)
    """

    source: str
    model: str = "phgcn"
    protocol: Protocol = "paper"
    splits: int = 10
    repeats: int = 1
    seed: int = 0
    metric: str = "accuracy"
    directed: bool = False
    device: str = "cpu"
    settings: Settings = field(default_factory=Settings)
    task: str = "classification"
    columns: Columns = field(default_factory=Columns)
    yardsticks: str = "none"
    per_split: tuple[Chosen, ...] = ()

    def __post_init__(self) -> None:
        find_model(self.model)
        choices = {
            "protocol": PROTOCOLS,
            "metric": find_task(self.task).metrics,
            "yardsticks": ("none", "simple", "all"),
        }
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
        for name in ("splits", "repeats"):
            if not 1 <= (count := getattr(self, name)) <= 1000:
                raise ValueError(f"{name} is {count}; allowed: 1 to 1000")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed is {self.seed}; allowed: 0 to {2**31 - 1}")
        check_device(self.device)
        check_amp(self.settings, self.device)

    @property
    def reads_similar(self) -> bool:
        """Whether attention begins at the features by which nodes are similar to others."""
        at_input = self.model == DEFAULT_MODEL and self.settings.global_at == "input"
        return at_input and attends(self.model, self.settings)

    def of(self, split: int) -> Plan:
        """Returns the plan of a split, with one model."""
        if not self.per_split:
            return self
        _, model, settings = self.per_split[split]
        return replace(self, model=model, settings=settings, per_split=())

    def trials(self) -> list[Trial]:
        numbers = product(range(self.splits), range(self.repeats))
        return [Trial(split, repeat, self.of(split)) for split, repeat in numbers]


@dataclass(frozen=True)
class Trial:
    """One training of a run, with the plan of its split."""

    split: int
    repeat: int
    plan: Plan

    @property
    def name(self) -> str:
        repeat = f"-repeat-{self.repeat}" if self.plan.repeats > 1 else ""
        return f"split-{self.split:02d}{repeat}"

    @property
    def seed(self) -> int:
        """The seed of this trial, for any number of splits and repeats."""
        return 1000 * (1000 * self.plan.seed + self.split) + self.repeat


@dataclass(frozen=True)
class EpochProgress:
    """The progress of a run after an epoch.

    Args:
        trial (Trial): The trial in training.
        epoch (int): The number of its complete epochs.
        row (tuple of float): The row of :data:`phgcn.train.state.CURVES`.
        best_loss (float): The smallest validation loss so far.
        yardstick (bool): Whether the network without global attention is in training. (default:
            :obj:`False`)
    """

    trial: Trial
    epoch: int
    row: tuple[float, ...]
    best_loss: float
    yardstick: bool = False


OnEpoch = Callable[[EpochProgress], None]
