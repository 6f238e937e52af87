r"""Generated clouds and embeddings of trained networks, that the rivals are measured on."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from phgcn.calls import add_heads, count_heads
from phgcn.data.names import GRAPHS as KNOWN
from phgcn.files import read_tensors, write_tensors
from phgcn.functional import observe_attention

CHANNELS = 4  # Channels of random values, and as many of structured ones
CLUSTERS = 6
SPREADS = {"dense": "spread 1", "sparse": "spread 10", "clusters": "clusters"}
HOSTILE = ("shell", "heavy tail", "copies")
GRAPHS = ("cora", "actor", "pubmed")
EMBEDDING_DIM = 4
WAVE = 3.0  # Length that the argument of the slow waves grows by 1 on


@dataclass(frozen=True)
class Place:
    """A cloud: its name, dimension and number of points; a trained network has its own."""

    cloud: str
    dim: int
    count: int
    channels: int = CHANNELS
    cost: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return f"{self.cloud}, D = {self.dim}, N = {self.count:,}"


def known_places(graphs: Sequence[str]) -> list[Place]:
    return [Place(graph, EMBEDDING_DIM, KNOWN[graph].published.nodes) for graph in graphs]


def make(place: Place, folder: Path, epochs: int = 1) -> tuple[Tensor, Tensor]:
    """Returns points (N, D) and values (N, 2 * channels): random ones, then structured ones.

    Structured values of a generated cloud are slow waves; of a network they are what it attends to.
    """
    random = torch.Generator().manual_seed(1)
    if place.cloud in GRAPHS:
        tensors = _trained(place.cloud, folder, epochs)
        points, structured = tensors["points"], tensors["values"]
    else:
        points = _generate(place)
        directions = normalize(torch.randn(place.dim, place.channels, generator=random), dim=0)
        structured = torch.sin(points @ directions / WAVE)
    noise = torch.randn(len(points), structured.size(1), generator=random)
    return points, torch.cat([noise, structured], dim=1)


def cloud(name: str, count: int, dim: int) -> Tensor:
    random = torch.Generator().manual_seed(0)
    points = torch.randn(count, dim, generator=random)
    if name == "clusters":
        centres = 10 * torch.randn(CLUSTERS, dim, generator=random)
        points += centres[torch.randint(CLUSTERS, (count,), generator=random)]
    else:
        points *= float(name.removeprefix("spread "))
    return points


def _generate(place: Place) -> Tensor:
    if place.cloud in SPREADS:
        return cloud(SPREADS[place.cloud], place.count, place.dim)
    random = torch.Generator().manual_seed(0)
    gaussian = torch.randn(place.count, place.dim, generator=random)
    if place.cloud == "shell":  # a cluster that holds most points, and a shell far around it
        lone = place.count // 10
        return torch.cat([0.2 * gaussian[lone:], 8 * normalize(gaussian[:lone], dim=1)])
    if place.cloud == "heavy tail":
        return gaussian * torch.rand(place.count, 1, generator=random).clamp(min=1e-3).pow(-0.5)
    if place.cloud == "copies":  # each point ten times
        return gaussian[: -(-place.count // 10)].repeat(10, 1)[: place.count]
    allowed = ", ".join((*SPREADS, *HOSTILE, *GRAPHS))
    raise ValueError(f"cloud is {place.cloud!r}; allowed: {allowed}")


def embedding_file(folder: Path, graph: str) -> Path:
    return folder / "embeddings" / f"{graph}.safetensors"


def _trained(graph: str, folder: Path, epochs: int) -> dict[str, Tensor]:
    """Trains ``phgcn`` once; returns scaled positions and values of its first head."""
    path = embedding_file(folder, graph)
    if not path.is_file():
        positions, values = _trained_head(graph, epochs)
        tensors = {"points": positions, "values": values}
        write_tensors(path, tensors, {"graph": graph, "epochs": epochs})
    tensors, about = read_tensors(path)
    if (made := about["epochs"]) != epochs:
        raise ValueError(
            f"{path} was made with {made} epochs; allowed: {epochs}, or another folder"
        )
    return tensors


def _trained_head(graph: str, epochs: int) -> tuple[Tensor, Tensor]:
    from phgcn.train import Plan, Run, find, resolve
    from phgcn.train.prediction import choose_trial, trial_model

    source, data = find(graph)
    settings = resolve("phgcn", graph, changes=[f"epochs={epochs}"]).settings
    plan = Plan(source, model="phgcn", splits=1, settings=settings)
    with tempfile.TemporaryDirectory() as work:
        run = Run.create(Path(work) / "run", plan, data)
        run.train(data)
        with observe_attention() as calls:
            trial_model(run, choose_trial(run), data).logits()
    heads = count_heads(calls[0].positions, calls[0].values)
    decay = torch.as_tensor(calls[0].decay).expand(heads)[0]
    positions = add_heads(calls[0].positions, heads)[:, 0] * decay
    values = add_heads(calls[0].values, heads)[:, 0, :CHANNELS]
    return positions.float().contiguous(), values.float().contiguous()
