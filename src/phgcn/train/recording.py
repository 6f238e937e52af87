r"""Work on a GPU that is recorded once and then repeated, with one call of the host instead of hundreds: a CUDA graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")


def record(work: Callable[[], Result], device: torch.device) -> Callable[[], Result]:
    """Records what ``work`` launches on a GPU; nothing is computed yet.

    The work must ask the device nothing, and must have been done once: then kernels are compiled, and what it keeps from one
    time to the next is there.  Random numbers continue where torch's generator stands, as if each kernel was launched anew.

    Returns:
        What does the work. Its result is always the same tensors, with new contents.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), no_garbage_collection(), torch.cuda.graph(graph):
        result = work()

    def repeat() -> Result:
        graph.replay()
        return result

    return repeat


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keeps Python from freeing what an earlier recording held: a GPU may not give memory back while it records."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
