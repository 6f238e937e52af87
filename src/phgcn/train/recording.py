r"""Records GPU work as a CUDA graph, so that the host launches one graph instead of hundreds of kernels."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")


def record(work: Callable[[], Result], device: torch.device) -> Callable[[], Result]:
    """Captures the kernels that ``work`` launches, without running them.

    ``work`` must not read from the device, and must have run once before, so that its kernels are compiled and its caches
    are filled.  Random numbers continue from torch's generator at every replay.

    Args:
        work (callable): What to capture.
        device (torch.device): The GPU.

    Returns:
        A function that replays the graph. It returns the same tensors every time, with new contents.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), no_garbage_collection(), torch.cuda.graph(graph):
        result = work()

    def replay() -> Result:
        graph.replay()
        return result

    return replay


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disables Python's garbage collector: freeing an earlier CUDA graph during a capture would make the capture fail."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
