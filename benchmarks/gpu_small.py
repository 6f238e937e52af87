r"""Sections ``small`` and ``training`` of ``benchmarks/gpu_layers.py``: graphs so small that the host decides."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import common
import torch
from gpu_timing import CHANNELS, DEVICE, HEADS, copy_bandwidth, edges, kernels, make, normal, step, timed
from torch import Tensor

import phgcn

DIM = 4
SMALL_NODES, SMALL_EDGES, SMALL_WIDTH = 183, 560, 1703


def moved_bytes(model: torch.nn.Module, times: int, *given: Tensor) -> int:
    """The bytes that must move: each parameter so many times, and what is read."""
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return times * parameters + sum(map(stored, given))


def stored(tensor: Tensor) -> int:
    """The bytes of a tensor, dense or sparse."""
    if tensor.layout == torch.strided:
        return tensor.numel() * tensor.element_size()
    parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    return sum(part.numel() * part.element_size() for part in parts)


def captured(job: Callable[[], object]) -> Callable[[], object]:
    """A job as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            job()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()

    def replay(job: Callable[[], object] = job) -> None:  # keeps what the job holds: the graph writes to it
        graph.replay()

    return replay


def small(rounds: int = 50) -> dict:
    x, edge_index = normal(SMALL_NODES, SMALL_WIDTH, seed=1), edges(SMALL_NODES, SMALL_EDGES)
    jobs: dict[str, Callable[[], object]] = {}
    why: dict[str, str] = {}
    for layer in ("GATConv", "EDAConv", "PHGCNConv"):
        job = partial(step, make(layer, SMALL_WIDTH), x, edge_index)
        jobs[layer] = job
        if layer == "GATConv":  # PyG's layer asks the device how many self-loops there are, which cannot be captured
            continue
        compiled = torch.compile(make(layer, SMALL_WIDTH), mode="reduce-overhead")
        jobs[f"{layer}, compiled"] = partial(step, compiled, x, edge_index)
        try:
            jobs[f"{layer}, CUDA graph"] = captured(partial(step, make(layer, SMALL_WIDTH), x, edge_index))
        except Exception as error:  # said, and the others run
            why[layer] = f"{type(error).__name__}: {error}"
    loops = torch.arange(SMALL_NODES, device=DEVICE)
    given = [normal(SMALL_NODES, HEADS, w, seed=w).requires_grad_() for w in (DIM, CHANNELS)]
    looped = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)

    def structural() -> None:
        torch.autograd.grad(phgcn.structural_attention(*given, looped).square().mean(), given)

    jobs["structural attention alone"] = structural
    try:
        jobs["structural attention alone, CUDA graph"] = captured(structural)
    except Exception as error:  # said, and the others run
        why["CUDA graph"] = f"{type(error).__name__}: {error}"
    times = timed(jobs, rounds, warm=5)
    launched = kernels({name: jobs[name] for name in times})
    number = {name: sum(k["launches"] for k in found.values()) for name, found in launched.items()}
    for name, count in number.items():
        print(f"{name}: {count} kernels launched", flush=True)
    floor = moved_bytes(make("PHGCNConv", SMALL_WIDTH), 2, x, x, edge_index) / copy_bandwidth()
    return {"times": times, "launches": number, "kernels": launched, "failed": why, "floor_s": floor}


def training(epochs: int = 40) -> dict:
    """Epochs after the third of each model, recorded as CUDA graphs where they can be, and all of them launched anew."""
    from phgcn.data import load_graph
    from phgcn.nn.models import NodeModel

    models = ("phgcn", "phgcn lattice", "gat-eda", "gat", "gcn", "mlp")
    rule, copied, times, checkpoints, floors = NodeModel.recordable, copy_bandwidth(), {}, {}, {}
    for graph in ("texas", "cora"):
        data = load_graph(graph)
        for name in models:
            for recorded in (True, False):
                NodeModel.recordable = rule if recorded else lambda self, x: False  # type: ignore[method-assign]
                try:
                    used, taken, saving, moved = epoch_times(graph, data, name, epochs)
                finally:
                    NodeModel.recordable = rule  # type: ignore[method-assign]
                if used == recorded:
                    label = f"{graph}, {name}{', CUDA graph' if recorded else ''}"
                    times[label] = {"median": statistics.median(taken), "min": min(taken), "all": taken}
                    checkpoints[label], floors[label] = saving, moved / copied
    return {"times": times, "checkpoint_s": checkpoints, "floor_s": floors}


def epoch_times(graph: str, data: object, model: str, epochs: int) -> tuple[bool, list[float], float, int]:
    """Whether the epochs were recorded, the seconds that each of them took and those of one checkpoint, and the bytes that one
    must move: parameters, read three times and written once, their gradients, written and read, Adam's two numbers, read
    and written, and what is read of the graph."""
    from phgcn.train import Plan, Settings
    from phgcn.train.run import prepare, seeded, start

    model, *method = model.split()
    options = {"method": method[0]} if method else {}
    plan = Plan(graph, model=model, splits=1, device="cuda", settings=Settings(epochs=epochs, patience=epochs, **options))
    task = prepare(plan, data)[0]
    with seeded(common.SEED, task):
        run = start(plan, task)
        while not run.done:
            run.epoch()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for number in range(5):
            run.save(Path(folder) / f"{number}.safetensors")
        saving = (time.perf_counter() - begin) / 5
    moved = moved_bytes(run.model, 10, *3 * [task.x], *2 * [task.edge_index])
    return run.recorded, [row[3] for row in run.state.curves[3:]], saving, moved
