"""Trains one model on one split of a graph, full batch.

The best epoch has the smallest validation loss, as in the paper, or the best validation metric
(``select``). Test nodes decide nothing: their metric is recorded when an epoch becomes the best.

With ``local_epochs`` a training has two phases. The global path of the model is off in the first
phase. The second phase switches it on and begins with the best weights of the first phase and a
fresh optimiser. The best epoch of both phases counts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.nn.utils import clip_grad_norm_

from ..files import read_tensors, write_tensors
from ..nn.models import NodeModel
from . import recipe
from .features import FeatureTransform, select_rows
from .global_path import global_statistics, sample_rows, switch_global
from .labels import draw_keys
from .metrics import goodness
from .processes import OneProcess
from .settings import Settings
from .similar import Similar, find_similar
from .state import BestEpoch, State, check_checkpoint, read_state, shapes, with_prefix
from .tasks import Classification, TaskKind


class TrainingError(RuntimeError):
    """Training diverged: the loss is not finite."""


@dataclass(frozen=True)
class Task:
    """A graph on its device, and the nodes to train, validate and test on.

    Shapes:
        - **x:** :math:`(N, F)`, dense or sparse, **edge_index:** :math:`(2, E)`, **y:**
          :math:`(N,)`, or :math:`(N, C)` of several labels per node, as ``kind`` takes them
        - **train**, **val**, **test:** node indices, :math:`(N_{train},)` and so on
        - **edge_inputs:** what the model takes after ``edge_index``, e.g. the relation of each
          edge, :math:`(E,)`; a tensor of :math:`E` rows is taken as one row per edge
        - **edge_values:** ``edge_attr`` :math:`(E, K)` and ``edge_weight`` :math:`(E,)`, those that
          the model takes
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
    kind: TaskKind = field(default_factory=Classification)
    edge_values: dict[str, Tensor] = field(default_factory=dict)
    transform: FeatureTransform | None = None  # prepared x
    ids: Sequence[str] = ()  # of the nodes
    columns: dict[str, list[int]] = field(default_factory=dict)  # kinds of features

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of the model's forward pass."""
        return (self.x, self.edge_index, *self.edge_inputs)

    def with_similar(self, found: Similar | None) -> Task:
        """Sets :attr:`similar`, for a task with a part of the features only."""
        self.__dict__["similar"] = found
        return self

    @cached_property
    def similar(self) -> Similar | None:
        """Features whose nearest nodes explain the labels of the training nodes."""
        train = self.train.cpu()
        targets = self.y.cpu()[train]
        if not targets.is_floating_point():
            targets = one_hot(targets, self.classes)
        return find_similar(self.x.cpu(), targets.float().reshape(len(train), -1), train)


class Training:
    """One model in training on one task.

    Random numbers (weights, dropout) come from torch's global generators, which the caller seeds.
    A checkpoint contains their state: a resumed training has the bits of an uninterrupted one.

    Args:
        model (NodeModel): The model, on the task's device.
        task (Task): The graph and its split.
        settings (Settings): The recipe (:mod:`phgcn.train.recipe`) and the length of the training.
        sample_every (int, optional): Epochs between two samples of the global path, of which the
            first follows the first epoch; 0 takes none. (default: :obj:`0`)
        processes (OneProcess, optional): The processes that train. (default: this one)
    """

    def __init__(
        self,
        model: NodeModel,
        task: Task,
        settings: Settings,
        sample_every: int = 0,
        processes: OneProcess | None = None,
    ) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.sample_every, self.processes = sample_every, processes or OneProcess()
        # whether the model reads the features of a node without the other nodes
        self.rows_alone = getattr(model, "rows_alone", False)
        self.optimiser = recipe.make_optimiser(model, settings)
        self.state = State(global_off=settings.local_epochs > 0)
        if self.state.global_off:
            switch_global(model, False)
        self._input_accepted = False  # whether a forward pass on this input has succeeded before
        self.train_y, self.val_y = task.y[task.train], task.y[task.val]
        self.labels = self.processes.label_inputs(model, task.kind, task)
        self.processes.restore_random(self, {})

    @property
    def done(self) -> bool:
        """Whether the maximum of epochs, or the patience of the last phase, is reached."""
        last_phase = not self.state.global_off
        return self.state.epoch >= self.settings.epochs or (last_phase and self._out_of_patience)

    @property
    def _out_of_patience(self) -> bool:
        chosen = self.state.by_metric if self.settings.select == "metric" else self.state.by_loss
        since = max(chosen.epoch if chosen else 0, self.state.phase_start)
        return self.state.epoch - since >= self.settings.patience

    @property
    def best(self) -> BestEpoch:
        """The epoch that counts, by ``select``."""
        return self.best_by_metric if self.settings.select == "metric" else self.best_by_loss

    @property
    def best_by_loss(self) -> BestEpoch:
        """The epoch with the smallest validation loss; there is one from the first epoch on."""
        assert self.state.by_loss is not None
        return self.state.by_loss

    @property
    def best_by_metric(self) -> BestEpoch:
        """The epoch with the best validation metric; there is one from the first epoch on."""
        assert self.state.by_metric is not None
        return self.state.by_metric

    def epoch(self) -> tuple[float, ...]:
        """Trains for one epoch, evaluates, and returns the row of :data:`phgcn.train.state.CURVES`;
        an epoch without evaluation repeats the last scores."""
        begin, state = time.perf_counter(), self.state
        if state.global_off and (
            state.epoch >= self.settings.local_epochs or self._out_of_patience
        ):
            self._begin_second_phase()
        recipe.set_learning_rate(self.optimiser, self._learning_rate())
        if self._evaluates():
            logits, scores = self._step_and_evaluate()
            # waits for the device, once for all three
            train_loss, val_loss, val_metric = scores.tolist()
            if not (math.isfinite(train_loss) and math.isfinite(val_loss)):
                raise self._diverged(f"training loss {train_loss}, validation loss {val_loss}")
            self._update_best(logits, val_loss, val_metric)
            self._sample_global_path()
        else:
            train_loss, (_, val_loss, val_metric, _) = float(self._step()), state.curves[-1]
            if not math.isfinite(train_loss):
                raise self._diverged(f"training loss {train_loss}")
        row = (train_loss, val_loss, val_metric, time.perf_counter() - begin)
        state.curves.append(row)
        return row

    def _evaluates(self) -> bool:
        """Whether the next epoch evaluates: the first, the last, and every few between."""
        epoch, every = self.state.epoch + 1, self.settings.evaluate_every
        return epoch in (1, self.settings.epochs) or epoch % every == 0

    def _begin_second_phase(self) -> None:
        self.model.load_state_dict(self.state.best_weights)
        switch_global(self.model, True)
        self.optimiser = recipe.make_optimiser(self.model, self.settings)
        self.state.global_off, self.state.phase_start = False, self.state.epoch

    def _learning_rate(self) -> float:
        """The learning rate of the next epoch; each phase has its own schedule."""
        start, end = self.state.phase_start, self.settings.epochs
        if self.state.global_off:
            end = min(self.settings.local_epochs, end)
        return recipe.learning_rate(self.settings, self.state.epoch - start, end - start)

    def _sample_global_path(self) -> None:
        """Measures attention every ``sample_every`` epochs and after the first of a phase."""
        if not self.sample_every or self.state.global_off:
            return
        epoch = self.state.epoch + 1
        if epoch == self.state.phase_start + 1 or epoch % self.sample_every == 0:
            self.state.attention += sample_rows(epoch, self._statistics())

    def _step_and_evaluate(self) -> tuple[Tensor, Tensor]:
        """Makes one optimiser step and one evaluation, without reads from the device. Returns
        logits (N, C) and (3,): training loss, validation loss, validation metric."""
        train_loss, logits, kind = self._step(), self._logits(), self.task.kind
        val_logits = logits[self.task.val]
        val_loss = kind.loss(val_logits, self.val_y)
        val_metric = kind.metric(self.task.metric, val_logits, self.val_y)
        scores = [score.double() for score in (train_loss, val_loss, val_metric)]
        return logits, torch.stack(scores)

    def _step(self) -> Tensor:
        self.model.train()
        self.optimiser.zero_grad()
        loss = self._loss_of_rows() if self.rows_alone else self._loss_of_nodes()
        loss.backward()
        self.processes.join_gradients(self.model)
        if self.settings.clip_norm:
            clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        return loss.detach()

    def _loss_of_nodes(self) -> Tensor:
        inputs, values = self._dropped_inputs()
        keys = draw_keys(self.model, self.labels)
        logits = self._forward(inputs, {**values, **self.labels, **keys})
        return self._loss(logits, self.task.train, self.train_y, keys.get("keys"))

    def _loss_of_rows(self) -> Tensor:
        """Computes the loss of ``batch_rows`` random training rows, or of all."""
        rows, size = self.task.train, self.settings.batch_rows
        if 0 < size < len(rows):
            rows = rows[torch.randint(len(rows), (size,), device=rows.device).unique()]
        labels = {name: values[rows] for name, values in self.labels.items()}
        keys = draw_keys(self.model, labels)
        logits = self._forward((select_rows(self.task.x, rows),), {**labels, **keys})
        everyone = torch.arange(len(rows), device=rows.device)
        return self._loss(logits, everyone, self.task.y[rows], keys.get("keys"))

    def _loss(self, logits: Tensor, nodes: Tensor, y: Tensor, keys: Tensor | None) -> Tensor:
        """Computes the loss of nodes that are no keys of this step."""
        if keys is not None:
            queries = ~self.processes.keys(keys)[nodes]
            nodes, y = nodes[queries], y[queries]
        return self.task.kind.loss(logits[nodes], y, self.settings.label_smoothing)

    def _dropped_inputs(self) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Returns the inputs of a step without its dropped nodes and edges."""
        inputs, values = self.task.inputs, self.task.edge_values
        dropped = recipe.drop_inputs((*inputs, *values.values()), self.settings)
        return dropped[: len(inputs)], dict(zip(values, dropped[len(inputs) :], strict=True))

    @torch.no_grad()
    def _logits(self) -> Tensor:
        """Computes all outputs, (N, C). In a table, training rows are keys without outputs."""
        self.model.eval()
        task = self.task
        if not self.rows_alone:
            return self._forward(task.inputs, {**task.edge_values, **self.labels})
        rows = torch.cat([*([task.train] if self.labels else []), task.val, task.test])
        values = {name: labels[rows] for name, labels in self.labels.items()}
        if values:
            values["keys"] = values["labelled"]
        out = self._forward((select_rows(task.x, rows),), values)
        return out.new_zeros(len(task.y), out.size(1)).index_copy(0, rows, out)

    def _forward(self, inputs: tuple[Tensor, ...], values: dict[str, Tensor]) -> Tensor:
        """Computes the logits, in float32 with ``amp`` too."""
        try:
            with recipe.autocast(self.settings, self.task.x.device):
                out: Tensor = self.model(*inputs, **values)
        except ValueError as error:
            if not self._input_accepted:
                raise
            # The layers accepted this input before: the weights are not finite, or far too large.
            raise self._diverged(str(error)) from None
        self._input_accepted = True
        return self.processes.outputs(out.float() if self.settings.amp else out)

    def _diverged(self, reason: str) -> TrainingError:
        what = f"no finite loss in epoch {self.state.epoch + 1} ({reason})"
        return TrainingError(f"{what}; try a smaller learning_rate")

    def _update_best(self, logits: Tensor, val_loss: float, val_metric: float) -> None:
        """Records the epoch if its validation loss or metric is the best so far."""
        state, metric = self.state, self.task.metric
        smallest_loss = state.by_loss is None or val_loss < state.by_loss.val_loss
        order = (goodness(metric, val_metric), -val_loss)  # ties: the smaller loss
        top = state.by_metric
        best_metric = top is None or order > (goodness(metric, top.val_metric), -top.val_loss)
        if not (smallest_loss or best_metric):
            return
        test = self.task.test
        test_metric = float(self.task.kind.metric(metric, logits[test], self.task.y[test]))
        best = BestEpoch(state.epoch + 1, val_loss, val_metric, test_metric)
        if smallest_loss:
            state.by_loss = best
        if best_metric:
            state.by_metric = best
        if best is self.best:
            weights = self.model.state_dict().items()
            state.best_weights = {name: value.detach().clone() for name, value in weights}

    def outputs(self) -> Tensor:
        """Loads the best weights and returns the outputs (N, C), after the last epoch."""
        self.model.load_state_dict(self.state.best_weights)
        return self._logits()

    def global_attention(self) -> list[dict[str, Any]]:
        """Loads the best weights and returns the statistics of the global path, after the last
        epoch."""
        self.model.load_state_dict(self.state.best_weights)
        return self._statistics()

    def _statistics(self) -> list[dict[str, Any]]:
        values = {**self.task.edge_values, **self.labels}
        return global_statistics(self.model, self.task.inputs, values)

    # Checkpoints

    def save(self, path: Path) -> None:
        """Writes all that the next epoch depends on into one file; call it between two epochs."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.state.best_weights.items()}
        for name, parameter in self.model.named_parameters():
            moments = self.optimiser.state[parameter].items()
            tensors |= {f"adam.{name}.{key}": value for key, value in moments}
        tensors |= self.processes.random_tensors(self) | self.state.rows()
        if self.processes.leads:
            write_tensors(path, tensors, {**self.state.facts(), "shapes": shapes(tensors)})

    def load(self, path: Path) -> None:
        """Restores the state that :meth:`save` wrote."""
        tensors, about = read_tensors(path)
        try:
            check_checkpoint(tensors, about, self.model, self.task.x.device)
            self.model.load_state_dict(with_prefix(tensors, "model."))
            self.optimiser = recipe.make_optimiser(self.model, self.settings)
            for name, parameter in self.model.named_parameters():
                saved = with_prefix(tensors, f"adam.{name}.").items()
                moments = {key: value.to(parameter.device) for key, value in saved}
                self.optimiser.state[parameter] = moments
            self.state = read_state(tensors, about, self.task.x.device)
        except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{path}: not a checkpoint of this training ({reason})") from None
        if self.settings.local_epochs:
            switch_global(self.model, not self.state.global_off)
        self.processes.restore_random(self, tensors)
