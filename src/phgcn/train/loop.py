r"""Full-graph training of one model on one split, epoch by epoch, by the paper's protocol.

Adam with a fixed learning rate; the epoch that counts is the one with the smallest validation loss.  Test nodes are looked
at only where an epoch becomes the best so far, to note down its test metric: nothing is decided by them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..files import read_tensors, write_tensors
from ..lattice.recording import rehearsal
from ..nn.models import NodeModel
from .metrics import hits, metric
from .recording import record
from .settings import Settings

CURVES = ("train_loss", "val_loss", "val_metric", "seconds")


class TrainingError(RuntimeError):
    """Training went wrong: its loss is no number any more."""


@dataclass(frozen=True)
class Task:
    """A graph, prepared, and which of its nodes are for what.

    Shapes:
        - **x:** :math:`(N, F)`, dense or sparse, **edge_index:** :math:`(2, E)`, **y:** :math:`(N,)`
        - **train**, **val**, **test:** the numbers of their nodes
        - **edge_inputs:** what the model takes after ``edge_index``, e.g. the relation of each edge, :math:`(E,)`
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    classes: int
    metric: str = "accuracy"
    edge_inputs: tuple[Tensor, ...] = ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What the model takes."""
        return (self.x, self.edge_index, *self.edge_inputs)


@dataclass(frozen=True)
class Chosen:
    """An epoch that was the best so far; its test metric is NaN where there are no test nodes."""

    epoch: int
    val_loss: float
    val_metric: float
    test_metric: float


@dataclass
class State:
    """How far a training is, apart from weights and optimiser."""

    curves: list[tuple[float, ...]] = field(default_factory=list)
    by_loss: Chosen | None = None
    by_metric: Chosen | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)  # those of by_loss

    @property
    def epoch(self) -> int:
        return len(self.curves)


class Training:
    """One model in training on one task.

    Random numbers (weights, dropout) come from torch's global generators, which the caller seeds; they are part of the
    checkpoint, so that a training that was cut off continues as if it had not been.

    On a GPU, a model that asks the device nothing (:meth:`phgcn.nn.models.NodeModel.recordable`) is trained with a CUDA
    graph from its second epoch on.  Results are the same, but the layers do not look at values then: what is not finite is
    only seen in the losses.
    """

    def __init__(self, model: NodeModel, task: Task, settings: Settings) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.optimiser = torch.optim.Adam(
            model.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=task.x.is_cuda,  # counts steps on the device, so that they can be recorded
        )
        self.state = State()
        self.begun = False  # whether the model has taken this input once
        self._repeat: Callable[[], tuple[Tensor, Tensor]] | None = None  # an epoch as a CUDA graph
        self.val_y, self.test_y, self.train_y = (task.y[nodes] for nodes in (task.val, task.test, task.train))

    @property
    def done(self) -> bool:
        """Whether the epochs or the patience are used up."""
        best = self.state.by_loss.epoch if self.state.by_loss else 0
        return self.state.epoch >= self.settings.epochs or self.state.epoch - best >= self.settings.patience

    @property
    def best(self) -> Chosen:
        """The epoch with the smallest validation loss, after the first."""
        assert self.state.by_loss is not None
        return self.state.by_loss

    @property
    def best_by_metric(self) -> Chosen:
        """The epoch with the best validation metric, after the first."""
        assert self.state.by_metric is not None
        return self.state.by_metric

    @property
    def recorded(self) -> bool:
        """Whether epochs are repeated as a CUDA graph."""
        return self._repeat is not None

    def epoch(self) -> tuple[float, ...]:
        """Trains for one epoch, evaluates, and returns the row of the curves."""
        begin = time.perf_counter()
        logits, facts = self._launch()
        train_loss, val_loss, val_hits = facts.tolist()  # the device is waited for here, once
        if not (math.isfinite(train_loss) and math.isfinite(val_loss)):
            raise self._diverged(f"training loss {train_loss}, validation loss {val_loss}")
        if self.task.metric == "accuracy":
            val_metric = val_hits / len(self.val_y) if len(self.val_y) else math.nan
        else:
            val_metric = metric(self.task.metric, logits[self.task.val], self.val_y)
        self._choose(logits, val_loss, val_metric)
        row = (train_loss, val_loss, val_metric, time.perf_counter() - begin)
        self.state.curves.append(row)
        return row

    def _launch(self) -> tuple[Tensor, Tensor]:
        """Does the work of an epoch, as a CUDA graph if the model can be recorded and its first epoch here is over."""
        if self._repeat is None:
            if not self.model.recordable(self.task.x):
                return self._work()
            if not self.begun:
                with rehearsal():
                    return self._work()
            self._repeat = record(self._work, self.task.x.device)
        return self._repeat()

    def _work(self) -> tuple[Tensor, Tensor]:
        """One step and one evaluation: the logits, and training loss, validation loss and the number of validation nodes
        that are right, all left on the device."""
        train_loss = self._step()
        logits = self._logits()
        val_logits = logits[self.task.val]
        facts = [train_loss, cross_entropy(val_logits, self.val_y), hits(val_logits, self.val_y)]
        return logits, torch.stack([fact.double() for fact in facts])

    def _step(self) -> Tensor:
        self.model.train()
        self.optimiser.zero_grad()
        loss = cross_entropy(self._forward()[self.task.train], self.train_y)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def _logits(self) -> Tensor:
        self.model.eval()
        return self._forward()

    def _forward(self) -> Tensor:
        try:
            out = self.model(*self.task.inputs)
        except ValueError as error:
            if not self.begun:
                raise
            # The same input was fine before, so it is the weights: layers refuse what is not finite, or far too large.
            raise self._diverged(str(error)) from None
        self.begun = True
        return out

    def _diverged(self, what: str) -> TrainingError:
        return TrainingError(f"no finite loss in epoch {self.state.epoch + 1} ({what}); try a smaller learning_rate")

    def _choose(self, logits: Tensor, val_loss: float, val_metric: float) -> None:
        """Notes the epoch down if it is the best by validation loss, or by validation metric (and then loss)."""
        state = self.state
        by_loss = state.by_loss is None or val_loss < state.by_loss.val_loss
        top = state.by_metric
        by_metric = top is None or (val_metric, -val_loss) > (top.val_metric, -top.val_loss)
        if not (by_loss or by_metric):
            return
        test_metric = metric(self.task.metric, logits[self.task.test], self.test_y)
        chosen = Chosen(state.epoch + 1, val_loss, val_metric, test_metric)
        if by_loss:
            state.by_loss = chosen
            state.weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        if by_metric:
            state.by_metric = chosen

    # Checkpoints

    def save(self, path: Path) -> None:
        """Writes everything that the next epoch depends on into one file, whole or not at all."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.state.weights.items()}
        for name, parameter in self.model.named_parameters():
            tensors |= {f"adam.{name}.{key}": value for key, value in self.optimiser.state[parameter].items()}
        tensors |= {f"random.{name}": value for name, value in _random_states(self.task.x.device).items()}
        tensors["curves"] = torch.tensor(self.state.curves, dtype=torch.float64)
        chosen = {"by_loss": self.state.by_loss, "by_metric": self.state.by_metric}
        write_tensors(path, tensors, {key: asdict(value) for key, value in chosen.items() if value is not None})

    def load(self, path: Path) -> None:
        """Continues from a file that :meth:`save` wrote."""
        tensors, about = read_tensors(path)

        def part(prefix: str) -> dict[str, Tensor]:
            return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}

        try:
            self.model.load_state_dict(part("model."))
            for name, parameter in self.model.named_parameters():
                self.optimiser.state[parameter] = {k: v.to(parameter.device) for k, v in part(f"adam.{name}.").items()}
            self.state.curves = [tuple(row) for row in tensors["curves"].tolist()]
            self.state.weights = {name: value.to(self.task.x.device) for name, value in part("best.").items()}
            self.state.by_loss, self.state.by_metric = Chosen(**about["by_loss"]), Chosen(**about["by_metric"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"{path}: not a checkpoint of this training ({str(error).splitlines()[0]})") from None
        _set_random_states(part("random."), self.task.x.device)
        self._repeat = None  # it would write to the optimiser's state of before


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
