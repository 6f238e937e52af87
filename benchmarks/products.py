r"""A training step at the size of ogbn-products on one GPU: PH-GCN beside PyG's GCN of the same width, time and memory.

    python benchmarks/products.py                                     # 2,449,029 nodes, 123.7 million directed edges
    python benchmarks/products.py --nodes 100000 --edges 5000000      # smaller

The graph is generated: random edges, normal features.  So the embeddings of PH-GCN are at random initialisation a sparse cloud
with decay 10, the paper's and the default, and a dense one with decay 1.  A step is forward, loss and backward; medians between
CUDA events, models one after the other, so that the peak of the memory is one model's, its input included.
Writes ``benchmarks/results/products.json``; a model that does not fit is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import common
import torch
import torch.nn.functional as F
from gpu_timing import DEVICE, profiled, timed
from torch import Tensor

from phgcn.nn import GCN, PHGCN

NODES, EDGES, FEATURES, CLASSES = 2_449_029, 123_718_280, 100, 47
"""Of ogbn-products; every undirected edge counts twice."""

HEADS, CHANNELS, LAYERS = 4, 16, 3
ROUNDS = 5
MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "GCN": GCN,
    "PHGCN, decay 10": partial(PHGCN, decay_global=10.0),
    "PHGCN, decay 1": partial(PHGCN, decay_global=1.0),
}


def make_graph(nodes: int, edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """Makes features, edges and labels on the device."""
    random = torch.Generator(DEVICE).manual_seed(common.SEED)
    x = torch.randn(nodes, FEATURES, generator=random, device=DEVICE)
    edge_index = torch.randint(nodes, (2, edges), generator=random, device=DEVICE)
    return x, edge_index, torch.randint(CLASSES, (nodes,), generator=random, device=DEVICE)


def step(model: torch.nn.Module, x: Tensor, edge_index: Tensor, labels: Tensor) -> None:
    model.zero_grad()
    F.cross_entropy(model(x, edge_index), labels).backward()


def measure(name: str, graph: tuple[Tensor, Tensor, Tensor], rounds: int) -> dict:
    """Times the steps of a model; returns the seconds, the peak of the memory in bytes, and the time of each kernel."""
    torch.manual_seed(common.SEED)
    model = MODELS[name](FEATURES, CHANNELS, CLASSES, num_layers=LAYERS, heads=HEADS).to(DEVICE)
    job = partial(step, model, *graph)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    times = timed({name: job}, rounds)
    if name not in times:
        return {"model": name, "error": "does not run: see the output"}
    row = {"model": name, "seconds": times[name]["all"], "peak": torch.cuda.max_memory_allocated()}
    return row | {"kernels": dict(list(profiled(job).items())[:12])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--edges", type=int, default=EDGES, help="directed ones")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"steps that are timed (default: {ROUNDS})")
    parser.add_argument("--out", default=common.RESULTS / "products.json", help="where the JSON goes")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: this benchmark measures one")
    sizes = {"nodes": options.nodes, "edges": options.edges, "layers": LAYERS, "heads": HEADS, "channels": CHANNELS}
    content = {"provenance": common.provenance(), **sizes, "rows": []}
    graph = make_graph(options.nodes, options.edges)
    for name in options.models:
        row = measure(name, graph, options.rounds)
        content["rows"].append(row)
        common.write_json(options.out, content)
        if "seconds" in row:
            print(
                f"{name}: {1000 * sorted(row['seconds'])[len(row['seconds']) // 2]:.0f} ms, {row['peak'] / 1e9:.1f} GB",
                flush=True,
            )
            for kernel, entry in row["kernels"].items():
                print(f"    {entry['ms']:8.1f} ms  {entry['launches']:4d} x  {kernel}", flush=True)


if __name__ == "__main__":
    main()
