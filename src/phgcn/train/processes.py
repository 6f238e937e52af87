"""The steps of a training that differ between one process and several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module

from .labels import KeptKeys, Labels, keep_keys, label_inputs
from .state import random_states, set_random_states, with_prefix

if TYPE_CHECKING:
    from ..distributed.collectives import Ranks
    from .checkpoints import Checkpoints
    from .loop import Task, Training
    from .tasks import TaskKind


class OneProcess:
    """A training in one process, as :class:`.over_ranks.ManyProcesses` is in several."""

    leads = True  # whether this process writes the folder and says what happens
    alone = True
    ranks: Ranks | None = None

    def model_arguments(self, model_class: Callable[..., Any]) -> dict[str, Any]:
        """Returns arguments of a model's class that are no settings."""
        return {}

    def synchronise(self, model: Module) -> None:
        """Gives a new model the same weights in all processes."""

    def outputs(self, outputs: Tensor) -> Tensor:
        """Returns all nodes' outputs; each of several processes computes some."""
        return outputs

    def join_gradients(self, model: Module) -> None:
        """Adds up the gradients of all processes."""

    def label_inputs(self, model: Module, kind: TaskKind, task: Task) -> Labels:
        return label_inputs(model, kind.label_values(task.y), task.train)

    def own_rows(self, nodes: Tensor) -> Tensor:
        """Returns this process's rows of features for nodes of the task."""
        return nodes

    def keys(self, keys: Tensor) -> Tensor:
        """Returns the mask of keys of the task from this process's mask."""
        return keys

    def kept_keys(self, training: Training) -> KeptKeys:
        """Returns the training nodes of all processes, to which a trained model attends."""
        task = training.task
        return keep_keys(training.model, task.inputs, training.labels, task.ids)

    def any(self, flag: bool) -> bool:
        """Returns whether the flag is set in any process."""
        return flag

    def decide(self, flag: bool) -> bool:
        """Returns the flag of the leading process."""
        return flag

    def restore(self, checkpoints: Checkpoints) -> None:
        """Continues from the latest checkpoint in all processes."""
        checkpoints.restore()

    def random_tensors(self, training: Training) -> dict[str, Tensor]:
        """Returns the states of random number generators, ``random.*`` and ``random-RANK.*``."""
        states = random_states(training.task.x.device)
        return {f"random.{name}": value for name, value in states.items()}

    def restore_random(self, training: Training, tensors: dict[str, Tensor]) -> None:
        """Restores the states of :meth:`random_tensors`, if any."""
        if states := with_prefix(tensors, "random."):
            set_random_states(states, training.task.x.device)
