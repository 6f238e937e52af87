r"""Generated tasks that need information from far away: the paper's motifs, Tree-NeighborsMatch,
and the ring transfer.

A network is trained on a fresh batch of random graphs in every step, and tested on fresh ones.

- ``motif``: is the motif of a red node the frequent one in its chain
  (:mod:`phgcn_lab.motif_graphs`)?  Three layers never leave the motif.
- ``tree``: Tree-NeighborsMatch of `"On the Bottleneck of Graph Neural Networks and its Practical
  Implications" <https://arxiv.org/abs/2006.05205>`_: each leaf of a binary tree has a key and a
  value, the root a key: which value has the leaf with that key?  Edges lead from children to
  parents, and one layer more than the tree is deep reaches the root, but all leaves must pass
  through two nodes.
- ``ring``: ring transfer of `"Weisfeiler and Lehman Go Cellular"
  <https://arxiv.org/abs/2106.12575>`_: a node must tell the label of the node on the other side of
  the ring.  Two layers see two steps far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from ..experiment import TimeUp
from ..motif_graphs import COLOURS, motif_graphs

TEST_BATCHES = 10
RING_CLASSES = 5
HIDDEN = 64


class Batch(NamedTuple):
    """Features (N, F), edges (2, E), graphs (N,), nodes that are asked (Q,), answers (Q,)."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    asked: Tensor
    y: Tensor


class GeneratedTask(NamedTuple):
    levels: tuple[int, ...]  # elements of the chain, depths of the tree, nodes of the ring
    text: str  # how tables say a level
    layers: Callable[[int], int]  # of the network for a level
    channels: Callable[[int], tuple[int, int]]  # features and classes for a level
    graphs: int  # of a batch
    steps: int  # batches to train on
    # Makes a batch of a level, of so many graphs, from a seed, on a device.
    draw: Callable[[int, int, int, str], Batch]
    # Trees need "batch": with layer norms the training loss of depth 4 stays at chance.
    norm: str = "layer"
    learning_rate: float = 3e-3  # Adam's in the beginning


def draw_motif(elements: int, graphs: int, seed: int, device: str = "cpu") -> Batch:
    data = motif_graphs(graphs, elements, "colour", seed).to(device)
    return Batch(data.x, data.edge_index, data.batch, data.asked, data.y[data.asked])


def draw_tree(depth: int, graphs: int, seed: int, device: str = "cpu") -> Batch:
    """Leaves have one-hot keys and values; the root has the key that is asked."""
    random = torch.Generator().manual_seed(seed)
    nodes, leaves = 2 ** (depth + 1) - 1, 2**depth
    keys, values = (
        torch.rand(graphs, leaves, generator=random).argsort(dim=1).to(device) for _ in range(2)
    )
    # the index of the leaf that matches
    wanted = torch.randint(leaves, (graphs, 1), generator=random).to(device)
    x = torch.zeros(graphs, nodes, 2 * leaves, device=device)
    x[:, nodes - leaves :].scatter_(2, torch.stack([keys, leaves + values], dim=2), 1.0)
    x[:, 0].scatter_(1, keys.gather(1, wanted), 1.0)
    child = torch.arange(1, nodes, device=device)
    edges = torch.stack([child, (child - 1) // 2])
    return _batch_of(x, edges, values.gather(1, wanted).flatten())


def draw_ring(nodes: int, graphs: int, seed: int, device: str = "cpu") -> Batch:
    """The opposite node shows a label; the one that is asked shows nothing, others ones."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(RING_CLASSES, (graphs,), generator=random).to(device)
    x = torch.ones(graphs, nodes, RING_CLASSES, device=device)
    x[:, 0] = 0
    x[:, nodes // 2] = one_hot(y, RING_CLASSES).float()
    here = torch.arange(nodes, device=device)
    there = (here + 1) % nodes
    return _batch_of(x, torch.stack([torch.cat([here, there]), torch.cat([there, here])]), y)


def _batch_of(x: Tensor, edge_index: Tensor, y: Tensor) -> Batch:
    """Joins graphs of one shape (B, N, F), whose first node is asked."""
    graphs, nodes, features = x.shape
    number = torch.arange(graphs, device=x.device)
    offset = nodes * number
    edges = (edge_index[:, None, :] + offset[:, None]).reshape(2, -1)
    return Batch(x.reshape(-1, features), edges, number.repeat_interleave(nodes), offset, y)


TASKS = {
    "motif": GeneratedTask(
        levels=(10,),
        text="{} elements",
        layers=lambda elements: 3,
        channels=lambda elements: (len(COLOURS), 2),
        graphs=16,
        steps=600,
        draw=draw_motif,
    ),
    "tree": GeneratedTask(
        levels=tuple(range(2, 9)),
        text="depth {}",
        layers=lambda depth: depth + 1,
        channels=lambda depth: (2 * 2**depth, 2**depth),
        graphs=64,
        steps=1500,
        draw=draw_tree,
        norm="batch",
    ),
    "ring": GeneratedTask(
        levels=(4, 8, 16, 32),
        text="{} nodes",
        layers=lambda nodes: 2,
        channels=lambda nodes: (RING_CLASSES, RING_CLASSES),
        graphs=64,
        steps=1000,
        draw=draw_ring,
    ),
}
TITLES = {"motif": "motifs", "tree": "Tree-NeighborsMatch", "ring": "ring transfer"}


def build(name: str, level: int, head: Literal["on", "off"]) -> torch.nn.Module:
    from phgcn.nn import GlobalGNN

    task = TASKS[name]
    features, classes = task.channels(level)
    sizes = (features, HIDDEN, classes, task.layers(level))
    settings: dict[str, Any] = {
        "local": "gin",
        "norm": task.norm,
        "dropout": 0.0,
        "global_at": "each",
    }
    return GlobalGNN(*sizes, global_layers=int(head == "on"), **settings)


def train(
    name: str,
    level: int,
    head: Literal["on", "off"],
    number: int,
    steps: int,
    device: str,
    deadline: float,
) -> dict[str, Any]:
    """Trains and tests one network; weights and graphs follow from its number."""
    task, begin = TASKS[name], time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        model = build(name, level, head).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=task.learning_rate)

    def draw(index: int) -> Batch:
        return task.draw(level, task.graphs, 1_000_000 * number + index, device)

    for step in range(steps):
        if time.time() > deadline:
            raise TimeUp
        for group in optimiser.param_groups:
            group["lr"] = task.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
        graphs = draw(step)
        optimiser.zero_grad()
        cross_entropy(_answers(model, graphs), graphs.y).backward()
        optimiser.step()
    test = [draw(steps + index) for index in range(TEST_BATCHES)]
    model.eval()
    with torch.no_grad():
        right = torch.cat([_answers(model, graphs).argmax(dim=1) == graphs.y for graphs in test])
    return {"test": float(right.double().mean()), "seconds": time.perf_counter() - begin}


def _answers(model: torch.nn.Module, graphs: Batch) -> Tensor:
    out: Tensor = model(graphs.x, graphs.edge_index, graphs.batch)
    return out[graphs.asked]
