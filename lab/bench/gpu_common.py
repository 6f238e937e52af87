r"""What the measurements on a GPU share: the device, clouds, times by CUDA events, peaks of memory.

Not run by itself.  Without a GPU, ``--quick`` versions run on the CPU, to see that they work.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import common
import torch
from torch import Tensor

from phgcn.functional import global_attention
from phgcn_lab.peak import begin_peak, peak_bytes

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM, CHANNELS = 4, 64
ROUNDS = 15
Times = dict[str, dict]


def cloud(name: str, count: int, dim: int = DIM) -> Tensor:
    return common.cloud(name, count, dim)


def features(count: int, channels: int = CHANNELS, seed: int = 1) -> Tensor:
    return torch.randn(count, channels, generator=torch.Generator().manual_seed(seed))


def once(call: Callable[[], object]) -> float:
    """Milliseconds of a call, between events on a GPU."""
    if DEVICE.type == "cpu":
        return 1000 * common.seconds(call)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def milliseconds(call: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The times of a call, after two to warm up."""
    return [once(call) for _ in range(rounds + 2)][2:]


def timed(jobs: dict[str, Callable[[], object]], rounds: int, warm: int = 2) -> Times:
    """Seconds of all jobs in turn, round after round. A job that fails is printed and left out."""
    alive = dict(jobs)
    for name, job in jobs.items():
        try:
            for _ in range(warm):
                once(job)
        # out of memory, or a kernel that does not compile: the others run
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            del alive[name]
    times: dict[str, list[float]] = {name: [] for name in alive}
    for _ in range(rounds):
        for name, job in alive.items():
            times[name].append(once(job) / 1000)
    return {
        name: {"median": statistics.median(t), "min": min(t), "all": t} for name, t in times.items()
    }


def peak(call: Callable[[], object]) -> int:
    """The most bytes that a call holds beyond what was there before."""
    before = begin_peak(str(DEVICE))
    call()
    return peak_bytes(str(DEVICE)) - before


def step(points: Tensor, values: Tensor, method: object) -> None:
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = global_attention(*leaves, decay=1.0, method=method)
    torch.autograd.grad(out, leaves, torch.ones_like(out))
