r"""How fast the layers are, side by side with PyG's GATConv: a training step (forward, loss, backward), 8 heads x 8 channels.

    python benchmarks/layers.py             # some minutes
    python benchmarks/layers.py --quick     # a small random graph and two rounds, to see that it works

Prints every time, every ratio beside the mark it should reach, and where the time of a step goes; writes
``benchmarks/results/layers.json``.  Layers run in turn, round after round, so that what else the machine does hits all alike;
ratios are those of medians.  Memory is measured in new processes.  Pubmed is read from ``$PHGCN_DATA/pubmed.npz``.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import common
import numpy as np
import torch
from lattice import in_new_process, memory, reset_peak
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import remove_self_loops, to_undirected

from phgcn.nn import EDAConv, PHGCNConv

HEADS = 8
CHANNELS = 8
WIDTH = 64
"""The number of features of the random graph's nodes, as wide as a hidden layer."""

CLUSTER_WIDTH = 0.1
"""Of clustered features, in spreads of their centres: at its random initialisation the layer then embeds them in clusters of
about 1/decay_global within a spread of about ten times as much."""

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
    x[np.repeat(np.arange(rows), np.diff(file["features_indptr"])), file["features_indices"]] = file["features_data"]
    edge_index = to_undirected(torch.from_numpy(file["edges"]).t().contiguous(), num_nodes=int(rows))
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
    normal = torch.randn(small[0].shape, generator=torch.Generator().manual_seed(common.SEED)), small[1]
    clusters = clustered(large[0]), large[1]
    of_small = {f"{layer}, pubmed": partial(step, make(layer, small[0]), *small) for layer in LAYERS}
    of_small["PHGCNConv, pubmed, normal features"] = partial(step, make("PHGCNConv", normal[0]), *normal)
    of_large = {f"{layer}, random graph": partial(step, make(layer, large[0]), *large) for layer in LAYERS}
    of_large["PHGCNConv, random graph, clusters"] = partial(step, make("PHGCNConv", clusters[0]), *clusters)
    return of_small, of_large


def extra_memory(layer: str, sizes: Sizes) -> float:
    """The most memory that a step holds beyond what was there before, in bytes."""
    x, edge_index = random_graph(QUICK)
    step(make(layer, x), x, edge_index)  # loads the kernels
    x, edge_index = random_graph(sizes)
    conv = make(layer, x)
    gc.collect()
    reset_peak()
    before = memory("VmRSS")
    step(conv, x, edge_index)
    return float(memory("VmHWM") - before)


# Where the time of a step goes


def stages(job: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of one step by op of torch, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        job()
    entries = profile.key_averages()
    taken = {entry.key: entry.self_cpu_time_total / 1000 for entry in entries if not entry.key.startswith("autograd::")}
    return {name: round(ms, 2) for name, ms in sorted(taken.items(), key=lambda item: -item[1]) if ms >= 0.05}


# Ratios and their marks


def marks(times: dict[str, dict], peaks: dict[str, float]) -> list[dict]:
    """Compares every ratio with the mark it should reach."""
    rows: list[dict] = []

    def add(text: str, value: float, mark: float, at_least: bool = False) -> None:
        reached = value >= mark if at_least else value <= mark
        rows.append({"what": text, "value": value, "mark": mark, "at_least": at_least, "unit": "x", "reached": reached})

    def ratio(over: str, under: str) -> float:
        return times[over]["median"] / times[under]["median"]

    for graph in ("pubmed", "random graph"):
        add(f"EDAConv faster than GATConv, {graph}", ratio(f"GATConv, {graph}", f"EDAConv, {graph}"), 3.0, at_least=True)
    for job, mark in (
        ("pubmed", 5.0), ("pubmed, normal features", 20.0), ("random graph", 5.0), ("random graph, clusters", 2.0)
    ):  # fmt: skip
        add(f"PHGCNConv / GATConv, {job}", ratio(f"PHGCNConv, {job}", f"GATConv, {job.split(',')[0]}"), mark)
    add("peak memory of EDAConv / GATConv, random graph", peaks["EDAConv"] / peaks["GATConv"], 0.5)
    return rows


def report(console: Console, times: dict[str, dict], peaks: dict[str, float], ratios: list[dict], parts: dict) -> None:
    caption = "; ".join(f"peak memory of {layer}: {peak / 2**20:.0f} MiB" for layer, peak in peaks.items())
    common.print_times(console, f"A training step, {HEADS} heads x {CHANNELS} channels, float32", times, caption)
    common.print_marks(console, ratios)
    for job, taken in parts.items():
        table = Table(title=f"Where the time goes: {job}")
        table.add_column("op")
        table.add_column("ms", justify="right")
        for op, ms in list(taken.items())[:14]:
            table.add_row(op, f"{ms:.1f}")
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small graph and few rounds; the marks mean nothing then")
    parser.add_argument("--rounds", type=int, default=None, help="how often each job runs (default: 7, quick: 2)")
    parser.add_argument("--large-rounds", type=int, default=None, help="and those of the random graph (default: 3, quick: 2)")
    parser.add_argument("--out", default=common.RESULTS / "layers.json", help="where the JSON goes")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    rounds = options.rounds or (2 if options.quick else 7)
    large_rounds = options.large_rounds or (2 if options.quick else 3)
    console = common.wide_console()
    begin = time.perf_counter()
    with console.status("memory, in new processes") as status:
        peaks = {layer: in_new_process(extra_memory, layer, sizes) for layer in LAYERS}
        small, large = jobs(sizes)
        times = common.interleaved(small, rounds, status.update)
        times |= common.interleaved(large, large_rounds, status.update)
        status.update("stages")
        parts = {name: stages(job) for name, job in (small | large).items()}
    ratios = marks(times, peaks)
    report(console, times, peaks, ratios, parts)
    content = {"provenance": common.provenance(), "quick": options.quick, "rounds": rounds, "large_rounds": large_rounds}
    content |= {"sizes": asdict(sizes), "heads": HEADS, "channels": CHANNELS, "width": WIDTH}
    common.write_json(options.out, {**content, "marks": ratios, "times": times, "peak_bytes": peaks, "stages_ms": parts})
    reached = sum(m["reached"] for m in ratios)
    console.print(f"{reached} of {len(ratios)} marks reached, in {time.perf_counter() - begin:.0f} s; written to {options.out}")


if __name__ == "__main__":
    main()
