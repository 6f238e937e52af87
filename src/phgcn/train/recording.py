r"""Work on a GPU that is recorded once and then repeated, with one call of the host instead of hundreds: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
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
    with torch.cuda.device(device), torch.cuda.graph(graph):
        result = work()

    def repeat() -> Result:
        graph.replay()
        return result

    return repeat
