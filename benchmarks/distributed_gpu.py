r"""Global attention on a GPU with a group of one rank, through nccl, against none: what meeting at the vertices costs a rank.

    python benchmarks/distributed_gpu.py              # about a minute, on a GPU
    python benchmarks/distributed_gpu.py --quick      # one small cloud, to see that it works

A round is a forward and a backward pass over a dense cloud; the fastest of several counts, of both in turns.  What several GPUs
take is not measured.  Writes ``benchmarks/results/distributed_gpu.json``.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import common
import torch
import torch.distributed as dist
from rich.table import Table

import phgcn

COUNTS, QUICK_COUNTS = (1_000_000, 4_000_000, 16_000_000), (100_000,)
DIM, CHANNELS, CLOUD = 4, 17, "spread 1"
ROUNDS = 5


def measure(count: int, group: Any) -> dict[str, float]:
    """Returns the seconds of a round without and with the group, and the bytes that it adds at most to what a GPU holds."""
    device = torch.device("cuda")
    points = common.cloud(CLOUD, count, DIM).to(device).requires_grad_()
    values = common.random_features(count, CHANNELS).to(device).requires_grad_()

    def run(process_group: Any) -> None:
        phgcn.global_attention(points, values, decay=1.0, method="lattice", group=process_group).sum().backward()
        torch.cuda.synchronize()

    found: dict[str, float] = {}
    for name, process_group in (("alone", None), ("group", group)):
        run(process_group)  # compiles
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(process_group)
        found[f"{name}_bytes"] = torch.cuda.max_memory_allocated() - before
    for _ in range(ROUNDS):
        for name, process_group in (("alone", None), ("group", group)):
            seconds = common.seconds(lambda process_group=process_group: run(process_group))  # type: ignore[misc]
            found[name] = min(found.get(name, seconds), seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small cloud")
    parser.add_argument("--out", default=common.RESULTS / "distributed_gpu.json", help="where the JSON goes")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    about = common.provenance()
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1)
    counts = QUICK_COUNTS if options.quick else COUNTS
    rows = {str(count): measure(count, dist.group.WORLD) for count in counts}
    dist.destroy_process_group()
    table = Table(title=f"{CLOUD}, {DIM} dimensions, {CHANNELS} channels: without a group and with a group of one rank")
    for heading in ("points", "alone, ms", "group, ms", "alone, MB", "group, MB"):
        table.add_column(heading)
    for count, row in rows.items():
        times, sizes = (f"{1000 * row[key]:.1f}" for key in ("alone", "group")), ("alone_bytes", "group_bytes")
        table.add_row(f"{int(count):,}", *times, *(f"{row[key] / 1e6:,.0f}" for key in sizes))
    common.wide_console().print(table)
    common.write_json(options.out, {"provenance": about, "dim": DIM, "channels": CHANNELS, "cloud": CLOUD, "counts": rows})


if __name__ == "__main__":
    main()
