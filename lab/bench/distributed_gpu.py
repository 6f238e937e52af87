r"""Global attention on a GPU with a group of one rank, through nccl, against none: what meeting at
the vertices costs a rank.

A round is a forward and a backward pass over a dense cloud; the fastest of several counts, of both
in turns.  What several GPUs take is not measured.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import common
import torch
import torch.distributed as dist
from gpu_common import DEVICE, peak
from registry import measurement

import phgcn

COUNTS, QUICK_COUNTS = (1_000_000, 4_000_000, 16_000_000), (2_000,)
DIM, CHANNELS, CLOUD = 4, 17, "spread 1"
ROUNDS = 5


def measure(count: int, group: Any) -> dict[str, float]:
    """Returns the seconds of a round without and with the group, and the bytes that it adds at most
    to what a GPU holds.
    """
    points = common.cloud(CLOUD, count, DIM).to(DEVICE).requires_grad_()
    values = common.random_features(count, CHANNELS).to(DEVICE).requires_grad_()

    def run(process_group: Any) -> None:
        phgcn.global_attention(
            points, values, decay=1.0, method="lattice", group=process_group
        ).sum().backward()
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()

    found: dict[str, float] = {}
    for name, process_group in (("alone", None), ("group", group)):
        run(process_group)  # compiles
        found[f"{name}_bytes"] = peak(lambda group=process_group: run(group))  # type: ignore[misc]
    for _ in range(ROUNDS):
        for name, process_group in (("alone", None), ("group", group)):
            seconds = common.seconds(lambda process_group=process_group: run(process_group))  # type: ignore[misc]
            found[name] = min(found.get(name, seconds), seconds)
    return found


@measurement(quick="one small cloud; runs on the CPU too, by gloo", needs_gpu=True)
def distributed_gpu(options: argparse.Namespace) -> dict:
    """Global attention on a GPU with a group of one rank, against none."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    backend = "nccl" if DEVICE.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=address, rank=0, world_size=1)
    counts = QUICK_COUNTS if options.quick else COUNTS
    rows = {str(count): measure(count, dist.group.WORLD) for count in counts}
    dist.destroy_process_group()
    return {"dim": DIM, "channels": CHANNELS, "cloud": CLOUD, "counts": rows}
