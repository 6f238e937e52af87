"""Joins the process group that ``torchrun`` started this process for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from .collectives import Ranks


def launched() -> bool:
    """Returns whether ``torchrun``, or a launcher that sets its variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ


def place_among_processes() -> tuple[int, int]:
    """Returns this process's number and the number of processes."""
    return (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if launched() else (0, 1)


@contextmanager
def joined_group(device: str, timeout: float) -> Iterator[Ranks]:
    """Joins the group of all processes: gloo for CPUs, nccl for GPUs, one per process. A collective
    fails after ``timeout`` seconds without an answer."""
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}; allowed: a positive number of seconds")
    backend = "gloo"
    if device.startswith("cuda"):
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        group = dist.group.WORLD
        assert group is not None
        yield Ranks(group)
    finally:
        dist.destroy_process_group()
