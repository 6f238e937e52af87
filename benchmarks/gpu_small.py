r"""Sections ``small`` and ``training`` of ``benchmarks/gpu_layers.py``: graphs so small that the host decides."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from epochs import time_epochs
from gpu_timing import CHANNELS, DEVICE, HEADS, copy_bandwidth, edges, kernels, make, normal, step, timed
from torch import Tensor

import phgcn
from phgcn.train import Plan, Settings, Training

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


def training(seconds: float = 1.5, rounds: int = 3, device: torch.device = DEVICE) -> dict:
    """Times epochs of every model in runs of ``phgcn train``, checkpoints included: as CUDA graphs where models can be
    recorded, and with every kernel launched by the host.

    Args:
        seconds (float): How long a run is timed; checkpoints are written about once a second. (default: :obj:`1.5`)
        rounds (int): How many runs of each. (default: :obj:`3`)
        device (torch.device): Where; on a CPU to see that it works. (default: the GPU)
    """
    from phgcn.data import load_graph
    from phgcn.nn.models import NodeModel

    models = ("phgcn", "phgcn lattice", "gat-eda", "gat", "gcn", "mlp")
    rule, bandwidth = NodeModel.recordable, copy_bandwidth() if device.type == "cuda" else None
    times, checkpoints, floors = {}, {}, {}
    for graph in ("texas", "cora"):
        data = load_graph(graph, sparse=True)
        for name in models:
            for recorded in (True, False):
                NodeModel.recordable = rule if recorded else lambda self, x: False  # type: ignore[method-assign]
                try:
                    run = partial(time_epochs, training_plan(graph, name, device), data, seconds)
                    first = run()
                    if first.training.recorded != recorded:
                        continue
                    runs = [first, *(run() for _ in range(rounds - 1))]
                finally:
                    NodeModel.recordable = rule  # type: ignore[method-assign]
                label = f"{graph}, {name}{', CUDA graph' if recorded else ''}"
                per_epoch = [measured.seconds for measured in runs]
                times[label] = {"median": statistics.median(per_epoch), "min": min(per_epoch), "all": per_epoch}
                checkpoints[label] = statistics.median(measured.checkpoint_seconds / measured.seconds for measured in runs)
                floors[label] = None if bandwidth is None else epoch_bytes(first.training) / bandwidth
    return {"times": times, "checkpoint_share": checkpoints, "floor_s": floors}


def training_plan(graph: str, model: str, device: torch.device) -> Plan:
    """Returns the plan of an endless training of a model, named with its method if that is not the default."""
    name, *method = model.split()
    options = {"method": method[0]} if method else {}
    settings = Settings(epochs=10**6, patience=10**6, **options)
    return Plan(graph, model=name, splits=1, device=str(device), settings=settings)


def epoch_bytes(training: Training) -> int:
    """Counts the bytes that an epoch must move: parameters, read three times and written once, their gradients, written and
    read, Adam's two moments, read and written, and the graph, read in the forward and backward pass and the evaluation."""
    return moved_bytes(training.model, 10, *3 * [training.task.x], *2 * [training.task.edge_index])
