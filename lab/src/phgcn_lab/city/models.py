r"""Local networks, propagation of labels and attention on the map, for a street network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from phgcn.nn import GlobalGNN, LabelAttention, LabelOutputs
from phgcn.nn.distance_attention import Decay
from phgcn.train.loop import Task, Training
from phgcn.train.prepare import seeded
from phgcn.train.settings import Settings

from ..benchmark.rivals import SGFormer
from ..propagation import propagate
from ..results import Row
from ..trainings import train_to_end
from ..workers import Report

LAYERS = (2, 4, 8, 16)
HIDDEN = 64
HOPS = 8  # Number of hop positions of a node
TRAINING = Settings(
    learning_rate=0.005,
    weight_decay=0.0,
    schedule="cosine",
    warmup=20,
    epochs=300,
    patience=300,
    select="metric",
    clip_norm=1.0,
    evaluate_every=5,
)


class Columns(NamedTuple):
    """The input ends with the coordinates, scaled, and the hop positions."""

    map: slice
    hops: slice


COLUMNS = Columns(slice(-2 - HOPS, -HOPS), slice(-HOPS, None))
SMALLEST = {"map": 1.0, "hops": 0.1}
"""The smallest scale of a head at the start: from streets to quarters."""


class CityNetwork(torch.nn.Module):
    """A local network, attention to labels by distances, or the sum of both.

    ``attend_by`` is ``"map"``, by coordinates, ``"hops"``, by hop positions, or ``""``. With 0
    layers there is no local network; with ``hop_features`` it reads the hop positions.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layers: int,
        attend_by: str,
        hop_features: bool = False,
    ) -> None:
        super().__init__()
        self.hop_features = hop_features
        self.local = None
        if layers:
            size = in_channels - 2 - (0 if hop_features else HOPS)
            self.local = GlobalGNN(
                size, HIDDEN, out_channels, layers, "sage", norm="batch", dropout=0.2
            )
        self.columns, self.attention, self.outputs = slice(0), None, None
        if attend_by:
            self.columns = getattr(COLUMNS, attend_by)
            dims = {"map": 2, "hops": HOPS}[attend_by]
            self.attention = LabelAttention(
                dims, out_channels, 8, dims, key_share=0.6, method="exact"
            )
            self.outputs = LabelOutputs("classification")
            scales = [SMALLEST[attend_by] * 1.5**head for head in range(8)]
            with torch.no_grad():
                axes = torch.cat([scale * torch.eye(dims) for scale in scales])
                self.attention.lin_position.weight.copy_(axes)

    def draw_keys(self, labelled: Tensor) -> Tensor | None:
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
        parts = []
        if self.local is not None:
            features = x[:, : -2 - HOPS]
            if self.hop_features:
                features = torch.cat([features, x[:, COLUMNS.hops] / 4], dim=1)
            parts.append(self.local(features, edge_index))
        if self.attention is not None and self.outputs is not None:
            means = self.attention(x[:, self.columns], y, labelled, keys=keys)
            parts.append(self.outputs(means))
        return torch.stack(parts).sum(dim=0)

    def undecayed_parameters(self) -> Iterator[Parameter]:
        for module in self.modules():
            if isinstance(module, (Decay, LabelOutputs)):
                yield from module.parameters()


class _FeaturesOnly(SGFormer):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = super().forward(x[:, : -2 - HOPS], edge_index)
        return out


def build(name: str, inputs: int, classes: int) -> Any:
    """Builds a network by its name: ``sage-8``, ``map``, ``hops+sage-8``, or ``sage-8 on hops``."""
    if name == "sgformer":
        return _FeaturesOnly(inputs - 2 - HOPS, HIDDEN, classes)
    network, _, on_hops = name.partition(" on ")
    attend_by, _, local = network.rpartition("+") if "sage" in network else (network, "", "")
    layers = int(local.removeprefix("sage-")) if local else 0
    return CityNetwork(inputs, classes, layers, attend_by, bool(on_hops))


LOCAL = tuple(f"sage-{count}" for count in LAYERS)
ATTENTION = ("map", "hops", "map+sage-8", "hops+sage-8")
NETWORKS = (*LOCAL, "sgformer", "sage-8 on hops", *ATTENTION)
SMOOTHED = "sage-8"  # The network whose outputs Correct & Smooth uses: its training makes both rows
MODELS = ("label-propagation", "correct-and-smooth", *NETWORKS)


def train(
    name: str, task: Task, seed: int, epochs: int | None, report: Report
) -> tuple[Tensor, Row]:
    """Returns the scores of classes (N, C), and what is worth knowing."""
    if name == "label-propagation":
        return propagate(task)
    settings = replace(TRAINING, epochs=epochs, warmup=min(20, epochs // 2)) if epochs else TRAINING
    with seeded(seed, task):
        model = build(name, task.x.size(1), task.classes)
        return train_to_end(Training(model, task, settings), report)
