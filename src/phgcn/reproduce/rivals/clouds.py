r"""Points and values that the rivals are measured on: generated clouds, and the embeddings of trained networks."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...calls import add_heads, count_heads
from ...files import read_tensors, write_tensors
from ...functional import observe_attention
from ..scaling_jobs import cloud as scaling_cloud

CHANNELS = 4
"""Channels of random values, and as many of structured ones."""
SPREADS = {"dense": "spread 1", "sparse": "spread 10", "clusters": "clusters"}
HOSTILE = ("shell", "heavy tail", "copies")
GRAPHS = ("cora", "actor", "pubmed")
WAVE = 3.0
"""Length that the argument of the slow waves grows by 1 on."""


@dataclass(frozen=True)
class Place:
    """A cloud that is measured: its name, dimension and number of points; those of a trained network are its own."""

    cloud: str
    dim: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.cloud}, D = {self.dim}, N = {self.count:,}"


def make(place: Place, folder: Path) -> tuple[Tensor, Tensor]:
    """Returns the points of a place, (N, D), and their values, (N, 2 * CHANNELS): random ones, then structured ones.

    Structured values of a generated cloud are slow waves; of a network they are what it attends to.

    Args:
        place (Place): Which.
        folder (Path): Where :func:`train_embedding` has written the embeddings of networks.
    """
    random = torch.Generator().manual_seed(1)
    if place.cloud in GRAPHS:
        tensors, _ = read_tensors(embedding_file(folder, place.cloud))
        points, structured = tensors["points"], tensors["values"]
    else:
        points = _generate(place)
        directions = torch.nn.functional.normalize(torch.randn(place.dim, CHANNELS, generator=random), dim=0)
        structured = torch.sin(points @ directions / WAVE)
    noise = torch.randn(len(points), CHANNELS, generator=random)
    return points, torch.cat([noise, structured], dim=1)


def _generate(place: Place) -> Tensor:
    if place.cloud in SPREADS:
        return scaling_cloud(SPREADS[place.cloud], place.count, place.dim, "cpu")
    random = torch.Generator().manual_seed(0)
    gaussian = torch.randn(place.count, place.dim, generator=random)
    if place.cloud == "shell":  # a cluster that holds most points, and a shell far around it
        lone = place.count // 10
        return torch.cat([0.2 * gaussian[lone:], 8 * torch.nn.functional.normalize(gaussian[:lone], dim=1)])
    if place.cloud == "heavy tail":
        return gaussian * torch.rand(place.count, 1, generator=random).clamp(min=1e-3).pow(-0.5)
    if place.cloud == "copies":  # each point ten times
        return gaussian[: -(-place.count // 10)].repeat(10, 1)[: place.count]
    raise ValueError(f"cloud is {place.cloud!r}; allowed: {', '.join((*SPREADS, *HOSTILE, *GRAPHS))}")


def embedding_file(folder: Path, graph: str) -> Path:
    return folder / "embeddings" / f"{graph}.safetensors"


def train_embedding(graph: str, folder: Path, epochs: int) -> Place:
    """Trains ``phgcn`` on a graph, unless that is done, and keeps positions and values of the first head of its first layer.

    Positions are in units of 1/decay.
    """
    path = embedding_file(folder, graph)
    if not path.is_file():
        positions, values = _trained_head(graph, epochs)
        write_tensors(path, {"points": positions, "values": values}, {"graph": graph, "epochs": epochs})
    tensors, about = read_tensors(path)
    if about["epochs"] != epochs:
        raise ValueError(f"{path} was made with {about['epochs']} epochs; allowed: {epochs}, or another folder")
    count, dim = tensors["points"].shape
    return Place(graph, dim, count)


def _trained_head(graph: str, epochs: int) -> tuple[Tensor, Tensor]:
    from ...train import Plan, Run, find, resolve
    from ...train.prediction import choose_trial, logits

    source, data = find(graph)
    settings = resolve("phgcn", graph, changes=[f"epochs={epochs}"]).settings
    with tempfile.TemporaryDirectory() as work:
        run = Run.create(Path(work) / "run", Plan(source, model="phgcn", splits=1, settings=settings), data)
        run.train(data)
        with observe_attention() as calls:
            logits(run, choose_trial(run), data)
    heads = count_heads(calls[0].positions, calls[0].values)
    decay = torch.as_tensor(calls[0].decay).expand(heads)[0]
    positions = add_heads(calls[0].positions, heads)[:, 0] * decay
    values = add_heads(calls[0].values, heads)[:, 0, :CHANNELS]
    return positions.float().contiguous(), values.float().contiguous()
