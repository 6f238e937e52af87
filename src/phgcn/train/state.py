"""The progress of a training: its curves, its best epochs, and their form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from .global_path import ATTENTION

# the columns of the curves, which have a row for each epoch
CURVES = ("train_loss", "val_loss", "val_metric", "seconds")

# fields of :class:`State` that a checkpoint holds beside tensors
FACTS = ("global_off", "phase_start", "checkpoint_seconds")


@dataclass(frozen=True)
class BestEpoch:
    """The best epoch so far, counted from 1; its test metric is NaN if there are no test nodes."""

    epoch: int
    val_loss: float
    val_metric: float
    test_metric: float


@dataclass
class State:
    """The progress of a training without the current weights and the optimiser.

    Args:
        curves (list): One row of :data:`CURVES` per epoch.
        by_loss (BestEpoch, optional): The epoch with the smallest validation loss.
        by_metric (BestEpoch, optional): The epoch with the best validation metric.
        best_weights (dict): The model's weights after the best epoch by the setting ``select``.
        attention (list): Samples of the global path, rows of
            :data:`phgcn.train.global_path.ATTENTION`.
        global_off (bool): Whether the global path is still off.
        phase_start (int): Complete epochs when the current phase began.
        checkpoint_seconds (float): Seconds spent on writing checkpoints, not in the curves.
    """

    curves: list[tuple[float, ...]] = field(default_factory=list)
    by_loss: BestEpoch | None = None
    by_metric: BestEpoch | None = None
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    attention: list[tuple[float, ...]] = field(default_factory=list)
    global_off: bool = False
    phase_start: int = 0
    checkpoint_seconds: float = 0.0

    @property
    def epoch(self) -> int:
        return len(self.curves)

    def rows(self) -> dict[str, Tensor]:
        """Returns curves and samples of attention as tensors, one row each."""
        attention = torch.tensor(self.attention, dtype=torch.float64).reshape(-1, len(ATTENTION))
        return {"curves": torch.tensor(self.curves, dtype=torch.float64), "attention": attention}

    def facts(self) -> dict[str, Any]:
        """Returns the other values of a checkpoint, after the first epoch."""
        assert self.by_loss is not None and self.by_metric is not None
        best = {"by_loss": asdict(self.by_loss), "by_metric": asdict(self.by_metric)}
        return {**best, **{name: getattr(self, name) for name in FACTS}, "epoch": self.epoch}


def read_state(tensors: dict[str, Tensor], facts: dict[str, Any], device: torch.device) -> State:
    """Makes a state from :meth:`State.rows`, :meth:`State.facts` and the weights ``best.*``."""
    best = with_prefix(tensors, "best.")
    return State(
        curves=[tuple(row) for row in tensors["curves"].tolist()],
        by_loss=BestEpoch(**facts["by_loss"]),
        by_metric=BestEpoch(**facts["by_metric"]),
        best_weights={name: value.to(device) for name, value in best.items()},
        attention=[(*map(int, row[:3]), *row[3:]) for row in tensors["attention"].tolist()],
        **{name: facts[name] for name in FACTS},
    )


def check_checkpoint(
    tensors: dict[str, Tensor], about: dict[str, Any], model: torch.nn.Module, device: torch.device
) -> None:
    """Checks that a checkpoint is complete, has the model's shapes, and that curves and best epochs
    agree. Fused optimisers would write past a tensor that is too small."""
    got = shapes(tensors)
    if got != about["shapes"]:
        raise ValueError("tensors are missing, or have other shapes than were written")
    expected: dict[str, list[int]] = {}
    for name, shape in shapes(model.state_dict()).items():
        expected |= {f"model.{name}": shape, f"best.{name}": shape}
    for name, parameter in model.named_parameters():
        if f"adam.{name}.step" in got:  # a parameter without a gradient so far has no state
            for key in ("exp_avg", "exp_avg_sq"):
                expected[f"adam.{name}.{key}"] = list(parameter.shape)
            expected[f"adam.{name}.step"] = []
    for name, shape in shapes(random_states(device)).items():
        expected[f"random.{name}"] = shape
    # of other processes
    expected |= {name: shape for name, shape in got.items() if name.startswith("random-")}
    expected["curves"] = [about["epoch"], len(CURVES)]
    expected["attention"] = [got["attention"][0], len(ATTENTION)]
    for name in {**expected, **got}:
        if got.get(name) != expected.get(name):
            raise ValueError(f"{name} has shape {got.get(name)}, not {expected.get(name)}")
    for best in (BestEpoch(**about["by_loss"]), BestEpoch(**about["by_metric"])):
        row = dict(zip(CURVES, tensors["curves"].tolist()[best.epoch - 1], strict=True))
        if not 1 <= best.epoch <= about["epoch"] or repr(best.val_loss) != repr(row["val_loss"]):
            raise ValueError(f"the best epoch, {best.epoch}, is not that of the curves")


def shapes(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in tensors.items()}


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Selects tensors by the prefix of their names, and removes it."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors[name] for name in names}


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Returns the states of torch's random number generators of the CPU and of ``device``."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
