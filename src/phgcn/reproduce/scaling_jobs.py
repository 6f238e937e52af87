r"""What :mod:`phgcn.reproduce.scaling` measures: clouds of points, attention by each method, and other packages beside it.

All lengths are in units of 1/decay, so that every call takes ``decay=1``.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..functional import global_attention

CLUSTERS = 6
KINDS = ("forward", "step")
"""A forward alone, and a forward with the gradients of positions and values."""


def cloud(name: str, count: int, dim: int, device: str) -> Tensor:
    """Points: ``"spread s"``, a Gaussian of standard deviation s, or ``"clusters"``, six of width 1 in one of spread 10."""
    random = torch.Generator().manual_seed(0)
    points = torch.randn(count, dim, generator=random)
    if name == "clusters":
        centres = 10 * torch.randn(CLUSTERS, dim, generator=random)
        points += centres[torch.randint(CLUSTERS, (count,), generator=random)]
    else:
        points *= float(name.removeprefix("spread "))
    return points.to(device)


def features(count: int, channels: int, device: str) -> Tensor:
    random = torch.Generator(device).manual_seed(1)
    return torch.randn(count, channels, generator=random, device=device)


def wait_for(device: str) -> None:
    """Until all that was asked of a GPU is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def seconds(call: Callable[[], object], device: str) -> float:
    """Times a call, including the work that it leaves to the GPU."""
    wait_for(device)
    begin = time.perf_counter()
    result = call()
    wait_for(device)
    taken = time.perf_counter() - begin
    del result
    return taken


@dataclass(frozen=True)
class Method:
    """A way to compute attention.

    Args:
        name (str): As it is shown.
        attend (callable): Gives the output for positions and values; for a package that has to prepare something that is not
            to be timed, the seconds.
        power (float): About how its time grows with the number of points, to foresee the next size.
        devices (tuple): Where it runs.
        gradients (bool): Whether it has some. (default: :obj:`True`)
        any_cloud (bool): Whether it takes as long for every cloud: it is measured on the first then. (default: :obj:`False`)
    """

    name: str
    attend: Callable[[Tensor, Tensor], Any]
    power: float
    devices: tuple[str, ...] = ("cpu", "cuda")
    gradients: bool = True
    any_cloud: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS if self.gradients else KINDS[:1]

    def call(self, kind: str, points: Tensor, values: Tensor) -> float:
        """Times one call, in seconds."""
        device = str(points.device)
        if kind == "forward":
            with torch.no_grad():
                outputs: list[Any] = []
                taken = seconds(lambda: outputs.append(self.attend(points, values)), device)
                return outputs[0] if isinstance(outputs[0], float) else taken
        return seconds(lambda: self._step(points, values), device)

    def _step(self, points: Tensor, values: Tensor) -> None:
        leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
        out = self.attend(*leaves)
        torch.autograd.grad(out, leaves, torch.ones_like(out))


def attend_with(method: Literal["exact", "lattice", "separable"], points: Tensor, values: Tensor) -> Tensor:
    """Calls this library's attention; a lattice is one, however few the points."""
    return global_attention(points, values, decay=1.0, method=method)


def densecrf(points: Tensor, values: Tensor) -> float:
    """pydensecrf2, a Gaussian of width 3: its build and one filter."""
    package = importlib.import_module("pydensecrf.densecrf")
    energy, place = values.T.contiguous().numpy(), points.T.contiguous().numpy()
    crf = package.DenseCRF(len(points), values.size(1))
    crf.setUnaryEnergy(energy)
    begin = time.perf_counter()
    crf.addPairwiseEnergy(place, compat=1.0)
    built = time.perf_counter() - begin
    state = crf.startInference()
    begin = time.perf_counter()
    crf.stepInference(*state)
    return built + time.perf_counter() - begin


def keops(points: Tensor, values: Tensor) -> Tensor:
    """pykeops: the exact sum, its kernel compiled for the formula."""
    lazy = importlib.import_module("pykeops.torch").LazyTensor
    rows = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)
    difference = lazy(points[:, None, :]) - lazy(points[None, :, :])
    summed = (-difference.square().sum(dim=-1).sqrt()).exp() @ rows
    return summed[:, :-1] / summed[:, -1:]


@functools.lru_cache
def _compiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _minus_distance(score: Tensor, *_: Tensor) -> Tensor:
    return -score.clamp(min=1e-12).sqrt()


def flex(points: Tensor, values: Tensor) -> Tensor:
    r"""FlexAttention: the exact sum, with :math:`\lVert p \rVert^2 + \lVert q \rVert^2 - 2 p \cdot q` as the product of
    queries and keys, whose negative root is the score."""
    squared, one = points.square().sum(dim=1, keepdim=True), torch.ones_like(points[:, :1])
    empty = points.new_zeros(len(points), 14 - points.size(1))
    queries = torch.cat([-2 * points, squared, one, empty], dim=1)
    keys = torch.cat([points, one, squared, empty], dim=1)
    inputs = (part[None, None] for part in (queries, keys, values))
    return _compiled_flex()(*inputs, score_mod=_minus_distance, scale=1.0)[0, 0]


METHODS = (
    Method("exact", functools.partial(attend_with, "exact"), 2.0, any_cloud=True),
    Method("lattice", functools.partial(attend_with, "lattice"), 1.2),
    Method("separable", functools.partial(attend_with, "separable"), 1.2),
    Method("pydensecrf2", densecrf, 1.2, ("cpu",), gradients=False),
    Method("pykeops", keops, 2.0, any_cloud=True),
    Method("FlexAttention", flex, 2.0, ("cuda",), any_cloud=True),
)


def available(device: str, dim: int, channels: int) -> tuple[list[Method], dict[str, str]]:
    """Selects the methods that run here, by a small call of each; returns why others do not."""
    kind = torch.device(device).type
    points, values = cloud("spread 1", 2000, dim, device), features(2000, channels, device)
    working, missing = [], {}
    for method in METHODS:
        if kind not in method.devices:
            continue
        try:
            for name in method.kinds:
                method.call(name, points, values)
            working.append(method)
        except Exception as error:  # a package or a compiler that is missing, or whatever it trips over: said in the results
            missing[method.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return working, missing
