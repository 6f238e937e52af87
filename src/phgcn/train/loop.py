r"""Trains one model on one split of a graph, full batch.

The epoch that counts is the one with the smallest validation loss, as in the paper, or with the best validation metric
(``select``).  Test nodes are read only when an epoch becomes the best so far, to record its test metric: they decide nothing in
this training.

With ``local_epochs`` a training has two phases: the model's global path is off in the first, and switched on in the second,
which begins with the best weights of the first and a fresh optimiser.  The best epoch of both counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
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
from .features import FeatureTransform
from .global_path import global_statistics, sample_rows, switch_global
from .labels import draw_keys, label_inputs
from .metrics import goodness
from .recording import record
from .settings import Settings
from .similar import Similar, find_similar
from .state import BestEpoch, State, check_checkpoint, random_states, read_state, set_random_states, shapes, with_prefix
from .tasks import Classification, TaskKind


class TrainingError(RuntimeError):
    """Training diverged: the loss is not finite."""


@dataclass(frozen=True)
class Task:
    """A graph on its device, and the nodes to train, validate and test on.

    Shapes:
        - **x:** :math:`(N, F)`, dense or sparse, **edge_index:** :math:`(2, E)`, **y:** :math:`(N,)`, or :math:`(N, C)` of
          several labels per node, as ``kind`` takes them
        - **train**, **val**, **test:** node indices, :math:`(N_{train},)` and so on
        - **edge_inputs:** what the model takes after ``edge_index``, e.g. the relation of each edge, :math:`(E,)`; a tensor of
          :math:`E` rows is taken as one row per edge
        - **edge_values:** ``edge_attr`` :math:`(E, K)` and ``edge_weight`` :math:`(E,)`, those that the model takes
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
    transform: FeatureTransform | None = None  # what prepared x, where something did
    ids: Sequence[str] = ()  # of the nodes
    columns: dict[str, list[int]] = field(default_factory=dict)  # what the features are, for models that read columns

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of the model's forward pass."""
        return (self.x, self.edge_index, *self.edge_inputs)

    @cached_property
    def similar(self) -> Similar | None:
        """The features by which other nodes tell the labels of the training nodes."""
        train = self.train.cpu()
        targets = self.y.cpu()[train]
        if targets.dim() == 1:
            targets = targets.unsqueeze(1) if targets.is_floating_point() else one_hot(targets, self.classes)
        return find_similar(self.x.cpu(), targets.float(), train)


class Training:
    """One model in training on one task.

    Random numbers (weights, dropout) come from torch's global generators, which the caller seeds.  Their state is part of the
    checkpoint, so that a resumed training has the bits of an uninterrupted one.

    On a GPU, epochs of a model whose forward pass never reads from the device
    (:meth:`phgcn.nn.models.NodeModel.recordable`) are replayed as a CUDA graph, from the second epoch on.  Results are the
    same, but layers cannot check their inputs during a replay: values that are not finite show up in the losses alone.

    Args:
        model (NodeModel): The model, on the task's device.
        task (Task): The graph and its split.
        settings (Settings): Those of the training; see :mod:`phgcn.train.recipe`.
        sample_every (int, optional): How many epochs lie between two samples of the global path, the first after the first
            epoch; 0 takes none. (default: :obj:`0`)
    """

    def __init__(self, model: NodeModel, task: Task, settings: Settings, sample_every: int = 0) -> None:
        self.model, self.task, self.settings, self.sample_every = model, task, settings, sample_every
        self.optimiser = recipe.make_optimiser(model, settings, task.x.device)
        self.state = State(global_off=settings.local_epochs > 0)
        if self.state.global_off:
            switch_global(model, False)
        self._input_accepted = False  # whether a forward pass on this input has succeeded before
        self._compiled = False  # whether an epoch of this phase has run: its kernels are compiled, the optimiser has its state
        self._replay: Callable[[], tuple[Tensor, Tensor]] | None = None  # an epoch as a CUDA graph
        self.val_y, self.test_y, self.train_y = (task.y[nodes] for nodes in (task.val, task.test, task.train))
        self.labels = label_inputs(model, task.kind.label_values(task.y), task.train)

    @property
    def done(self) -> bool:
        """Whether the maximum of epochs, or the patience of the last phase, is reached."""
        return self.state.epoch >= self.settings.epochs or (self._out_of_patience and not self.state.global_off)

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

    @property
    def recorded(self) -> bool:
        """Whether epochs are replayed as a CUDA graph."""
        return self._replay is not None

    def epoch(self) -> tuple[float, ...]:
        """Trains for one epoch, evaluates on the validation nodes, and returns the row of :data:`phgcn.train.state.CURVES`."""
        begin = time.perf_counter()
        if self.state.global_off and (self.state.epoch >= self.settings.local_epochs or self._out_of_patience):
            self._switch_global_on()
        recipe.set_learning_rate(self.optimiser, self._learning_rate())
        if not self._evaluates():
            _, val_loss, val_metric, _ = self.state.curves[-1]
            return self._record(float(self._step()), val_loss, val_metric, begin)
        logits, scores = self._run_epoch()
        train_loss, val_loss, val_metric = scores.tolist()  # waits for the device, once for all three
        if not (math.isfinite(train_loss) and math.isfinite(val_loss)):
            raise self._diverged(f"training loss {train_loss}, validation loss {val_loss}")
        self._update_best(logits, val_loss, val_metric)
        self._sample_global_path()
        return self._record(train_loss, val_loss, val_metric, begin)

    def _evaluates(self) -> bool:
        """Whether the next epoch ends with an evaluation: the first and the last do, and every so many between."""
        epoch = self.state.epoch + 1
        return epoch == 1 or epoch % self.settings.evaluate_every == 0 or epoch == self.settings.epochs

    def _record(self, train_loss: float, val_loss: float, val_metric: float, begin: float) -> tuple[float, ...]:
        """Appends the row of an epoch, which began at ``begin``; without an evaluation it has the scores of the last one."""
        if not math.isfinite(train_loss):
            raise self._diverged(f"training loss {train_loss}")
        row = (train_loss, val_loss, val_metric, time.perf_counter() - begin)
        self.state.curves.append(row)
        return row

    def _switch_global_on(self) -> None:
        """Begins the second phase."""
        self.model.load_state_dict(self.state.best_weights)
        switch_global(self.model, True)
        self.optimiser = recipe.make_optimiser(self.model, self.settings, self.task.x.device)
        self.state.global_off, self.state.phase_start = False, self.state.epoch
        self._replay, self._compiled = None, False

    def _learning_rate(self) -> float:
        """Returns that of the next epoch; each phase has a schedule of its own."""
        end = min(self.settings.local_epochs, self.settings.epochs) if self.state.global_off else self.settings.epochs
        start = self.state.phase_start
        return recipe.learning_rate(self.settings, self.state.epoch - start, end - start)

    def _sample_global_path(self) -> None:
        """Measures what the global path attends to now, every ``sample_every`` epochs and after the first of a phase."""
        if not self.sample_every or self.state.global_off:
            return
        epoch = self.state.epoch + 1
        if epoch == self.state.phase_start + 1 or epoch % self.sample_every == 0:
            self.state.attention += sample_rows(epoch, self._statistics())

    def _run_epoch(self) -> tuple[Tensor, Tensor]:
        """Runs :meth:`_step_and_evaluate`: as a CUDA graph if it can be recorded, and its kernels have been compiled."""
        if self._replay is None:
            if not (self._compiled and self._recordable()):
                result = self._step_and_evaluate()
                self._compiled = True
                return result
            self._replay = record(self._step_and_evaluate, self.task.x.device)
        return self._replay()

    def _recordable(self) -> bool:
        """Tells whether no kernel of an epoch waits for the host; with weights of edges, PyG's normalisation does."""
        return (
            not self.task.edge_values
            and not self.labels
            and recipe.fixed_shapes(self.settings)
            and self.model.recordable(self.task.x)
        )

    def _step_and_evaluate(self) -> tuple[Tensor, Tensor]:
        """Makes one optimiser step and one evaluation, without reading from the device.

        Shapes:
            - **output:** logits :math:`(N, C)`, and :math:`(3,)`: training loss, validation loss, validation metric
        """
        train_loss = self._step()
        logits = self._logits()
        val_logits = logits[self.task.val]
        kind = self.task.kind
        scores = [train_loss, kind.loss(val_logits, self.val_y), kind.metric(self.task.metric, val_logits, self.val_y)]
        return logits, torch.stack([score.double() for score in scores])

    def _step(self) -> Tensor:
        self.model.train()
        self.optimiser.zero_grad()
        loss = self._loss_of_rows() if self._rows_alone() else self._loss_of_nodes()
        loss.backward()
        self._join_gradients()
        if self.settings.clip_norm:
            clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        return loss.detach()

    def _loss_of_nodes(self) -> Tensor:
        """Computes the loss of the training nodes in the whole graph."""
        inputs, values = self._dropped_inputs()
        keys = draw_keys(self.model, self.labels)
        logits = self._forward(inputs, {**values, **self.labels, **keys})
        return self._loss(logits, self.task.train, self.train_y, keys.get("keys"))

    def _rows_alone(self) -> bool:
        """Whether a row of the features is all that the model needs of a node, besides labels."""
        return getattr(self.model, "rows_alone", False) and self.task.x.layout == torch.strided

    def _loss_of_rows(self) -> Tensor:
        """Computes the loss of the training rows, or of as many random ones as ``batch_rows`` says, without the other nodes."""
        rows, size = self.task.train, self.settings.batch_rows
        if 0 < size < len(rows):
            rows = rows[torch.randint(len(rows), (size,), device=rows.device).unique()]
        labels = {name: rows_of[rows] for name, rows_of in self.labels.items()}
        keys = draw_keys(self.model, labels)
        logits = self._forward((self.task.x[rows],), {**labels, **keys})
        everyone = torch.arange(len(rows), device=rows.device)
        return self._loss(logits, everyone, self.task.y[rows], keys.get("keys"))

    def _loss(self, logits: Tensor, nodes: Tensor, y: Tensor, keys: Tensor | None) -> Tensor:
        """Computes the loss of nodes with these labels, but of those that are keys of this step."""
        if keys is not None:
            queries = ~keys[nodes]
            nodes, y = nodes[queries], y[queries]
        return self.task.kind.loss(logits[nodes], y, self.settings.label_smoothing)

    def _join_gradients(self) -> None:
        """Called between the backward pass and the step: a training over several processes adds up their gradients."""

    def _dropped_inputs(self) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Returns the arguments of a training step, of which nodes and edges are left out as the settings say."""
        inputs, values = self.task.inputs, self.task.edge_values
        dropped = recipe.drop_inputs((*inputs, *values.values()), self.settings)
        return dropped[: len(inputs)], dict(zip(values, dropped[len(inputs) :], strict=True))

    @torch.no_grad()
    def _logits(self) -> Tensor:
        self.model.eval()
        return self._forward(self.task.inputs, {**self.task.edge_values, **self.labels})

    def _forward(self, inputs: tuple[Tensor, ...], values: dict[str, Tensor]) -> Tensor:
        """Computes the logits, in float32 with ``amp`` too."""
        try:
            with recipe.autocast(self.settings, self.task.x.device):
                out: Tensor = self.model(*inputs, **values)
        except ValueError as error:
            if not self._input_accepted:
                raise
            # The layers accepted this input before, so the weights are to blame: they are not finite, or far too large.
            raise self._diverged(str(error)) from None
        self._input_accepted = True
        return out.float() if self.settings.amp else out

    def _diverged(self, reason: str) -> TrainingError:
        return TrainingError(f"no finite loss in epoch {self.state.epoch + 1} ({reason}); try a smaller learning_rate")

    def _update_best(self, logits: Tensor, val_loss: float, val_metric: float) -> None:
        """Records the epoch if it has the smallest validation loss so far, or the best metric (ties: the smaller loss)."""
        state = self.state
        best_loss = state.by_loss is None or val_loss < state.by_loss.val_loss
        top = state.by_metric
        best_metric = top is None or self._order(val_metric, val_loss) > self._order(top.val_metric, top.val_loss)
        if not (best_loss or best_metric):
            return
        test_metric = float(self.task.kind.metric(self.task.metric, logits[self.task.test], self.test_y))
        best = BestEpoch(state.epoch + 1, val_loss, val_metric, test_metric)
        if best_loss:
            state.by_loss = best
        if best_metric:
            state.by_metric = best
        if best is self.best:
            state.best_weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def _order(self, val_metric: float, val_loss: float) -> tuple[float, float]:
        """Returns what orders epochs by metric, ties by the smaller loss."""
        return goodness(self.task.metric, val_metric), -val_loss

    def outputs(self) -> Tensor:
        """Returns the outputs (N, C) with the best weights, which it loads: for a training that is done."""
        self.model.load_state_dict(self.state.best_weights)
        return self._logits()

    def global_attention(self) -> list[dict[str, Any]]:
        """Returns the statistics of the global path with the best weights, which it loads: for a training that is done."""
        self.model.load_state_dict(self.state.best_weights)
        return self._statistics()

    def _statistics(self) -> list[dict[str, Any]]:
        return global_statistics(self.model, self.task.inputs, {**self.task.edge_values, **self.labels})

    # Checkpoints

    def save(self, path: Path) -> None:
        """Writes everything that the next epoch depends on into one file, atomically.  Call it between two epochs."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.state.best_weights.items()}
        for name, parameter in self.model.named_parameters():
            tensors |= {f"adam.{name}.{key}": value for key, value in self.optimiser.state[parameter].items()}
        tensors |= self._random_tensors()
        tensors |= self.state.rows()
        self._write(path, tensors, {**self.state.facts(), "shapes": shapes(tensors)})

    def _write(self, path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        write_tensors(path, tensors, about)

    def _random_tensors(self) -> dict[str, Tensor]:
        """Returns the states of the random number generators: ``random.*``, and ``random-R.*`` of other processes."""
        return {f"random.{name}": value for name, value in random_states(self.task.x.device).items()}

    def _restore_random(self, tensors: dict[str, Tensor]) -> None:
        """Sets the random number generators to what :meth:`_random_tensors` returned."""
        set_random_states(with_prefix(tensors, "random."), self.task.x.device)

    def load(self, path: Path) -> None:
        """Restores the state that :meth:`save` wrote."""
        tensors, about = read_tensors(path)
        try:
            check_checkpoint(tensors, about, self.model, self.task.x.device)
            self.model.load_state_dict(with_prefix(tensors, "model."))
            self.optimiser = recipe.make_optimiser(self.model, self.settings, self.task.x.device)
            for name, parameter in self.model.named_parameters():
                saved = with_prefix(tensors, f"adam.{name}.")
                self.optimiser.state[parameter] = {key: value.to(parameter.device) for key, value in saved.items()}
            self.state = read_state(tensors, about, self.task.x.device)
        except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a checkpoint of this training ({str(error).splitlines()[0]})") from None
        if self.settings.local_epochs:
            switch_global(self.model, not self.state.global_off)
        self._restore_random(tensors)
        self._replay, self._compiled = None, False  # a recorded epoch would update the optimiser's old tensors
