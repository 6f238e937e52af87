r"""Graphs with fewer edges, and with fewer labels: head on and head off with the settings of the
benchmark.

Every condition is trained on ten splits, and a split has its own random choice of edges or labels,
the same for both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from phgcn.data.splits import Protocol
from phgcn.train import Task, Training
from phgcn.train.metrics import metric

from ..benchmark.spaces import OFF, OURS
from ..benchmark.training import choose, free_memory, plan_of, tasks_of, train_split

EDGES = (100, 50, 20, 10, 5, 0)  # Percent of the edges that are kept
LABELS: tuple[int | None, ...] = (None, 20, 5, 1)
"""Labels of each class to train on; :obj:`None`: all, 60 % of the nodes."""
HEADS: tuple[Literal["on", "off"], ...] = ("on", "off")


@dataclass(frozen=True)
class Condition:
    part: Literal["edges", "labels"]
    subject: str  # the graph's name
    level: int | None  # the percentage of edges, or the number of labels of each class

    @property
    def text(self) -> str:
        if self.part == "edges":
            return f"{self.level} % of the edges"
        if self.level is None:
            return "60 % of the labels"
        return f"{self.level} label{'s' * (self.level > 1)} per class"

    @property
    def protocol(self) -> Protocol | None:
        """Under ``paper`` 60 % of the nodes train; others have the splits of the benchmark."""
        return "paper" if self.part == "labels" else None

    def task(self, task: Task, split: int) -> Task:
        if self.part == "edges":
            assert self.level is not None
            return replace(task, edge_index=keep_edges(task.edge_index, self.level / 100, split))
        if self.level is None:
            return task
        return replace(task, train=keep_labels(task, self.level, split))


def keep_edges(edge_index: Tensor, share: float, seed: int) -> Tensor:
    """Keeps a random share of the edges, both directions or none; shares are nested."""
    low, high = edge_index.cpu().sort(dim=0).values
    edges, number = torch.stack([low, high]).unique(dim=1, return_inverse=True)
    rank = torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(seed))
    kept = rank[number] < round(share * edges.size(1))
    return edge_index[:, kept.to(edge_index.device)]


def keep_labels(task: Task, count: int, seed: int) -> Tensor:
    """Samples up to ``count`` training nodes per class. Samples are nested."""
    train = task.train.cpu()
    shuffled = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))]
    y = task.y.cpu()[shuffled]
    kept = torch.cat([shuffled[y == label][:count] for label in range(task.classes)])
    return kept.sort().values.to(task.train.device)


def train_both(
    condition: Condition,
    values: dict[str, Any],
    split: int,
    device: str,
    deadline: float,
    epochs: int | None,
) -> dict[str, Any]:
    result: dict[str, Any] = {"number": split}
    for head in HEADS:
        of_head = {**values, **(OFF if head == "off" else {})}
        settings, arguments = choose(condition.subject, OURS, of_head, epochs)
        plan = plan_of(condition.subject, OURS, settings, device, condition.protocol)
        whole = tasks_of(plan)[split]
        task = condition.task(whole, split)
        trained, training = train_split(plan, arguments, split, deadline, task)
        result[head] = {**trained, **test_isolated(training)}
        # how much splits overlap, whatever labels are kept
        result["test_over_train"] = len(whole.test) / len(whole.train)
        del training
        free_memory()
    return result


@torch.no_grad()
def test_isolated(training: Training) -> dict[str, Any]:
    """The metric of the best weights on test nodes without a neighbour, and their number."""
    task, model = training.task, training.model
    model.load_state_dict(training.state.best_weights)
    model.eval()
    test, ends = task.test, task.edge_index[:, task.edge_index[0] != task.edge_index[1]]
    isolated = test[~torch.isin(test, ends)]
    if len(isolated) == 0:
        return {"isolated_nodes": 0, "isolated_test": None}
    value = float(metric(task.metric, model(*task.inputs)[isolated], task.y[isolated]))
    return {"isolated_nodes": len(isolated), "isolated_test": value if value == value else None}
