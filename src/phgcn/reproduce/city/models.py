r"""The models on a street network: local networks, propagation of labels, and attention on the
map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import CorrectAndSmooth, LabelPropagation
from torch_geometric.utils import to_undirected

from ...nn import GlobalGNN, LabelAttention, LabelOutputs
from ...nn.decay import Decay
from ...train.loop import Task, Training
from ...train.prepare import seeded
from ...train.settings import Settings
from ..benchmark.rivals import SGFormer

LAYERS = (2, 4, 8, 16)
HIDDEN = 64
TRAINING = Settings(
    learning_rate=0.005, weight_decay=0.0, schedule="cosine", warmup=20, epochs=300, patience=300, select="metric",
    clip_norm=1.0, evaluate_every=5,
)  # fmt: skip
Report = Callable[[str, float], None]


class MapNetwork(torch.nn.Module):
    r"""A local network, attention on the map to the labels of other nodes, or the sum of both.

    The last two columns of the input are the coordinates, with mean 0 and deviation 1.

    Args:
        in_channels, out_channels (int): Size of each input and output sample.
        layers (int): Layers of the local network; 0 for none.
        on_map (bool): Whether there is attention on the map.
    """

    def __init__(self, in_channels: int, out_channels: int, layers: int, on_map: bool) -> None:
        super().__init__()
        self.local = None
        if layers:
            self.local = GlobalGNN(in_channels - 2, HIDDEN, out_channels, layers, "sage", norm="batch", dropout=0.2)
        self.attention = LabelAttention(2, out_channels, 8, 2, key_share=0.6, method="exact") if on_map else None
        self.outputs = LabelOutputs("classification") if on_map else None
        if self.attention is not None:
            axes = torch.eye(2)
            with torch.no_grad():  # from streets to quarters
                self.attention.lin_position.weight.copy_(torch.cat([1.5**head * axes for head in range(8)]))

    def draw_keys(self, labelled: Tensor) -> Tensor | None:
        """Draws the keys of a training step; :obj:`None` without attention."""
        return None if self.attention is None else self.attention.draw_keys(labelled)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        *,
        y: Tensor | None = None,
        labelled: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module."""
        parts = [] if self.local is None else [self.local(x[:, :-2], edge_index)]
        if self.attention is not None and self.outputs is not None:
            parts.append(self.outputs(self.attention(x[:, -2:], y, labelled, keys=keys)))
        return torch.stack(parts).sum(dim=0)

    def undecayed_parameters(self) -> Iterator[Parameter]:
        """Yields the parameters that weight decay should leave alone."""
        for module in self.modules():
            if isinstance(module, (Decay, LabelOutputs)):
                yield from module.parameters()

    def recordable(self, x: Tensor) -> bool:
        """Returns False: the number of keys differs between steps."""
        return False


class _WithoutMap(SGFormer):
    """SGFormer on the features alone."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = super().forward(x[:, :-2], edge_index)
        return out


def build(name: str, inputs: int, classes: int) -> Any:
    """Builds a network by its name."""
    if name == "sgformer":
        return _WithoutMap(inputs - 2, HIDDEN, classes)
    kind, _, layers = name.partition("-")
    return MapNetwork(inputs, classes, 0 if kind == "map" else int(layers), kind != "sage")


NETWORKS = (*(f"sage-{count}" for count in LAYERS), "sgformer", "map", *(f"both-{count}" for count in LAYERS))
PROPAGATIONS = ("label-propagation", "correct-and-smooth")
MODELS = (*PROPAGATIONS, *NETWORKS)


def train(name: str, task: Task, seed: int, epochs: int | None, report: Report) -> tuple[Tensor, dict[str, Any]]:
    """Trains a model; returns the scores of classes (N, C), and what is worth knowing."""
    if name == "label-propagation":
        return _propagate(task)
    if name == "correct-and-smooth":
        return _correct(task, seed, epochs, report)
    settings = replace(TRAINING, epochs=epochs, warmup=min(20, epochs // 2)) if epochs else TRAINING
    with seeded(seed, task):
        training = Training(build(name, task.x.size(1), task.classes), task, settings)
        while not training.done:
            training.epoch()
            report(f"epoch {training.state.epoch}", training.state.epoch / settings.epochs)
        outputs = training.outputs()
    return outputs, {"best_epoch": training.best.epoch, "epochs": training.state.epoch}


def _validated(task: Task, tried: Iterator[tuple[dict[str, Any], Tensor]]) -> tuple[Tensor, dict[str, Any]]:
    """Returns the outputs with the best accuracy on the validation nodes, and their settings."""
    best = max(tried, key=lambda pair: float(task.kind.metric("accuracy", pair[1][task.val], task.y[task.val])))
    return best[1], {"settings": best[0]}


def _propagate(task: Task) -> tuple[Tensor, dict[str, Any]]:
    """Propagates labels along edges; depth and share are chosen by validation."""
    edges = to_undirected(task.edge_index)

    def tried() -> Iterator[tuple[dict[str, Any], Tensor]]:
        for layers in (10, 50, 200):
            for alpha in (0.5, 0.9, 0.99):
                settings = {"num_layers": layers, "alpha": alpha}
                yield settings, LabelPropagation(**settings)(task.y.clamp(min=0), edges, task.train)

    return _validated(task, tried())


def _correct(task: Task, seed: int, epochs: int | None, report: Report) -> tuple[Tensor, dict[str, Any]]:
    """Corrects and smooths the outputs of the deepest local network; the shares are chosen by
    validation."""
    outputs, about = train(f"sage-{LAYERS[-1]}", task, seed, epochs, report)
    edges, known = to_undirected(task.edge_index), task.y[task.train]

    def tried() -> Iterator[tuple[dict[str, Any], Tensor]]:
        for correct in (0.5, 0.9, 0.99):
            for smooth in (0.5, 0.9, 0.99):
                model = CorrectAndSmooth(50, correct, 50, smooth, autoscale=True)
                soft = model.correct(outputs.softmax(dim=1), known, task.train, edges)
                settings = {"correction_alpha": correct, "smoothing_alpha": smooth}
                yield settings, model.smooth(soft, known, task.train, edges)

    found, settings = _validated(task, tried())
    return found, {**about, **settings}
