r"""What the GPU benchmarks share: clouds, features, timing with CUDA events, and a training step.

Not run by itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from phgcn.functional import global_attention

DEVICE = "cuda"
DIM, CHANNELS = 4, 64
ROUNDS = 15


def cloud(name: str, count: int, dim: int = DIM, dtype: torch.dtype = torch.float32) -> Tensor:
    """Points as in ``benchmarks/common.py``: a Gaussian of some spread, or six clusters."""
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(count, dim, generator=random, dtype=torch.float32)
    if name == "clusters":
        centres = 10 * torch.randn(6, dim, generator=random)
        return (centres[torch.randint(6, (count,), generator=random)] + noise).to(dtype)
    return (float(name.split()[1]) * noise).to(dtype)


def features(count: int, channels: int = CHANNELS, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, channels, generator=torch.Generator().manual_seed(seed)).to(dtype)


def milliseconds(call: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The times of a call, after two to warm up."""
    times = []
    for number in range(rounds + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if number > 1:
            times.append(begin.elapsed_time(end))
    return times


def copy_speed() -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.ones(2**28, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / (statistics.median(milliseconds(lambda: target.copy_(source))) / 1000)


def step(points: Tensor, values: Tensor, method: object) -> None:
    """A forward and a backward to positions and values."""
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = global_attention(*leaves, decay=1.0, method=method)
    torch.autograd.grad(out, leaves, torch.ones_like(out))
