r"""Models that use labels without learning from them: label propagation, Correct & Smooth, and
nearest training nodes; what they choose is chosen on the validation nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.nn import CorrectAndSmooth, LabelPropagation
from torch_geometric.utils import to_undirected

from phgcn.train.loop import Task

SHARES = 0.5, 0.9, 0.99
NEAREST = 5, 10, 20, 40
Found = tuple[Tensor, dict[str, Any]]  # Scores of classes (N, C), and the settings that were chosen


def propagate(task: Task) -> Found:
    edges = to_undirected(task.edge_index)

    def tried() -> Iterator[Found]:
        for layers in (10, 50, 200):
            for alpha in SHARES:
                settings = {"num_layers": layers, "alpha": alpha}
                found = LabelPropagation(**settings)(task.y.clamp(min=0), edges, task.train)
                yield found, {"settings": settings}

    return _best(task, tried())


def correct_and_smooth(task: Task, outputs: Tensor) -> Found:
    """Corrects and smooths the outputs (N, C) of a local network; chooses the shares."""
    edges, known = to_undirected(task.edge_index), task.y[task.train]

    def tried() -> Iterator[Found]:
        for correct in SHARES:
            for smooth in SHARES:
                model = CorrectAndSmooth(50, correct, 50, smooth, autoscale=True)
                soft = model.correct(outputs.softmax(dim=1), known, task.train, edges)
                settings = {"correction_alpha": correct, "smoothing_alpha": smooth}
                yield model.smooth(soft, known, task.train, edges), {"settings": settings}

    return _best(task, tried())


def nearest_nodes(task: Task, outputs: Tensor) -> Found:
    """Averages the labels of the nearest training nodes, by outputs (N, C) of a network; chooses
    their number. No training node counts itself."""
    distances = torch.cdist(outputs, outputs[task.train])
    distances[task.train, torch.arange(len(task.train))] = torch.inf
    labels = one_hot(task.y[task.train], task.classes).to(outputs)
    order = distances.topk(min(max(NEAREST), len(task.train) - 1), largest=False).indices

    def tried() -> Iterator[Found]:
        for count in NEAREST:
            yield labels[order[:, :count]].mean(dim=1), {"settings": {"neighbours": count}}

    return _best(task, tried())


def _best(task: Task, tried: Iterator[Found]) -> Found:
    def goodness(found: Found) -> float:
        return float(task.kind.metric(task.metric, found[0][task.val], task.y[task.val]))

    return max(tried, key=goodness)
