r"""What ``benchmarks/gpu_layers.py`` measures with: events, profiles, and graphs and layers to measure."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import common
import torch
from torch import Tensor

HEADS = 8
CHANNELS = 8
WIDTH = 64
CLUSTER_WIDTH = 0.1
"""Of clustered features, in spreads of their centres, as in ``benchmarks/layers.py``."""

DEVICE = torch.device("cuda")
Times = dict[str, dict]


def once(job: Callable[[], object]) -> float:
    """Seconds between events before and after a job."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    own = job()
    end.record()
    end.synchronize()
    return own if isinstance(own, float) else begin.elapsed_time(end) / 1000


def timed(jobs: dict[str, Callable[[], object]], rounds: int, warm: int = 2) -> Times:
    """Runs all jobs in turn, round after round; a job that returns a float has timed itself.  What fails is left out."""
    alive = dict(jobs)
    for name, job in jobs.items():
        try:
            for _ in range(warm):
                once(job)
        except Exception as error:  # a tile too large for shared memory, or out of memory: said, and the others run
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            del alive[name]
    times: dict[str, list[float]] = {name: [] for name in alive}
    for _ in range(rounds):
        for name, job in alive.items():
            times[name].append(once(job))
    return {name: {"median": statistics.median(t), "min": min(t), "all": t} for name, t in times.items()}


def backward_only(forward: Callable[[], Tensor], leaves: list[Tensor]) -> float:
    """The gradient alone; the forward before it is not timed."""
    out = forward()
    grad = torch.ones_like(out)
    return once(lambda: torch.autograd.grad(out, leaves, grad))


def copy_bandwidth() -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.empty(2**29, device=DEVICE)
    target = torch.empty_like(source)
    taken = timed({"copy": lambda: target.copy_(source)}, 10)["copy"]["median"]
    return 2 * source.numel() * source.element_size() / taken


def kernels(jobs: dict[str, Callable[[], object]]) -> dict[str, dict[str, dict]]:
    """Milliseconds on the device and launches by kernel, of one run of each job.  A job that cannot be profiled is said."""
    found: dict[str, dict[str, dict]] = {}
    for name, job in jobs.items():
        try:
            found[name] = profiled(job)
        except Exception as error:  # the times that were measured before must not be lost
            print(f"profile of {name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
    return found


def profiled(job: Callable[[], object]) -> dict[str, dict]:
    from torch.profiler import ProfilerActivity, profile

    job()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        job()
        torch.cuda.synchronize()
    found: dict[str, dict] = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            entry = found.setdefault(event.name[:90], {"ms": 0.0, "launches": 0})
            entry["ms"] += event.device_time_total / 1000
            entry["launches"] += 1
    return dict(sorted(found.items(), key=lambda item: -item[1]["ms"]))


# Inputs


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype).to(DEVICE)


def edges(nodes: int, count: int, seed: int = common.SEED) -> Tensor:
    return torch.randint(0, nodes, (2, count), generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def clustered(nodes: int) -> Tensor:
    """Features in clusters."""
    label = torch.randint(common.CLUSTERS, (nodes,), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    return normal(common.CLUSTERS, WIDTH, seed=3)[label] + CLUSTER_WIDTH * normal(nodes, WIDTH, seed=4)


def make(layer: str, width: int) -> torch.nn.Module:
    from torch_geometric.nn import GATConv

    from phgcn.nn import EDAConv, PHGCNConv

    torch.manual_seed(common.SEED)
    return {"GATConv": GATConv, "EDAConv": EDAConv, "PHGCNConv": PHGCNConv}[layer](width, CHANNELS, heads=HEADS).to(DEVICE)


def step(conv: torch.nn.Module, x: Tensor, edge_index: Tensor) -> None:
    conv.zero_grad()
    conv(x, edge_index).square().mean().backward()
