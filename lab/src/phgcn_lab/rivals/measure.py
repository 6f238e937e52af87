r"""Error, time and memory of one call of a rival on one cloud."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from phgcn.functional import global_attention

from ..peak import begin_peak, peak_bytes
from .adapters import Rival, Setting
from .clouds import Place, make
from .packages import Sampled

SAMPLES = 512  # Points whose outputs are compared with the exact ones
WARM_POINTS = 1000
"""Points of the call that loads and compiles what a rival needs; all points for our lattices, whose
kernels on a GPU are compiled for the levels of a cloud."""
LEAST_MEASURED = 10_000
"""With fewer points, the memory that is used on a CPU is too little to be seen."""
GROUPS = "random", "structured"  # The first half of the channels, and the second

Kind = Literal["forward", "step"]
"""A forward alone, and a forward with the gradients of positions and values."""


class Problem(NamedTuple):
    """A cloud with the exact answer for some of its points."""

    points: Tensor  # (N, D)
    values: Tensor  # (N, C)
    sample: Tensor  # numbers of points, (S,)
    exact: Tensor  # outputs, (S, C), float64
    grad: Tensor  # a gradient of them, (S, C), float64
    slope: Tensor  # the exact gradient of the positions, (N, D), float64


def pose(place: Place, folder: Path, device: str, epochs: int = 1) -> Problem:
    points, values = (part.to(device) for part in make(place, folder, epochs))
    random = torch.Generator().manual_seed(2)
    sample = torch.randperm(len(points), generator=random)[:SAMPLES].to(device)
    shape = len(sample), values.size(1)
    grad = torch.randn(*shape, generator=random, dtype=torch.float64).to(device)
    keys = points.double().requires_grad_()
    exact = global_attention(keys, values.double(), decay=1.0, queries=keys[sample], method="exact")
    (slope,) = torch.autograd.grad(exact, keys, grad)
    return Problem(points, values, sample, exact.detach(), grad, slope)


def warm_up(rival: Rival, setting: Setting, problem: Problem) -> None:
    """Calls a rival on as many points as it needs to be warm."""
    most = len(problem.points) if rival.ours and not rival.any_cloud else WARM_POINTS
    few, values = (
        part[:most].detach().requires_grad_(rival.gradients)
        for part in (problem.points, problem.values)
    )
    sample = torch.arange(min(len(few), SAMPLES), device=few.device)
    out = _attend(rival, setting, few, values, sample)
    if rival.gradients:
        assert isinstance(out, Tensor)
        out.sum().backward()


def seconds(call: Callable[[], object], device: str) -> float:
    """Times a call, including the work that it leaves to the GPU."""
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    result = call()
    if on_gpu:
        torch.cuda.synchronize(device)
    taken = time.perf_counter() - begin
    del result
    return taken


def call(rival: Rival, setting: Setting, problem: Problem, kind: Kind) -> tuple[float, Tensor]:
    """Returns the seconds, and of a forward outputs of sampled points, of a step their gradient."""
    results: list[Tensor | Sampled] = []
    one_call, device = _forward if kind == "forward" else _step, str(problem.points.device)
    taken = seconds(lambda: results.append(one_call(rival, setting, problem)), device)
    result = results[0]
    return (result.seconds, result.out) if isinstance(result, Sampled) else (taken, result)


def examine(rival: Rival, setting: Setting, problem: Problem, kind: Kind) -> dict[str, Any]:
    """Returns seconds, bytes beyond the input, and errors of the outputs or of the gradient."""
    device = str(problem.points.device)
    measurable = device != "cpu" or len(problem.points) >= LEAST_MEASURED
    start = begin_peak(device) if measurable else 0
    taken, result = call(rival, setting, problem, kind)
    most = peak_bytes(device) - start if measurable else None
    measured: dict[str, Any] = {"seconds": taken, "bytes": most}
    if kind == "forward":
        return measured | {"errors": errors(result, problem.exact)}
    return measured | {"cosine": cosine(result, problem.slope)}


def _attend(
    rival: Rival, setting: Setting, points: Tensor, values: Tensor, sample: Tensor
) -> Tensor | Sampled:
    return rival.attend(points, values, *([sample] if rival.sampled else []), **setting)


def _forward(rival: Rival, setting: Setting, problem: Problem) -> Tensor | Sampled:
    with torch.no_grad():
        out = _attend(rival, setting, problem.points, problem.values, problem.sample)
    return out if isinstance(out, Sampled) else out[problem.sample]


def _step(rival: Rival, setting: Setting, problem: Problem) -> Tensor:
    leaves = [problem.points.detach().requires_grad_(), problem.values.detach().requires_grad_()]
    out = _attend(rival, setting, leaves[0], leaves[1], problem.sample)
    assert isinstance(out, Tensor)
    return torch.autograd.grad(out[problem.sample], leaves, problem.grad.to(out.dtype))[0]


def errors(out: Tensor, exact: Tensor) -> dict[str, dict[str, float]]:
    """Errors of points over how far exact outputs are from their mean: median, 99 %, and rms."""
    result = {}
    for name, truth, found in zip(GROUPS, exact.chunk(2, dim=1), out.chunk(2, dim=1), strict=True):
        unit = (truth - truth.mean(dim=0)).square().sum(dim=1).mean().sqrt()
        error = (found.to(truth) - truth[: len(out)]).norm(dim=1) / unit
        median, high = (float(error.quantile(share)) for share in (0.5, 0.99))
        result[name] = {"median": median, "p99": high, "rms": float(error.square().mean().sqrt())}
    return result


def cosine(slope: Tensor, exact: Tensor) -> float:
    return float(cosine_similarity(slope.double().flatten(), exact.flatten(), dim=0))
