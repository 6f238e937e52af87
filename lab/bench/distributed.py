r"""Global attention over two processes of one thread each, against one process of one thread: time,
bytes, memory.

A round is a forward and a backward pass.  It takes as long as the slowest rank; of several rounds
the fastest counts.  *Apart*: two processes with half of the points each that know nothing of each
other, which is what the machine can give.  On a machine that does other things too, the processor
time of a rank says more; it leaves out waiting for messages.  Bytes are those that the loopback
device sends in a round, headers and all; memory is the most that a pass adds to what a process has
before.  On one GPU a group of one rank is compared with none: what meeting at the vertices costs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import common
import torch
from registry import measurement

from phgcn_lab.markdown import machine, origin, table

COUNT, QUICK_COUNT = 200_000, 10_000
DIM, CHANNELS = 4, 17
CLOUDS = ("spread 1", "spread 10")
MARKS = {"spread 1": 1.6, "spread 10": 1.3}
MEMORY_MARK = 0.65
GPU_COUNTS = (1_000_000, 4_000_000, 16_000_000)


# One process


def work(
    cloud: str, device: str, rank: int, size: int, port: int, count: int, rounds: int
) -> dict[str, Any]:
    """Measures one rank's share of a cloud; without a port it is on its own."""
    import torch.distributed as dist

    import phgcn

    torch.set_num_threads(1)
    group = None
    if port > 0:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        backend, limit = "nccl" if device == "cuda" else "gloo", timedelta(seconds=300)
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=limit)
        group = dist.group.WORLD

    def inputs(share: int) -> list[torch.Tensor]:
        mine, total = slice(rank * share, (rank + 1) * share), share * size
        given = common.cloud(cloud, total, DIM), common.random_features(total, CHANNELS)
        return [tensor[mine].clone().to(device).requires_grad_() for tensor in given]

    def run(points: torch.Tensor, values: torch.Tensor) -> None:
        out = phgcn.global_attention(points, values, decay=1.0, method="lattice", group=group)
        out.sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(2):
        run(*inputs(2000))  # compiles, and starts connections
    given = inputs(count // size)
    peak, found = common.peak(lambda: run(*given), device), []
    for _ in range(rounds):
        if group is not None:
            dist.barrier()
        sent, spent, begin = _loopback_bytes(), time.process_time(), time.perf_counter()
        run(*given)
        took = {"both": time.perf_counter() - begin, "cpu": time.process_time() - spent}
        if group is not None:
            dist.barrier()
        found.append({**took, "sent": _loopback_bytes() - sent})
    return {"peak": peak, "rounds": found}


def _loopback_bytes() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    loopback = next(line for line in lines if line.strip().startswith("lo:"))
    return int(loopback.split(":")[1].split()[8])


# All processes


def measure(
    cloud: str, size: int, count: int, rounds: int, *, group: bool, device: str = "cpu"
) -> dict[str, Any]:
    port = 0
    if group:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{rank}.json" for rank in range(size)]
        started = []
        for rank, out in enumerate(outs):
            given = map(str, (cloud, device, rank, size, port, count, rounds, out))
            started.append(subprocess.Popen([sys.executable, __file__, *given], env=environment))
        if any([process.wait() for process in started]):
            raise RuntimeError(f"{cloud} on {size} processes failed")
        ranks = [json.loads(out.read_text()) for out in outs]
    slowest = [
        {key: max(rank["rounds"][number][key] for rank in ranks) for key in ("both", "cpu", "sent")}
        for number in range(rounds)
    ]
    return {
        **{key: min(row[key] for row in slowest) for key in ("both", "cpu")},
        "peak": max(rank["peak"] for rank in ranks),
        "sent": min(row["sent"] for row in slowest) / size if size > 1 else 0,
        "rounds": slowest,
    }


def speed_table(measured: dict[str, Any]) -> list[str]:
    rows = []
    for cloud, found in measured["clouds"].items():
        one, two, apart = found["1"], found["2"], found["apart"]
        times = [f"{1000 * row['both']:,.0f}" for row in (one, two)]
        faster = f"{one['both'] / two['both']:.2f} (mark {MARKS[cloud]})"
        by_cpu = [f"{one['cpu'] / row['cpu']:.2f}" for row in (two, apart)]
        memory = f"{two['peak'] / one['peak']:.2f} (mark {MEMORY_MARK})"
        cells = [cloud, *times, faster, f"{one['both'] / apart['both']:.2f}", *by_cpu]
        rows.append([*cells, f"{two['sent'] / 1e6:,.1f}", memory])
    about = measured["provenance"]
    said = f"N = {measured['count']:,}, D = {measured['dim']}, C = {measured['channels']}, {machine(about)}, "  # noqa: E501
    said += f"load {about['load']} before, {origin(measured)}:"
    times = ("1 process, ms", "2 processes, ms", "times faster", "two halves apart")
    others = ("by processor time", "apart, by processor time", "MB sent", "peak memory")
    return [said, "", *table(["cloud", *times, *others], rows)]


@measurement(
    tables=lambda content: speed_table(content) if "clouds" in content else [],
    quick="a small cloud",
    rounds={"type": int, "default": 5, "help": "rounds to take the fastest of (default: 5)"},
    device={"choices": ("cpu", "cuda"), "default": "cpu"},
)
def distributed(options: argparse.Namespace) -> dict:
    """Global attention over two processes against one: time, bytes and memory."""
    about = {"dim": DIM, "channels": CHANNELS}
    if options.device == "cuda":
        return {**about, **with_and_without_group(CLOUDS[0], GPU_COUNTS, options.rounds)}
    count, rounds = (QUICK_COUNT, 2) if options.quick else (COUNT, options.rounds)
    rows = {}
    for cloud in CLOUDS:
        rows[cloud] = {
            "1": measure(cloud, 1, count, rounds, group=False),
            "2": measure(cloud, 2, count, rounds, group=True),
            "apart": measure(cloud, 2, count, rounds, group=False),
        }
    return {"count": count, **about, "clouds": rows}


def with_and_without_group(cloud: str, counts: tuple[int, ...], rounds: int) -> dict:
    rows = {}
    for count in counts:
        ways = {"alone": False, "group": True}
        rows[str(count)] = {
            name: measure(cloud, 1, count, rounds, group=group, device="cuda")
            for name, group in ways.items()
        }
    return {"cloud": cloud, "counts": rows}


if __name__ == "__main__":
    cloud, device, *numbers, out = sys.argv[1:]
    Path(out).write_text(json.dumps(work(cloud, device, *map(int, numbers))))
