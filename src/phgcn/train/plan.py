r"""What a run is asked to do, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..data import PROTOCOLS, Columns
from ..data.splits import Protocol
from ..devices import check_device
from ..registry import find_model
from .recipe import check_amp
from .settings import Settings
from .tasks import find_task


@dataclass(frozen=True)
class Plan:
    """What a run is asked to do.

    Args:
        source (str): The graph's name or the path of its file.
        model (str): The model's name. (default: :obj:`"phgcn"`)
        protocol (str): How nodes are split. (default: :obj:`"paper"`)
        splits (int): How many splits. (default: :obj:`10`)
        repeats (int): Trainings per split, each from its own random weights. (default: :obj:`1`)
        seed (int): What splits, weights and dropout follow from. (default: :obj:`0`)
        metric (str): What predictions are scored by, one of the task's. (default: :obj:`"accuracy"`)
        directed (bool): Whether edges keep their direction. (default: :obj:`False`)
        device (str): Where it is computed. (default: :obj:`"cpu"`)
        settings (Settings): Those of the model and its training.
        task (str): What is predicted, a name of :data:`phgcn.train.tasks.TASKS`. (default: :obj:`"classification"`)
        columns (Columns): Which columns of the graph's tables are what.
        yardsticks (bool): Whether scores are held against simple models, see :mod:`phgcn.train.yardsticks`.
            (default: :obj:`False`)
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
    yardsticks: bool = False

    def __post_init__(self) -> None:
        find_model(self.model)
        metrics = find_task(self.task).metrics
        for name, value, allowed in (("protocol", self.protocol, PROTOCOLS), ("metric", self.metric, metrics)):
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
        for name, count in (("splits", self.splits), ("repeats", self.repeats)):
            if not 1 <= count <= 1000:
                raise ValueError(f"{name} is {count}; allowed: 1 to 1000")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed is {self.seed}; allowed: 0 to {2**31 - 1}")
        check_device(self.device)
        check_amp(self.settings, self.device)

    def trials(self) -> list[Trial]:
        return [Trial(split, repeat, self) for split in range(self.splits) for repeat in range(self.repeats)]


@dataclass(frozen=True)
class Trial:
    """One training of a run."""

    split: int
    repeat: int
    plan: Plan

    @property
    def name(self) -> str:
        return f"split-{self.split:02d}" + (f"-repeat-{self.repeat}" if self.plan.repeats > 1 else "")

    @property
    def seed(self) -> int:
        """Its own, whatever the number of splits and repeats."""
        return 1000 * (1000 * self.plan.seed + self.split) + self.repeat


@dataclass(frozen=True)
class EpochProgress:
    """The progress of a run after an epoch.

    Args:
        trial (Trial): The trial in training.
        epoch (int): How many of its epochs are complete.
        row (tuple of float): The epoch's losses, metric and seconds, as :data:`phgcn.train.state.CURVES` names them.
        best_loss (float): The smallest validation loss so far.
        yardstick (bool): Whether it is the network without global attention that is trained. (default: :obj:`False`)
    """

    trial: Trial
    epoch: int
    row: tuple[float, ...]
    best_loss: float
    yardstick: bool = False


OnEpoch = Callable[[EpochProgress], None]
