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
from common import DEVICE, milliseconds
from layers import LAYERS, Sizes, clustered, make, random_graph, step
from registry import measurement
from torch import Tensor

import phgcn
from phgcn.exact.reference import exact_sum
from phgcn.nn import GCN, PHGCN
from phgcn_lab.markdown import origin, table


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def timed(jobs: dict[str, Callable[[], object]]) -> dict[str, Callable[[], float]]:
    return {name: partial(common.device_seconds, job) for name, job in jobs.items()}


# Layers

CLUSTERS = "PHGCNConv, clusters"


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
    x, edge_index = (tensor.to(DEVICE) for tensor in random_graph(Sizes(nodes, edges)))
    features = dict.fromkeys(LAYERS, x) | {CLUSTERS: clustered(x.cpu()).to(DEVICE)}
    steps = {}
    for name, given in features.items():
        conv = make(name.split(",")[0], x).to(DEVICE)
        steps[name] = partial(step, conv, given, edge_index)
    jobs, missing = common.that_run(timed(steps))
    times = common.interleaved(jobs, 2 if options.quick else 10)
    memory = {name: common.peak(steps[name], str(DEVICE)) for name in jobs}
    about = {"nodes": nodes, "edges": edges, "missing": missing}
    return {**about, "times": times, "memory": memory}


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
    x, edge_index, labels = graph
    torch.manual_seed(common.SEED)
    sizes = {"num_layers": SHAPE["layers"], "heads": SHAPE["heads"]}
    model = MODELS[name](FEATURES, SHAPE["channels"], CLASSES, **sizes).to(DEVICE)

    def train() -> None:
        model.zero_grad()
        F.cross_entropy(model(x, edge_index), labels).backward()

    try:
        most = common.peak(train, str(DEVICE))
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
    times = common.interleaved(timed({"forward": forward, "forward and backward": both}), 20)
    return {"count": count, "times": times, "error": error, "mark_ms": 15.0}
