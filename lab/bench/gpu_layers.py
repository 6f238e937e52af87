r"""Layers, whole networks and exact attention on a GPU, side by side with PyG's layers.

Times are medians between CUDA events, jobs in turn, round after round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial

import common
import torch
import torch.nn.functional as F
from gpu_common import DEVICE, milliseconds, peak, timed
from registry import measurement
from torch import Tensor
from torch_geometric.nn import GATConv

import phgcn
from phgcn.exact.reference import exact_sum
from phgcn.nn import GCN, PHGCN, EDAConv, PHGCNConv
from phgcn_lab.markdown import origin, table

HEADS, CHANNELS, WIDTH = 8, 8, 64
CLUSTER_WIDTH = 0.1
"""Of clustered features, in spreads of their centres, as in ``lab/bench layers``."""
LAYERS: dict[str, Callable[..., torch.nn.Module]] = {
    "GATConv": GATConv,
    "EDAConv": EDAConv,
    "PHGCNConv": PHGCNConv,
    "PHGCNConv, clusters": PHGCNConv,
}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def clustered(nodes: int) -> Tensor:
    random = torch.Generator().manual_seed(2)
    label = torch.randint(common.CLUSTERS, (nodes,), generator=random).to(DEVICE)
    centres = normal(common.CLUSTERS, WIDTH, seed=3)
    return centres[label] + CLUSTER_WIDTH * normal(nodes, WIDTH, seed=4)


# Layers


def step(conv: torch.nn.Module, x: Tensor, edge_index: Tensor) -> None:
    conv.zero_grad()
    conv(x, edge_index).square().mean().backward()


def layer_table(measured: dict) -> list[str]:
    gat = measured["times"]["GATConv"]["median"]
    rows = [
        [
            name,
            f"{1000 * t['median']:.0f}",
            f"{t['median'] / gat:.2f}x",
            f"{measured['memory'][name] / 1e9:.1f}",
        ]
        for name, t in measured["times"].items()
    ]
    return [
        f"A training step, 1,000,000 nodes, 10,000,000 edges, 8 heads of 8 channels "
        f"({origin(measured)}):",
        "",
        *table(["layer", "ms", "/ GATConv", "peak, GB"], rows),
    ]


@measurement(tables=layer_table, quick="a small graph; runs on the CPU too", needs_gpu=True)
def gpu_layers(options: argparse.Namespace) -> dict:
    """A training step of each layer beside GATConv, on a million nodes and ten million edges."""
    nodes, edges = (2_000, 20_000) if options.quick else (1_000_000, 10_000_000)
    random = torch.Generator().manual_seed(common.SEED)
    edge_index = torch.randint(0, nodes, (2, edges), generator=random).to(DEVICE)
    features = {"": normal(nodes, WIDTH, seed=1), "clusters": clustered(nodes)}
    jobs = {}
    for name, layer in LAYERS.items():
        torch.manual_seed(common.SEED)
        conv = layer(WIDTH, CHANNELS, heads=HEADS).to(DEVICE)
        jobs[name] = partial(step, conv, features[name.partition(", ")[2]], edge_index)
    times = timed(jobs, 2 if options.quick else 10)
    memory = {name: peak(jobs[name]) for name in times}
    return {"nodes": nodes, "edges": edges, "times": times, "memory": memory}


# Networks of the size of ogbn-products

NODES, EDGES, FEATURES, CLASSES = 2_449_029, 123_718_280, 100, 47
"""Of ogbn-products; every undirected edge counts twice."""
SHAPE = {"layers": 3, "heads": 4, "channels": 16}
MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "GCN": GCN,
    "PHGCN, decay 10": partial(PHGCN, decay_global=10.0),
    "PHGCN, decay 1": partial(PHGCN, decay_global=1.0),
}


def network_row(name: str, graph: tuple[Tensor, Tensor, Tensor], rounds: int) -> dict:
    """Seconds of the steps of a network, and the peak of the memory with its input."""
    x, edge_index, labels = graph
    torch.manual_seed(common.SEED)
    sizes = {"num_layers": SHAPE["layers"], "heads": SHAPE["heads"]}
    model = MODELS[name](FEATURES, SHAPE["channels"], CLASSES, **sizes).to(DEVICE)

    def train() -> None:
        model.zero_grad()
        F.cross_entropy(model(x, edge_index), labels).backward()

    try:
        most = peak(train)
        seconds = [ms / 1000 for ms in milliseconds(train, rounds)]
    except torch.OutOfMemoryError as error:
        return {"model": name, "error": str(error).splitlines()[0]}
    held = sum(tensor.numel() * tensor.element_size() for tensor in graph)
    return {"model": name, "seconds": seconds, "peak": most + held}


def product_table(measured: dict) -> list[str]:
    seconds = {
        r["model"]: statistics.median(r["seconds"]) for r in measured["rows"] if "seconds" in r
    }
    rows = []
    for r in measured["rows"]:
        taken = seconds.get(r["model"])
        ratio = "" if taken is None else f"{taken / seconds['GCN']:.2f}x"
        cells = ["does not fit", "", ""]
        if taken is not None:
            cells = [f"{1000 * taken:,.0f}", ratio, f"{r['peak'] / 1e9:.0f}"]
        rows.append([r["model"], *cells])
    shape = f"{measured['layers']} layers of {measured['heads']} x {measured['channels']} channels"
    return [
        f"A training step, {measured['nodes']:,} nodes, {measured['edges']:,} directed edges, "
        f"{shape} ({origin(measured)}):",
        "",
        *table(["model", "ms", "/ GCN", "peak, GB"], rows),
    ]


@measurement(tables=product_table, quick="a small graph; runs on the CPU too", needs_gpu=True)
def products(options: argparse.Namespace) -> Iterator[dict]:
    """A training step at the size of ogbn-products: PH-GCN beside PyG's GCN of the same width."""
    nodes, edges = (1_000, 5_000) if options.quick else (NODES, EDGES)
    random = torch.Generator(DEVICE).manual_seed(common.SEED)
    x = torch.randn(nodes, FEATURES, generator=random, device=DEVICE)
    edge_index = torch.randint(nodes, (2, edges), generator=random, device=DEVICE)
    graph = x, edge_index, torch.randint(CLASSES, (nodes,), generator=random, device=DEVICE)
    rows = []
    for name in MODELS:
        rows.append(network_row(name, graph, 5))
        yield {"nodes": nodes, "edges": edges, **SHAPE, "rows": rows}


# Exact attention


@measurement(quick="few points; runs on the CPU too", needs_gpu=True)
def gpu_exact(options: argparse.Namespace) -> dict:
    """Exact attention of 100,000 points: time forward and backward, and the error of 500 rows."""
    count, dim, channels = (1_000 if options.quick else 100_000), 4, 64
    points, values = normal(count, dim, seed=dim), normal(count, channels, seed=channels)
    leaves = [points.clone().requires_grad_(), values.clone().requires_grad_()]

    def forward() -> Tensor:
        return phgcn.global_attention(*leaves, decay=1.0, method="exact")

    def both() -> None:
        out = forward()
        torch.autograd.grad(out, leaves, torch.ones_like(out))

    rows = torch.cat([values, torch.ones_like(values[:, :1])], dim=1).double()
    want = exact_sum(points[:500].double(), points.double(), rows)
    want = want[:, :-1] / want[:, -1:]
    error = float((forward()[:500].double() - want).norm() / want.norm())
    times = timed({"forward": forward, "forward and backward": both}, 20)
    return {"count": count, "times": times, "error": error, "mark_ms": 15.0}
