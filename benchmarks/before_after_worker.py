r"""Runs the calls that ``benchmarks/before_after.py`` compares, with the phgcn that ``PYTHONPATH`` names.

Not run by itself: reads cases as lines of JSON, and answers each with its times in milliseconds or with an error.  Uses only
what both trees have.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

DIM, CLUSTERS = 4, 6
HEADS, HEAD_CHANNELS, WIDTH = 8, 8, 64
WARM_UP, WARM_UP_EPOCHS = 10, 5
"""Untimed calls: kernels are compiled, and the GPU's keys find their size; epochs are recorded as CUDA graphs."""

Times = dict[str, list[float]]
"""Milliseconds by the clock, ``"wall"``, and of the processor, ``"cpu"``."""

Timed = Callable[[int], Times]
"""Takes so many measurements."""


def filter_call(device: str, method: str, count: int, cloud: str, channels: int, backward: bool) -> Timed:
    """Global attention of a cloud to itself: ``"spread s"``, a Gaussian, or ``"clusters"``, as in ``benchmarks/common.py``."""
    import phgcn

    random = torch.Generator(device).manual_seed(0)
    points = torch.randn(count, DIM, generator=random, device=device)
    if cloud == "clusters":
        centres = 10 * torch.randn(CLUSTERS, DIM, generator=random, device=device)
        points += centres[torch.randint(CLUSTERS, (count,), generator=random, device=device)]
    else:
        points *= float(cloud.split()[1])
    values, grad = (torch.randn(count, channels, generator=random, device=device) for _ in range(2))
    leaves = [points.requires_grad_(), values.requires_grad_()]

    def forward() -> None:
        with torch.no_grad():
            phgcn.global_attention(points, values, decay=1.0, method=method)

    def both() -> None:
        torch.autograd.grad(phgcn.global_attention(points, values, decay=1.0, method=method), leaves, grad)

    return clocked(both if backward else forward, device)


def structural_call(device: str, graph: str, backward: bool) -> Timed:
    """Attention to the neighbours in a graph, positions and values of its nodes random."""
    import phgcn
    from phgcn.data import load_graph

    data = load_graph(graph)
    random = torch.Generator(device).manual_seed(0)
    shape = (data.num_nodes, HEADS, HEAD_CHANNELS)
    points = torch.randn(*shape[:2], DIM, generator=random, device=device)
    values, grad = (torch.randn(shape, generator=random, device=device) for _ in range(2))
    leaves, edge_index = [points.requires_grad_(), values.requires_grad_()], data.edge_index.to(device)

    def forward() -> None:
        with torch.no_grad():
            phgcn.structural_attention(points, values, edge_index)

    def both() -> None:
        torch.autograd.grad(phgcn.structural_attention(points, values, edge_index), leaves, grad)

    return clocked(both if backward else forward, device)


def layer_step(device: str, layer: str, nodes: int, edges: int) -> Timed:
    """A training step of a layer: forward, loss and backward."""
    import phgcn.nn

    random = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, WIDTH, generator=random).to(device)
    edge_index = torch.randint(nodes, (2, edges), generator=random).to(device)
    torch.manual_seed(0)
    conv = getattr(phgcn.nn, layer)(WIDTH, HEAD_CHANNELS, heads=HEADS).to(device)

    def step() -> None:
        conv.zero_grad()
        conv(x, edge_index).square().mean().backward()

    return clocked(step, device)


def clocked(call: Callable[[], None], device: str) -> Timed:
    """Times calls by the clock, from an idle device to an idle device."""

    def synchronize() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def measure(count: int) -> Times:
        times: Times = {"wall": [], "cpu": []}
        for _ in range(count):
            synchronize()
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            synchronize()
            times["wall"].append(1000 * (time.perf_counter() - wall))
            times["cpu"].append(1000 * (time.process_time() - cpu))
        return times

    for _ in range(WARM_UP if device == "cuda" else 1):
        call()
    return measure


class _TimeIsUp(Exception):
    """Ends a run from within."""


def epochs(device: str, graph: str, checkpoints: bool, seconds: float) -> Timed:
    """Epochs of PH-GCN as ``phgcn train`` runs them, in a folder with checkpoints or in none: the mean over some seconds."""
    from phgcn.data import load_graph
    from phgcn.train import Plan, Run, Settings
    from phgcn.train.prepare import prepare, seeded, start

    data = load_graph(graph)
    plan = Plan(graph, model="phgcn", splits=1, device=device, settings=Settings(epochs=10**6, patience=10**6))

    def mean_epoch() -> tuple[float, float]:
        ends: list[tuple[float, float]] = []

        def note(_: object = None) -> None:
            ends.append((time.perf_counter(), time.process_time()))
            if len(ends) > WARM_UP_EPOCHS and ends[-1][0] - ends[WARM_UP_EPOCHS - 1][0] >= seconds:
                raise _TimeIsUp

        try:
            if checkpoints:
                with tempfile.TemporaryDirectory() as folder:
                    Run.create(Path(folder) / "run", plan, data).train(data, note)
            else:
                task = prepare(plan, data)[0]
                with seeded(0, task):
                    training = start(plan, task)
                    while True:
                        training.epoch()
                        note()
        except _TimeIsUp:
            pass
        count = len(ends) - WARM_UP_EPOCHS
        wall, cpu = (1000 * (last - first) / count for first, last in zip(ends[WARM_UP_EPOCHS - 1], ends[-1], strict=True))
        return wall, cpu

    def measure(count: int) -> Times:
        walls, cpus = zip(*(mean_epoch() for _ in range(count)), strict=True)
        return {"wall": list(walls), "cpu": list(cpus)}

    return measure


KINDS: dict[str, Callable[..., Timed]] = {
    "filter": filter_call,
    "structural": structural_call,
    "layer": layer_step,
    "epochs": epochs,
}


def serve() -> None:
    """Answers every line ``{"kind", "device", "options", "count"}``; only the last case is kept in memory."""
    last: tuple[str, Timed] | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        key = json.dumps([request[name] for name in ("kind", "device", "options")])
        try:
            if last is None or last[0] != key:
                last = None  # frees its memory first
                last = key, partial(KINDS[request["kind"]], request["device"])(**request["options"])
            answer: dict[str, Any] = last[1](request["count"])
        except Exception:  # reported, and the next case runs
            last = None
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
