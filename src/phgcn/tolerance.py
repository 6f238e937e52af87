"""Chooses the cheapest method that is accurate enough on the points at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from .accuracy import measure_errors
from .calls import AttentionCall, add_heads, count_heads
from .checks import host_may_look
from .crossings import exact_limit
from .kernels import EXPONENTIAL
from .lattice.scheme import MAX_DIMENSION

Choice = Literal["separable", "lattice", "lattice-fine", "exact"]
LATTICES: tuple[Choice, ...] = ("separable", "lattice", "lattice-fine")
CHOICES: tuple[Choice, ...] = (*LATTICES, "exact")  # methods to choose from, cheapest first
PAIRS = 1024  # pairs of points whose distances tell whether a cloud has changed

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

# a quantile of the distances, relative to before, that changes by more makes the choice anew
DRIFT = 0.2

GROWTH = 1.5  # and so does a number of points that grows or shrinks by this factor


NO_LOOK = (
    "the error cannot be measured in a compiled or captured graph; "
    "call the layer or function once before"
)


class Tolerance(torch.nn.Module):
    r"""The largest error that global attention may have, and the method that was chosen for it.

    The choice is kept while the cloud moves little: while its size, and the quantiles of the
    distances between some of its points, in units of :math:`1/\lambda`, stay as they were when it
    was made. Training and evaluation, whose clouds differ by dropout, have a choice each. Choices
    are part of ``state_dict()``, so that a training that continues makes the same.

    Args:
        error (float): The largest error, against the deviation of the exact output (``deviation``
            of :func:`phgcn.attention_error`), of the worst head; the cosine of the gradient is at
            least :math:`1 -` this too.
        heads (int, optional): Number of heads. (default: :obj:`1`)
        samples (int, optional): How many points the error is measured on. (default: :obj:`512`)
        seed (int, optional): Which points. (default: :obj:`0`)
    """

    kept: Tensor

    def __init__(self, error: float, heads: int = 1, samples: int = 512, seed: int = 0) -> None:
        super().__init__()
        self.error, self.samples, self.seed = check_tolerance(error), samples, seed
        self.chosen: Choice | None = None  # the method of the last call
        # For evaluation and for training: the number of the choice from 1 on, 0 for none; the
        # number of points; the quantiles.
        self.register_buffer("kept", torch.zeros(2, 2 + heads * len(QUANTILES)))

    def choose(self, points: CallPoints) -> Choice:
        """Returns the method for the points of a call, as chosen before or now."""
        may_look = host_may_look(points.call.positions)
        if points.are_exact:
            return self._remember("exact") if may_look else "exact"
        if not may_look:
            if self.chosen is None:
                raise RuntimeError(
                    f"phgcn: tolerance is {self.error}, but no method is chosen yet, and {NO_LOOK}"
                )
            return self.chosen
        row = self.kept[int(self.training)]
        count = points.counts[1]
        signature = points.agreed(_distance_quantiles(points, self.seed))
        choice, *before = row.tolist()
        if len(signature) + 1 != len(before):
            heads = len(before[1:]) // len(QUANTILES)
            raise ValueError(
                f"tolerance is made for {heads} heads; allowed: "
                f"{len(signature) // len(QUANTILES)}, as positions"
            )
        if choice == 0 or _has_drifted(before, [count, *signature.tolist()]):
            choice = 1 + CHOICES.index(method_within(points, self.error, self.samples, self.seed))
            row.copy_(torch.cat([row.new_tensor([choice, count]), signature.to(row)]))
        return self._remember(CHOICES[int(choice) - 1])

    def _remember(self, choice: Choice) -> Choice:
        self.chosen = choice
        return choice

    def extra_repr(self) -> str:
        return f"{self.error}" if self.chosen is None else f"{self.error}: {self.chosen}"


def make_tolerance(error: float | None, method: object, heads: int) -> Tolerance | None:
    if error is None:
        return None
    check_tolerance_method(method)
    return Tolerance(error, heads)


def describe_tolerance(tolerance: Tolerance | None) -> str:
    """Returns the part of a layer's ``repr`` that names the tolerance and the choice."""
    return "" if tolerance is None else f", tolerance={tolerance.extra_repr()}"


def check_tolerance_method(method: object) -> None:
    """Refuses a tolerance beside a method that leaves nothing to choose."""
    if method != "auto":
        raise ValueError(
            f'tolerance is given with method {method!r}; allowed: "auto", which chooses by it'
        )


def check_tolerance(error: object) -> float:
    if not isinstance(error, (int, float)) or not 0 < error < math.inf:
        raise ValueError(f"tolerance is {error!r}; allowed: a positive number")
    return float(error)


class CallPoints:
    """The points of a call in this process. ``normalise`` says whether its sums are divided by the
    sums of the weights."""

    def __init__(self, call: AttentionCall, normalise: bool = True) -> None:
        self.call, self.normalise = call, normalise

    @property
    def counts(self) -> tuple[int, int]:
        keys = self.call.positions.size(0)
        return keys, keys if self.call.queries is None else self.call.queries.size(0)

    @property
    def are_exact(self) -> bool:
        """Whether ``"auto"`` sums all their pairs, so that there is nothing to choose."""
        (keys, queries), dim, device = (
            self.counts,
            self.call.positions.size(-1),
            self.call.positions.device,
        )
        return keys * queries <= exact_limit(dim, device.type) or dim > MAX_DIMENSION

    @property
    def lattices(self) -> tuple[Choice, ...]:
        """The lattices to choose from, cheapest first, the paper's for its kernel only."""
        return LATTICES if self.call.kernel == EXPONENTIAL.name else LATTICES[1:]

    def take(self, keys: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the positions of numbered keys (K, H, D) and queries (Q, H, D)."""
        heads = count_heads(self.call.positions, self.call.values)
        targets = self.call.positions if self.call.queries is None else self.call.queries
        return add_heads(self.call.positions, heads)[keys], add_heads(targets, heads)[queries]

    def errors(self, samples: int, seed: int) -> Iterator[Tensor]:
        """Yields each lattice's deviation of the worst head and gradient cosine, (2,)."""
        for error in measure_errors(self.call, self.lattices, samples, seed, self.normalise):
            yield torch.stack([error.deviation.max(), error.gradient_cosine.min()])

    def agreed(self, numbers: Tensor) -> Tensor:
        """Returns the numbers that decide a choice, equal in all processes that make it."""
        return numbers


def choose_within(points: CallPoints, tolerance: float | Tolerance) -> AttentionCall:
    """Returns a call with the cheapest method whose error on its points is within a tolerance."""
    call = points.call
    check_tolerance_method(call.method)
    if isinstance(tolerance, Tolerance):
        choice = tolerance.choose(points)
    else:
        error = check_tolerance(tolerance)
        if not host_may_look(call.positions):
            raise RuntimeError(
                f"phgcn: tolerance is {error}, but {NO_LOOK}, with a phgcn.tolerance.Tolerance"
            )
        choice = "exact" if points.are_exact else method_within(points, error, 512, 0)
    return call._replace(method="exact") if choice == "exact" else call._replace(lattice=choice)


def method_within(points: CallPoints, tolerance: float, samples: int, seed: int) -> Choice:
    """Returns the cheapest method whose measured error is at most the tolerance in every head."""
    for choice, error in zip(points.lattices, points.errors(samples, seed), strict=True):
        deviation, cosine = points.agreed(error).tolist()
        if deviation <= tolerance and cosine >= 1 - tolerance:
            return choice
    return "exact"


@torch.no_grad()
def _distance_quantiles(points: CallPoints, seed: int) -> Tensor:
    """Returns quantiles of random pairs' distances in units of 1/λ, (heads * quantiles,)."""
    generator, device = torch.Generator().manual_seed(seed), points.call.positions.device
    keys, targets = points.take(
        *(torch.randint(n, (PAIRS,), generator=generator).to(device) for n in points.counts)
    )
    distance = (keys.float() - targets.float()).norm(dim=2) * torch.as_tensor(points.call.decay).to(
        device
    )
    quantiles: Tensor = distance.float().quantile(
        torch.tensor(QUANTILES, device=keys.device), dim=0
    )
    return quantiles.T.flatten()


def _has_drifted(before: list[float], now: list[float]) -> bool:
    """Returns whether the number of points, or a quantile behind it, has changed much."""
    if not before[0] / GROWTH <= now[0] <= before[0] * GROWTH:
        return True
    return any(abs(b - a) > DRIFT * max(a, 1e-6) for a, b in zip(before[1:], now[1:], strict=True))
