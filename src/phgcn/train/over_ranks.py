r"""Trains a run over several processes, each with a part of the graph: the same epochs, and the same folder, as of one process.

Every rank has a copy of the model and computes the outputs of its own nodes.  The outputs of all nodes that a split uses are
gathered, so that every rank computes the same loss and the same metrics, and decides alike; gradients are added up.  Rank 0
writes the folder, which all ranks can read.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..distributed.agreement import agree, require_equal
from ..distributed.boundary import PartEdges
from ..distributed.collectives import Ranks, gather_for_shared_loss, sum_gradients
from ..distributed.norm import synchronise_norms
from ..distributed.part_files import take_rows
from ..distributed.partition import Part, connect
from ..files import write_json
from ..registry import find_model, model_names
from .checkpoints import Checkpoints, CheckpointSchedule, DelayedInterrupt, checkpoint_files, last_state
from .loop import Task, Training
from .plan import EpochProgress, OnEpoch, Plan, Trial
from .prepare import HeldNodes, build_for_task, prepare, seeded
from .result import run_result, split_result
from .run import SAMPLE_EVERY, Run, curve_log, run_epoch
from .settings import Settings
from .state import random_states, set_random_states, with_prefix


@dataclass(frozen=True)
class Shared:
    """What of a task lies on which rank.

    Args:
        edges (PartEdges): The edges of this rank's nodes.
        scored (torch.Tensor): Which of its nodes the split uses.
        counts (list of int): How many nodes of each rank the split uses.
    """

    edges: PartEdges
    scored: Tensor
    counts: list[int]


class RankTraining(Training):
    """One model in training on the part of a graph that this rank has.

    Args:
        model, task, settings: As in :class:`phgcn.train.loop.Training`; the task is that of :func:`share_task`.
        shared (Shared): Beside it.
        seed (int): What the random numbers of ranks follow from that have none yet.
    """

    def __init__(self, model: Any, task: Task, settings: Settings, shared: Shared, seed: int) -> None:
        self.ranks, self.shared, self.seed = shared.edges.ranks, shared, seed
        super().__init__(model, task, settings, SAMPLE_EVERY)
        self._restore_random({})

    def _run_epoch(self) -> tuple[Tensor, Tensor]:
        return self._step_and_evaluate()  # what waits for other processes is not recorded as a CUDA graph

    def _forward(self, inputs: tuple[Tensor, ...], edge_values: dict[str, Tensor]) -> Tensor:
        outputs = super()._forward(inputs, edge_values)[self.shared.scored]
        return gather_for_shared_loss(outputs, self.ranks, self.shared.counts)

    def _join_gradients(self) -> None:
        sum_gradients(self.model.parameters(), self.ranks)

    def _write(self, path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        if self.ranks.rank == 0:
            super()._write(path, tensors, about)

    def _random_tensors(self) -> dict[str, Tensor]:
        gathered = {name: self.ranks.gather_equal(state.cpu()) for name, state in random_states(self.task.x.device).items()}
        first = {f"random.{name}": states[0].clone() for name, states in gathered.items()}
        rest = {
            f"random-{rank}.{name}": states[rank].clone() for name, states in gathered.items() for rank in range(1, len(states))
        }
        return first | rest

    def _restore_random(self, tensors: dict[str, Tensor]) -> None:
        """Rank 0 goes on as a single process would.  A rank that has no state, in a new training or since there were fewer
        ranks when it was saved, begins anew."""
        prefix = "random." if self.ranks.rank == 0 else f"random-{self.ranks.rank}."
        states = with_prefix(tensors, prefix)
        if states:
            set_random_states(states, self.task.x.device)
        elif self.ranks.rank > 0:
            text = f"{self.seed} {self.ranks.rank} {self.state.epoch}"
            torch.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1)


def share_task(task: Task, part: Part, edges: PartEdges) -> tuple[Task, Shared]:
    """Makes the task of this rank from that of the whole graph, of whose nodes and edges it may have its own rows alone.

    The nodes of the splits, and their labels, are numbered as :class:`RankTraining` gathers outputs: rank by rank.
    """
    used, device = torch.unique(torch.cat([task.train, task.val, task.test]).cpu()), task.x.device
    nodes = part.nodes[torch.isin(part.nodes, used)]
    gathered = edges.ranks.gather(nodes)
    order = torch.cat(gathered)
    place = torch.argsort(order)

    def placed(wanted: Tensor) -> Tensor:
        return place[torch.searchsorted(order[place], wanted.cpu())].to(device)

    shared = Shared(edges, torch.searchsorted(part.nodes, nodes).to(device), [len(some) for some in gathered])
    splits = {name: placed(getattr(task, name)) for name in ("train", "val", "test")}
    x = task.x if task.x.size(0) == len(part.nodes) else take_rows(task.x, part.nodes.to(device))
    values = {
        name: rows if len(rows) == len(part.edges) else rows[part.edges.to(device)] for name, rows in task.edge_values.items()
    }
    placed_task = replace(task, x=x, edge_index=edges, y=task.y[order.to(device)], edge_values=values, **splits)  # type: ignore[arg-type]
    return placed_task, shared


def check_plan(plan: Plan) -> None:
    """Refuses what cannot be trained over several processes."""
    entry = find_model(plan.model)
    if not entry.over_ranks:
        allowed = ", ".join(name for name in model_names() if find_model(name).over_ranks)
        raise ValueError(f"model is {plan.model!r}; allowed for several processes: {allowed}")
    if plan.model == "global-gnn" and plan.settings.labels:
        raise ValueError("labels is true; allowed for several processes: false")


def train_over_ranks(
    run: Run, data: Data, part: Part, ranks: Ranks, on_epoch: OnEpoch = lambda progress: None, tensorboard: bool = False
) -> dict[str, Any]:
    """Trains the trials of a run that are not finished; as :meth:`phgcn.train.Run.train`, on every rank.

    Args:
        run (Run): The run, the same on all ranks.
        data (torch_geometric.data.Data): The graph, or with this rank's rows of its features and its edges alone.
        part (Part): The part of this rank.
        ranks (Ranks): The processes.
        on_epoch, tensorboard: As there; for rank 0 alone.
    """
    lead = ranks.rank == 0
    with run.locked() if lead else nullcontext():
        edges = connect(part, ranks).to(run.plan.device)
        held = HeldNodes(part.nodes, ranks) if "description" in data else None  # of a part of the graph alone
        tasks, schedule = prepare(run.plan, data, held), CheckpointSchedule()
        for trial in run.plan.trials():
            if not _ask_rank_0(ranks, lambda trial=trial: run.finished(trial)):  # type: ignore[misc]
                task, shared = share_task(tasks[trial.split], part, edges)
                _train_trial(run, trial, task, shared, schedule, on_epoch, tensorboard and lead)
            if lead:
                for checkpoint in checkpoint_files(run.folder, trial.name):
                    checkpoint.unlink()
        if lead:
            rows = [run.trial_result(trial) for trial in run.plan.trials()]
            write_json(run.folder / "result.json", run_result(run.plan, run.about, rows))
        _ask_rank_0(ranks, lambda: True)  # the others wait until the folder is complete
    return run.result()


def _ask_rank_0(ranks: Ranks, decide: Callable[[], bool]) -> bool:
    """Returns what rank 0 decides."""
    return bool(ranks.broadcast(torch.tensor([ranks.rank == 0 and decide()])))


def _train_trial(
    run: Run, trial: Trial, task: Task, shared: Shared, schedule: CheckpointSchedule, on_epoch: OnEpoch, tensorboard: bool
) -> None:
    ranks = shared.edges.ranks
    with seeded(trial.seed, task):
        training = RankTraining(_build(run.plan, task, ranks), task, run.plan.settings, shared, trial.seed)
        checkpoints = Checkpoints(run.folder, trial.name, training, schedule)
        rows = agree(ranks, lambda: _restore(checkpoints), ("epoch",))
        require_equal(rows, ("epoch",), lambda name, number: str(number))
        log = curve_log(run.folder / "tensorboard" / trial.name, training.state.epoch, tensorboard)
        with DelayedInterrupt(lambda: True) as interrupt, log as log_row:
            while not training.done:
                row = run_epoch(training, trial)
                # Ranks note an interrupt, or find a checkpoint due, at different times: they stop together, and rank 0
                # decides on checkpoints.
                noted, due = ranks.gather_equal(torch.tensor([interrupt.noted, schedule.due()])).unbind(dim=1)
                if bool(noted.any()) or bool(due[0]):
                    checkpoints.save()
                if ranks.rank == 0:
                    log_row(training.state.epoch, row)
                    on_epoch(EpochProgress(trial, training.state.epoch, row, training.best_by_loss.val_loss))
                if bool(noted.any()):
                    raise KeyboardInterrupt
            training.save(last_state(run.folder, trial.name))  # before the result, which loads the best weights
            result = split_result(trial, training)  # on all ranks, as the statistics of the global path are of all nodes
            if ranks.rank == 0:
                run.write_trial(trial, training, result)


def _restore(checkpoints: Checkpoints) -> list[int]:
    checkpoints.restore()
    return [checkpoints.training.state.epoch]


def _build(plan: Plan, task: Task, ranks: Ranks) -> Any:
    """Builds the model with the same weights on all ranks, and batch norms over all of them."""
    takes = inspect.signature(find_model(plan.model).model_class()).parameters
    more: dict[str, Any] = {"process_group": ranks.group} if "process_group" in takes else {}
    model = build_for_task(plan, task, **more)
    synchronise_norms(model, ranks.group)
    for tensor in (*model.parameters(), *model.buffers()):
        ranks.broadcast(tensor.data)
    return model
