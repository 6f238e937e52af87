r"""How fast the layers are, side by side with PyG's GATConv: a training step (forward, loss,
backward), 8 heads x 8 channels.

Layers run in turn, round after round, so that what else the machine does hits all alike; ratios are
those of medians.  Memory is measured in new processes.  Pubmed is read from
``$PHGCN_DATA/pubmed.npz``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import common
import numpy as np
import torch
from registry import measurement
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import remove_self_loops, to_undirected

from phgcn.nn import EDAConv, PHGCNConv
from phgcn_lab.markdown import machine, mark_table, origin, table
from phgcn_lab.peak import begin_peak, peak_bytes

HEADS = 8
CHANNELS = 8
WIDTH = 64
"""Normal features of a node, as wide as a hidden layer."""

CLUSTER_WIDTH = 0.1
"""Of clustered features, in spreads of their centres: at its random initialisation the layer then
embeds them in clusters of about 1/decay_global within a spread of about ten times as much."""

LAYERS = {"GATConv": GATConv, "EDAConv": EDAConv, "PHGCNConv": PHGCNConv}


@dataclass(frozen=True)
class Sizes:
    """How large the random graph is."""

    nodes: int = 200_000
    edges: int = 2_000_000


QUICK = Sizes(nodes=5_000, edges=50_000)


# Graphs: features and edges


def pubmed() -> tuple[Tensor, Tensor]:
    """Pubmed's features, dense, and its edges in both directions, without loops."""
    file = np.load(Path(os.environ.get("PHGCN_DATA", "data")) / "pubmed.npz")
    rows, width = file["features_shape"]
    x = np.zeros((rows, width), np.float32)
    x[np.repeat(np.arange(rows), np.diff(file["features_indptr"])), file["features_indices"]] = (
        file["features_data"]
    )
    edge_index = to_undirected(
        torch.from_numpy(file["edges"]).t().contiguous(), num_nodes=int(rows)
    )
    return torch.from_numpy(x), remove_self_loops(edge_index)[0]


def random_graph(sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Random normal features, random edges."""
    random = torch.Generator().manual_seed(common.SEED)
    x = torch.randn(sizes.nodes, WIDTH, generator=random)
    return x, torch.randint(0, sizes.nodes, (2, sizes.edges), generator=random)


def clustered(like: Tensor) -> Tensor:
    """Features in clusters."""
    random = torch.Generator().manual_seed(common.SEED)
    centres = torch.randn(common.CLUSTERS, like.size(1), generator=random)
    label = torch.randint(common.CLUSTERS, (len(like),), generator=random)
    return centres[label] + CLUSTER_WIDTH * torch.randn(like.shape, generator=random)


# Jobs


def make(layer: str, x: Tensor) -> torch.nn.Module:
    torch.manual_seed(common.SEED)
    return LAYERS[layer](x.size(1), CHANNELS, heads=HEADS)


def step(conv: torch.nn.Module, x: Tensor, edge_index: Tensor) -> None:
    conv.zero_grad()
    conv(x, edge_index).square().mean().backward()


def jobs(sizes: Sizes) -> tuple[dict[str, Callable], dict[str, Callable]]:
    """Those of pubmed's size, and those of the random graph."""
    small, large = pubmed(), random_graph(sizes)
    random = torch.Generator().manual_seed(common.SEED)
    normal = torch.randn(len(small[0]), WIDTH, generator=random), small[1]
    clusters = clustered(large[0]), large[1]
    of_small = {
        f"{layer}, pubmed": partial(step, make(layer, small[0]), *small) for layer in LAYERS
    }
    for layer in ("GATConv", "PHGCNConv"):
        job = partial(step, make(layer, normal[0]), *normal)
        of_small[f"{layer}, pubmed's edges, {WIDTH} normal features"] = job
    of_large = {
        f"{layer}, random graph": partial(step, make(layer, large[0]), *large) for layer in LAYERS
    }
    of_large["PHGCNConv, random graph, clusters"] = partial(
        step, make("PHGCNConv", clusters[0]), *clusters
    )
    return of_small, of_large


def extra_memory(layer: str, sizes: Sizes) -> float:
    """The most memory that a step holds beyond what was there before, in bytes."""
    x, edge_index = random_graph(QUICK)
    step(make(layer, x), x, edge_index)  # loads the kernels
    x, edge_index = random_graph(sizes)
    conv = make(layer, x)
    before = begin_peak("cpu")
    step(conv, x, edge_index)
    return float(peak_bytes("cpu") - before)


# Where the time of a step goes


def stages(job: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of one step by op of torch, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        job()
    entries = profile.key_averages()
    taken = {
        entry.key: entry.self_cpu_time_total / 1000
        for entry in entries
        if not entry.key.startswith("autograd::")
    }
    return {
        name: round(ms, 2)
        for name, ms in sorted(taken.items(), key=lambda item: -item[1])
        if ms >= 0.05
    }


# Ratios and their marks


def base_of(graph: str) -> str:
    """Returns the graph on which GATConv is compared: clusters do not change its time."""
    return graph.removesuffix(", clusters")


def marks(times: dict[str, dict], peaks: dict[str, float]) -> list[dict]:
    """Compares every ratio with the mark it should reach."""
    rows: list[dict] = []

    def add(text: str, value: float, mark: float, at_least: bool = False) -> None:
        reached = value >= mark if at_least else value <= mark
        rows.append(
            {
                "what": text,
                "value": value,
                "mark": mark,
                "at_least": at_least,
                "unit": "x",
                "reached": reached,
            }
        )

    def ratio(over: str, under: str) -> float:
        return times[over]["median"] / times[under]["median"]

    for graph in ("pubmed", "random graph"):
        add(
            f"EDAConv faster than GATConv, {graph}",
            ratio(f"GATConv, {graph}", f"EDAConv, {graph}"),
            3.0,
            at_least=True,
        )
    for job, mark in (
        ("pubmed", 6.0),
        (f"pubmed's edges, {WIDTH} normal features", 6.0),
        ("random graph", 5.0),
        ("random graph, clusters", 2.0),
    ):
        add(
            f"PHGCNConv / GATConv, {job}",
            ratio(f"PHGCNConv, {job}", f"GATConv, {base_of(job)}"),
            mark,
        )
    add("peak memory of EDAConv / GATConv, random graph", peaks["EDAConv"] / peaks["GATConv"], 0.5)
    return rows


def layer_table(layers: dict) -> list[str]:
    at, seconds = layers["provenance"], {name: t["median"] for name, t in layers["times"].items()}

    def row(name: str) -> list[str]:
        layer, graph = name.split(", ", 1)
        base = seconds[f"GATConv, {base_of(graph)}"]
        return [f"`{layer}`", graph, f"{1000 * seconds[name]:.0f}", f"{seconds[name] / base:.2f}x"]

    return [
        f"{at['cores']} cores ({machine(at)}), {origin(layers)}, median of a training step, "
        f"{layers['heads']} heads x "
        f"{layers['channels']} channels:",
        "",
        *table(["layer", "graph", "ms", "/ GATConv"], [row(name) for name in seconds]),
    ]


def layer_marks(layers: dict) -> list[str]:
    parts = layers["stages_ms"]["EDAConv, pubmed"]
    rows = [[f"`{name.strip()}`", f"{value:.1f}"] for name, value in parts.items() if value >= 0.5]
    return [
        *mark_table(layers["marks"]),
        "",
        "One step of EDAConv on pubmed by op (profiled, so a little slower; kernels are within "
        "`phgcn::structural` and its "
        "backward):",
        "",
        *table(["op", "ms"], rows),
    ]


@measurement(
    tables=lambda content: [*layer_table(content), "", *layer_marks(content)],
    quick="a small graph and two rounds; the marks mean nothing then",
    rounds={"type": int, "default": 7, "help": "how often each job runs (default: 7)"},
    large_rounds={"type": int, "default": 3, "help": "and on the random graph (default: 3)"},
)
def layers(options: argparse.Namespace) -> dict:
    """Training steps of PHGCNConv and EDAConv beside GATConv's, with memory."""
    sizes, rounds, large_rounds = Sizes(), options.rounds, options.large_rounds
    if options.quick:
        sizes, rounds, large_rounds = QUICK, 2, 2
    peaks = {}
    for layer in LAYERS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            peaks[layer] = pool.submit(extra_memory, layer, sizes).result()
    small, large = jobs(sizes)
    times = common.interleaved(small, rounds) | common.interleaved(large, large_rounds)
    content = {"rounds": rounds, "large_rounds": large_rounds, "sizes": asdict(sizes)}
    content |= {"heads": HEADS, "channels": CHANNELS, "width": WIDTH}
    content |= {"marks": marks(times, peaks), "times": times, "peak_bytes": peaks}
    return {**content, "stages_ms": {name: stages(job) for name, job in (small | large).items()}}
