r"""Global attention over two processes of one thread each, against one process of one thread: time, bytes, memory.

    python benchmarks/distributed.py              # about two minutes, on a machine that has nothing else to do
    python benchmarks/distributed.py --quick      # a small cloud, to see that it works

A round is a forward and a backward pass.  It takes as long as the slowest rank; of several rounds the fastest counts.
*Apart*: two processes with half of the points each that know nothing of each other, which is what the machine can give.  On a
machine that does other things too, the processor time of a rank tells more; it leaves out waiting for messages.  Bytes
are those that the loopback device sends in a round, headers and all, beside the formula of ``docs/distributed.md``; memory is
the most that a pass adds to what a process has before.  Writes ``benchmarks/results/distributed.json``.
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
from rich.table import Table

COUNT, QUICK_COUNT = 200_000, 10_000
DIM, CHANNELS = 4, 17
CLOUDS = ("spread 1", "spread 10")
PROCESSES = (1, 2)
ROUNDS = 5
BYTES = 4  # of a number
MARKS = {"spread 1": 1.6, "spread 10": 1.3}
MEMORY_MARK = 0.65


# One process


def work(options: argparse.Namespace) -> None:
    """Measures one rank's share of a cloud, and writes what it finds."""
    import torch.distributed as dist

    import phgcn

    torch.set_num_threads(1)
    rank, size = options.rank, options.processes
    group = None
    together = size > 1 and not options.apart
    if together:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
        dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=300))
        group = dist.group.WORLD
    share = options.count // size

    def inputs(count: int) -> tuple[Any, Any]:
        mine = slice(rank * count, (rank + 1) * count)
        points, values = common.cloud(options.worker, count * size, DIM), common.random_features(count * size, CHANNELS)
        return points[mine].clone().requires_grad_(), values[mine].clone().requires_grad_()

    def run(points: Any, values: Any) -> tuple[float, float]:
        begin = time.perf_counter()
        out = phgcn.global_attention(points, values, decay=1.0, method="lattice", group=group)
        middle = time.perf_counter()
        out.sum().backward()
        return middle - begin, time.perf_counter() - middle

    for _ in range(2):
        run(*inputs(2000))  # compiles, and starts connections
    points, values = inputs(share)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of what follows
    run(points, values)
    peak = _status("VmHWM") - before
    sizes = record_sizes(lambda: run(points, values)) if together else {}
    rounds = []
    for _ in range(options.rounds):
        if together:
            dist.barrier()
        sent, spent = _loopback_bytes(), time.process_time()
        forward, backward = run(points, values)
        spent = time.process_time() - spent
        if together:
            dist.barrier()
        rounds.append({"forward": forward, "backward": backward, "cpu": spent, "sent": _loopback_bytes() - sent})
    Path(options.out).write_text(json.dumps({"peak": peak, "rounds": rounds, "sizes": sizes}))


def _status(key: str) -> int:
    """Reads a number of bytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])


def _loopback_bytes() -> int:
    """Reads how many bytes the loopback device has sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[8])


def record_sizes(call: Any) -> dict[str, Any]:
    """Runs a call and returns the vertices and sites of its lattice, the bytes of a coordinate, and whether it has a near
    field."""
    from phgcn.distributed import layout

    found: dict[str, Any] = {}
    original = layout.RankCloud.levels

    def levels(self: Any, number: int, frame: Any, gap: int) -> Any:
        made = original(self, number, frame, gap)
        own = int((self.placed[0].vertices.start[1:] > self.placed[0].vertices.start[:-1]).sum())
        found.update(sites=[level.sites for level in made], vertices=[len(level.site) for level in made], own=own)
        found.update(near=self.finest > 0, coordinate=layout.coordinate_type(frame, self.finest).itemsize)
        return made

    layout.RankCloud.levels = levels  # type: ignore[method-assign]
    try:
        call()
    finally:
        layout.RankCloud.levels = original  # type: ignore[method-assign]
    return found


# All processes


def measure(cloud: str, processes: int, count: int, rounds: int, apart: bool = False) -> dict[str, Any]:
    """Starts the processes for one cloud, and puts together what they find."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        outs = [Path(folder) / f"{rank}.json" for rank in range(processes)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", cloud, "--rank", str(rank), "--processes", str(processes), "--port",
                 str(port), "--count", str(count), "--rounds", str(rounds), "--out", str(out), *["--apart"] * apart],
                env=environment,
            )
            for rank, out in enumerate(outs)
        ]  # fmt: skip
        if any([process.wait() for process in started]):
            raise RuntimeError(f"{cloud} on {processes} processes failed")
        ranks = [json.loads(out.read_text()) for out in outs]
    slowest = [
        {key: max(rank["rounds"][number][key] for rank in ranks) for key in ("forward", "backward", "cpu", "sent")}
        for number in range(rounds)
    ]
    fastest = min(slowest, key=lambda row: row["forward"] + row["backward"])
    return {
        "forward": fastest["forward"],
        "backward": fastest["backward"],
        "both": fastest["forward"] + fastest["backward"],
        "cpu": min(row["cpu"] for row in slowest),
        "peak": max(rank["peak"] for rank in ranks),
        "sent": min(row["sent"] for row in slowest) / processes if processes > 1 else 0,
        "rounds": slowest,
        "sizes": ranks[0]["sizes"],
    }


def formula(sizes: dict[str, Any], processes: int, count: int) -> dict[str, float]:
    """The bytes that each rank sends in a forward and in a backward pass; see ``docs/distributed.md``."""
    from phgcn.distributed.lattice import SHARED
    from phgcn.distributed.layout import KEPT

    width, others, share = (CHANNELS + 1 + 3) // 4 * 4, processes - 1, count / processes
    finest, shared_sites = sizes["sites"][0], sum(sites for sites in sizes["sites"] if sites >= SHARED)
    passes = 1 if finest <= KEPT * share else 2  # of the backward pass: gradients, and values that were not kept

    def tables(columns: int) -> float:
        return BYTES * columns * (2 * finest + shared_sites) * others / processes

    near = others * share * BYTES if sizes["near"] else 0
    forward = others * sizes["own"] * sizes["coordinate"] * DIM + tables(width) + near * (DIM + width)
    return {"forward": forward, "backward": tables(passes * width) + near * (DIM + 2 * width)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small cloud")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds to take the fastest of (default: {ROUNDS})")
    parser.add_argument("--out", default=common.RESULTS / "distributed.json", help="where the JSON goes")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    for name in ("worker", "rank", "processes", "port", "count"):
        parser.add_argument(f"--{name}", type=str if name == "worker" else int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options)
        return
    count = QUICK_COUNT if options.quick else COUNT
    about = common.provenance()
    rows = {cloud: {str(p): measure(cloud, p, count, options.rounds) for p in PROCESSES} for cloud in CLOUDS}
    for cloud, by_processes in rows.items():
        by_processes["apart"] = measure(cloud, 2, count, options.rounds, apart=True)
    table = Table(title=f"{count:,} points, {DIM} dimensions, {CHANNELS} channels: 1 and 2 processes of one thread")
    for heading in (
        "cloud",
        "both, ms",
        "cpu, ms",
        "times faster",
        "apart",
        "mark",
        "peak, MB",
        "share",
        "sent, MB",
        "formula, MB",
    ):
        table.add_column(heading)
    for cloud, by_processes in rows.items():
        one, two = by_processes["1"], by_processes["2"]
        two["formula"] = formula(two["sizes"], 2, count)
        table.add_row(
            cloud, *(f"{1000 * one[k]:.0f} / {1000 * two[k]:.0f}" for k in ("both", "cpu")),
            *(f"{one['both'] / by_processes[key]['both']:.2f}" for key in ("2", "apart")),
            f"{MARKS[cloud]}", f"{one['peak'] / 1e6:.0f} / {two['peak'] / 1e6:.0f}",
            f"{two['peak'] / one['peak']:.2f}", f"{two['sent'] / 1e6:.1f}", f"{sum(two['formula'].values()) / 1e6:.1f}",
        )  # fmt: skip
    common.wide_console().print(table)
    common.write_json(options.out, {"provenance": about, "count": count, "dim": DIM, "channels": CHANNELS, "clouds": rows})


if __name__ == "__main__":
    main()
