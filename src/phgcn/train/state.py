r"""The progress of a training: its curves, its best epochs, and how they are written to a checkpoint and checked when read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from .global_path import ATTENTION

CURVES = ("train_loss", "val_loss", "val_metric", "seconds")
"""The columns of the curves, which have a row for each epoch."""


@dataclass(frozen=True)
class BestEpoch:
    """The best epoch so far, counted from 1; its test metric is NaN if there are no test nodes."""

    epoch: int
    val_loss: float
    val_metric: float
    test_metric: float


@dataclass
class State:
    """The progress of a training, apart from the current weights and the optimiser.

    Args:
        curves (list): One row of :data:`CURVES` per epoch.
        by_loss (BestEpoch, optional): The epoch with the smallest validation loss.
        by_metric (BestEpoch, optional): The epoch with the best validation metric.
        best_weights (dict): The model's weights after the one of these that counts.
        attention (list): Samples of what the global path attends to, rows of :data:`phgcn.train.global_path.ATTENTION`.
        global_off (bool): Whether the global path is still switched off.
        phase_start (int): How many epochs were complete when the current phase began.
        checkpoint_seconds (float): What writing checkpoints has taken, which is not in the curves.
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
        """How many epochs are complete."""
        return len(self.curves)

    def rows(self) -> dict[str, Tensor]:
        """Returns curves and samples of attention as tensors, one row each."""
        attention = torch.tensor(self.attention, dtype=torch.float64).reshape(-1, len(ATTENTION))
        return {"curves": torch.tensor(self.curves, dtype=torch.float64), "attention": attention}

    def facts(self) -> dict[str, Any]:
        """Returns what a checkpoint holds beside tensors; there are best epochs from the first epoch on."""
        assert self.by_loss is not None and self.by_metric is not None
        return {
            "by_loss": asdict(self.by_loss),
            "by_metric": asdict(self.by_metric),
            "global_off": self.global_off,
            "phase_start": self.phase_start,
            "checkpoint_seconds": self.checkpoint_seconds,
            "epoch": self.epoch,
        }


def read_state(tensors: dict[str, Tensor], facts: dict[str, Any], device: torch.device) -> State:
    """Makes a state of what :meth:`State.rows` and :meth:`State.facts` returned, and of the weights named ``best.*``."""
    return State(
        curves=[tuple(row) for row in tensors["curves"].tolist()],
        by_loss=BestEpoch(**facts["by_loss"]),
        by_metric=BestEpoch(**facts["by_metric"]),
        best_weights={name: value.to(device) for name, value in with_prefix(tensors, "best.").items()},
        attention=[(*map(int, row[:3]), *row[3:]) for row in tensors["attention"].tolist()],
        global_off=facts["global_off"],
        phase_start=facts["phase_start"],
        checkpoint_seconds=facts["checkpoint_seconds"],
    )


def check_checkpoint(tensors: dict[str, Tensor], about: dict[str, Any], model: torch.nn.Module, device: torch.device) -> None:
    """Checks that a checkpoint is complete, that its tensors have the shapes of the model's, and that curves and best
    epochs agree; fused optimisers would write past a tensor that is too small."""
    got = shapes(tensors)
    if got != about["shapes"]:
        raise ValueError("tensors are missing, or have other shapes than were written")
    weights = shapes(model.state_dict())
    wanted = {f"{part}.{name}": shape for part in ("model", "best") for name, shape in weights.items()}
    for name, parameter in model.named_parameters():
        if f"adam.{name}.step" in got:  # a parameter that has had no gradient yet has no state
            wanted |= {f"adam.{name}.{key}": list(parameter.shape) for key in ("exp_avg", "exp_avg_sq")}
            wanted[f"adam.{name}.step"] = []
    wanted |= {f"random.{name}": shape for name, shape in shapes(random_states(device)).items()}
    wanted |= {name: shape for name, shape in got.items() if name.startswith("random-")}  # of other processes
    wanted["curves"] = [about["epoch"], len(CURVES)]
    wanted["attention"] = [got["attention"][0], len(ATTENTION)]
    for name in {**wanted, **got}:
        if got.get(name) != wanted.get(name):
            raise ValueError(f"{name} has shape {got.get(name)}, not {wanted.get(name)}")
    for best in (BestEpoch(**about["by_loss"]), BestEpoch(**about["by_metric"])):
        row = dict(zip(CURVES, tensors["curves"].tolist()[best.epoch - 1], strict=True))
        if not 1 <= best.epoch <= about["epoch"] or repr(best.val_loss) != repr(row["val_loss"]):
            raise ValueError(f"the best epoch, {best.epoch}, is not that of the curves")


def shapes(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
    """Returns the shape of each tensor."""
    return {name: list(value.shape) for name, value in tensors.items()}


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Returns the tensors whose names begin so, under the rest of their names."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Returns the states of torch's random number generators that a training on ``device`` uses."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Sets the random number generators to what :func:`random_states` returned."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
