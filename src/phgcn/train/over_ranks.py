"""Trains a run over several processes with a part of the graph each; epochs and folder are as of
one process.

Every rank has a copy of the model and computes its own nodes' outputs. The outputs of a split are
gathered: every rank computes the same loss and metrics, and gradients are added up. Rank 0 writes
the folder, which all ranks can read."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from ..distributed.agreement import agree, require_equal
from ..distributed.boundary import PartEdges
from ..distributed.collectives import Ranks, gather_for_shared_loss, sum_gradients
from ..distributed.norm import synchronise_norms
from ..distributed.part_files import take_rows
from ..distributed.partition import Part, connect
from ..registry import find_model, model_names
from .checkpoints import Checkpoints, CheckpointSchedule
from .labels import KeptKeys, Labels, encode_ids, keep_keys, label_inputs
from .loop import Task, Training
from .plan import OnEpoch, Plan, Trial
from .prepare import HeldNodes, prepare
from .processes import OneProcess
from .run import Run
from .state import random_states, set_random_states, with_prefix
from .tasks import TaskKind
from .trial import Logged, train_trial


class ManyProcesses(OneProcess):
    """A training over ranks, each with some nodes of the graph.

    Args:
        edges (PartEdges): The edges of this rank's nodes.
        nodes (torch.Tensor): The indices of its nodes in the graph.
        scored (torch.Tensor): The subset of its nodes that the split uses, as indices into them.
        counts (list of int): The number of nodes of each rank that the split uses.
        ids (sequence of str): The ids of all nodes of the graph, if they have any.
        seed (int): The seed of ranks without a state of random numbers.
    """

    alone = False
    ranks: Ranks

    def __init__(
        self,
        edges: PartEdges,
        nodes: Tensor,
        scored: Tensor,
        counts: list[int],
        ids: Sequence[str],
        seed: int,
    ) -> None:
        self.ranks, self.nodes, self.scored, self.counts = edges.ranks, nodes, scored, counts
        self.ids, self.seed, self.leads = ids, seed, edges.ranks.rank == 0

    def model_arguments(self, model_class: Callable[..., Any]) -> dict[str, Any]:
        takes = inspect.signature(model_class).parameters
        return {"process_group": self.ranks.group} if "process_group" in takes else {}

    def synchronise(self, model: Module) -> None:
        synchronise_norms(model, self.ranks.group)
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.numel() > 0:
                self.ranks.broadcast(tensor.data)

    def outputs(self, outputs: Tensor) -> Tensor:
        return gather_for_shared_loss(outputs[self.scored], self.ranks, self.counts)

    def join_gradients(self, model: Module) -> None:
        sum_gradients(model.parameters(), self.ranks)

    def label_inputs(self, model: Module, kind: TaskKind, task: Task) -> Labels:
        values = kind.label_values(task.y)
        rows = values.new_zeros(len(task.x), *values.shape[1:])
        rows = rows.index_copy(0, self.scored, values[self._own])
        return label_inputs(model, rows, self.own_rows(task.train))

    def own_rows(self, nodes: Tensor) -> Tensor:
        chosen = torch.zeros(sum(self.counts), dtype=torch.bool, device=nodes.device)
        return self.scored[chosen.index_fill(0, nodes, True)[self._own]]

    @property
    def _own(self) -> slice:
        """The nodes of this process among the split's nodes of all processes."""
        start = sum(self.counts[: self.ranks.rank])
        return slice(start, start + self.counts[self.ranks.rank])

    def keys(self, keys: Tensor) -> Tensor:
        drawn = self.ranks.gather(keys[self.scored].to(torch.uint8), self.counts)
        return torch.cat(drawn).bool()

    def kept_keys(self, training: Training) -> KeptKeys:
        own = keep_keys(training.model, training.task.inputs, training.labels, ())
        nodes = self._gathered(self.nodes[own.nodes])
        order = torch.argsort(nodes)
        positions = {name: self._gathered(rows)[order] for name, rows in own.positions.items()}
        ids = encode_ids(self.ids, nodes[order])
        return KeptKeys(nodes[order], self._gathered(own.values)[order], positions, ids)

    def _gathered(self, rows: Tensor) -> Tensor:
        device = self.scored.device
        return torch.cat(self.ranks.gather(rows.to(device))).cpu()

    def any(self, flag: bool) -> bool:
        return bool(self.ranks.gather_equal(torch.tensor([flag])).any())

    def decide(self, flag: bool) -> bool:
        return bool(self.ranks.broadcast(torch.tensor([flag])))

    def restore(self, checkpoints: Checkpoints) -> None:
        def load() -> list[int]:
            checkpoints.restore()
            return [checkpoints.training.state.epoch]

        rows = agree(self.ranks, load, ("epoch",))
        require_equal(rows, ("epoch",), lambda name, number: str(number))

    def random_tensors(self, training: Training) -> dict[str, Tensor]:
        found = {}
        for name, state in random_states(training.task.x.device).items():
            for rank, other in enumerate(self.ranks.gather_equal(state.cpu())):
                found[f"{_prefix(rank)}{name}"] = other.clone()
        return found

    def restore_random(self, training: Training, tensors: dict[str, Tensor]) -> None:
        """Restores the state of this rank if there is one. Ranks other than 0 begin anew else."""
        rank = self.ranks.rank
        if states := with_prefix(tensors, _prefix(rank)):
            set_random_states(states, training.task.x.device)
        elif rank > 0:
            text = f"{self.seed} {rank} {training.state.epoch}"
            digest = hashlib.sha256(text.encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def _prefix(rank: int) -> str:
    return f"random-{rank}." if rank else "random."


def share_task(
    task: Task, part: Part, edges: PartEdges, trial: Trial
) -> tuple[Task, ManyProcesses]:
    """Makes the task of this rank from the task of the whole graph, whose features may be this
    rank's only. The order of nodes is that of :meth:`ManyProcesses.outputs`: rank by rank."""
    used, device = torch.unique(torch.cat([task.train, task.val, task.test]).cpu()), task.x.device
    nodes = part.nodes[torch.isin(part.nodes, used)]
    gathered = edges.ranks.gather(nodes)
    order = torch.cat(gathered)
    by_node = torch.argsort(order)

    def positions(nodes: Tensor) -> Tensor:
        return by_node[torch.searchsorted(order[by_node], nodes.cpu())].to(device)

    scored = torch.searchsorted(part.nodes, nodes).to(device)
    counts = [len(rows) for rows in gathered]
    processes = ManyProcesses(edges, part.nodes, scored, counts, task.ids, trial.seed)
    whole = task.x.size(0) == len(task.y)
    values = {
        name: rows if len(rows) == len(part.edges) else rows[part.edges.to(device)]
        for name, rows in task.edge_values.items()
    }
    own = replace(
        task,
        x=take_rows(task.x, part.nodes.to(device)) if whole else task.x,
        edge_index=cast(Tensor, edges),
        y=task.y[order.to(device)],
        edge_values=values,
        train=positions(task.train),
        val=positions(task.val),
        test=positions(task.test),
    )
    return own.with_similar(task.similar if whole and trial.plan.reads_similar else None), processes


def check_plan(plan: Plan) -> None:
    """Refuses a model that several processes cannot train."""
    entry = find_model(plan.model)
    if not entry.over_ranks:
        allowed = ", ".join(name for name in model_names() if find_model(name).over_ranks)
        raise ValueError(f"model is {plan.model!r}; allowed for several processes: {allowed}")


def train_over_ranks(
    run: Run,
    data: Data,
    part: Part,
    ranks: Ranks,
    on_epoch: OnEpoch = lambda progress: None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains the unfinished trials of a run, like :meth:`phgcn.train.Run.train`; call it on every
    rank.

    Args:
        run (Run): The run, the same on all ranks.
        data (torch_geometric.data.Data): The graph, or only this rank's rows of features and edges.
        part (Part): The part of this rank.
        ranks (Ranks): The processes.
        on_epoch, tensorboard: As in :meth:`phgcn.train.Run.train`, for rank 0 only.
    """
    lead = ranks.rank == 0
    with run.locked() if lead else nullcontext():
        edges = connect(part, ranks).to(run.plan.device)
        # of a part of the graph only
        held = HeldNodes(part.nodes, ranks) if "description" in data else None
        tasks, schedule = prepare(run.plan, data, held), CheckpointSchedule()
        for trial in run.plan.trials():
            task, processes = share_task(tasks[trial.split], part, edges, trial)
            logged = Logged(on_epoch, tensorboard and lead)
            if not processes.decide(lead and run.finished(trial)):
                train_trial(run.folder, trial, task, schedule, processes, logged)
            if lead:
                run.remove_checkpoints(trial)
        if lead:
            run.write_result()
        ranks.broadcast(torch.zeros(1))  # the others wait until the folder is complete
    return run.result()
