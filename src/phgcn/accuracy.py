"""Measures the error of a method of global attention on some points of a cloud, against the exact
sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .backends import BackendName
from .calls import AttentionCall, Method, add_heads, check_call, count_heads, run_call
from .kernels import Kernel, kernel_name

WORST = 5  # points named in :class:`AttentionError`
RESAMPLES = 200  # samples drawn from the sample, for the interval

# deviations below this share of the output count as that: float32 shows no smaller ones
LEAST_DEVIATION = 1e-6


class AttentionError(NamedTuple):
    """The error of a method on a cloud, per head where positions or values have heads.

    Args:
        deviation (torch.Tensor): The error of the output, a root mean square over the sampled
            points, :math:`()` or :math:`(H,)`. Its unit is the deviation of the exact outputs from
            their mean, which a plain average would miss. The unit of sums without normaliser is the
            exact output.
        interval (torch.Tensor): The bootstrap interval that holds the deviation over all points in
            95 of 100 cases, :math:`(2,)` or :math:`(2, H)`; twice the deviation if the sample is
            all points.
        gradient_cosine (torch.Tensor): The cosine between the gradient of the positions and the
            exact one, for a random gradient of the sampled outputs, :math:`()` or :math:`(H,)`.
        worst (torch.Tensor): The sampled points of the largest error, worst first, int64,
            :math:`(K,)` or :math:`(K, H)`.
        worst_error (torch.Tensor): Their errors, in the unit of ``deviation``, :math:`(K,)` or
            :math:`(K, H)`.
    """

    deviation: Tensor
    interval: Tensor
    gradient_cosine: Tensor
    worst: Tensor
    worst_error: Tensor


def attention_error(
    positions: Tensor,
    values: Tensor,
    *,
    decay: float | Tensor = 10.0,
    batch: Tensor | None = None,
    queries: Tensor | None = None,
    query_batch: Tensor | None = None,
    weights: Tensor | None = None,
    kernel: str | Kernel = "exponential",
    method: Method = "auto",
    backend: BackendName = "auto",
    normalise: bool = True,
    samples: int = 512,
    seed: int = 0,
) -> AttentionError:
    """Measures how far a method of :func:`global_attention` is from the exact sum on these points.

    The measurement takes a forward and backward pass of the method, and the exact sums of
    ``samples`` points in float64, in time and memory linear in the number of points. An eighth as
    many points far from the middle of the cloud, where a lattice errs most, count only for
    ``worst``.

    Args:
        positions, values, decay, batch, queries, query_batch, weights, kernel, backend: As in
            :func:`global_attention`.
        method (str or scheme, optional): The method to measure. (default: :obj:`"auto"`)
        normalise (bool, optional): If set to :obj:`False`, measures :func:`permutohedral_filter`,
            the sums without a denominator. (default: :obj:`True`)
        samples (int, optional): The number of sampled points; smaller clouds are measured whole.
            (default: :obj:`512`)
        seed (int, optional): The seed of points and gradient. (default: :obj:`0`)

    Example:
        >>> p, f = torch.randn(5000, 4), torch.randn(5000, 8)
        >>> error = phgcn.attention_error(p, f, decay=1.0, method="lattice")
        >>> bool(error.deviation < 0.2), bool(error.gradient_cosine > 0.9)
        (True, True)
    """
    name = kernel_name(kernel)
    call = AttentionCall(
        positions, values, decay, batch, queries, query_batch, method, backend, name, weights
    )
    (error,) = measure_errors(call, [call.lattice], samples, seed, normalise)
    return (
        error
        if positions.dim() == 3 or values.dim() == 3
        else AttentionError(*(t.squeeze(-1) for t in error))
    )


def measure_errors(
    call: AttentionCall, lattices: Sequence[Any], samples: int, seed: int, normalise: bool = True
) -> Iterator[AttentionError]:
    """Measures a call's method with several lattices for ``"auto"``, always per head."""
    check_call(call)
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples is {samples!r}; allowed: a positive integer")
    targets = call.positions if call.queries is None else call.queries
    if len(targets) == 0 or len(call.positions) == 0:
        counts = f"{len(call.positions)} and {len(targets)} rows"
        raise ValueError(f"positions and queries have {counts}; allowed: at least one each")
    with torch.inference_mode(False), torch.enable_grad():
        cloud = detach_call(call)
        sample = _Sample.draw(
            cloud.positions if cloud.queries is None else cloud.queries, samples, seed
        )
        shape = len(sample.points), cloud.values.size(1), cloud.values.size(2)
        grad = torch.randn(shape, generator=sample.generator, dtype=torch.float64).to(
            cloud.values.device
        )
        grad[sample.at_random :] = 0
        state = sample.generator.get_state()
        attend = _attend if normalise else _sum
        exact = exact_outputs(cloud, sample.points, grad, attend)
        for lattice in lattices:
            # so that no method's interval depends on those before it
            sample.generator.set_state(state)
            out, slope = method_outputs(
                cloud._replace(lattice=lattice), sample.points, grad, attend
            )
            error = _compare(out, exact[0], sample, normalise)
            yield error._replace(gradient_cosine=cosines(slope_products(slope, exact[1])))


def detach_call(call: AttentionCall) -> AttentionCall:
    """Copies the tensors of a call, inference tensors too, and adds a dimension of heads."""
    heads = count_heads(call.positions, call.values)
    positions, values, queries = (
        None if t is None else add_heads(t.detach().clone(), heads)
        for t in (call.positions, call.values, call.queries)
    )
    assert positions is not None and values is not None
    decay = call.decay.detach().clone() if isinstance(call.decay, Tensor) else float(call.decay)
    weights = None if call.weights is None else call.weights.detach().clone()
    return call._replace(
        positions=positions, values=values, queries=queries, decay=decay, weights=weights
    )


class _Sample(NamedTuple):
    """Sampled points: their numbers (S,), of which the first ``at_random`` were drawn at random.
    ``generator`` draws further random numbers."""

    points: Tensor
    at_random: int
    is_whole: bool
    generator: torch.Generator

    @classmethod
    def draw(cls, targets: Tensor, samples: int, seed: int) -> _Sample:
        """Draws random points, and adds the farthest from the middle in some head."""
        count, heads = targets.shape[:2]
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(count, generator=generator)[:samples].to(targets.device)
        distance = (targets.double() - targets.double().mean(dim=0)).norm(dim=2)
        far = distance.topk(min(count, -(-samples // (8 * heads))), dim=0).indices.unique()
        points = torch.cat([drawn, far[~torch.isin(far, drawn)]])
        return cls(points, len(drawn), len(drawn) == count, generator)


def _compare(out: Tensor, exact: Tensor, sample: _Sample, normalise: bool) -> AttentionError:
    """Compares outputs (S, H, C) of a method and of the exact sum, without the cosine."""
    square = (out.double() - exact).square().sum(dim=2)  # (S, H)
    drawn, drawn_square = exact[: sample.at_random], square[: sample.at_random]
    away, least = _spread(drawn) if normalise else _sizes(drawn)
    unit = away.mean(dim=0).maximum(least)  # (H,)
    deviation = (drawn_square.mean(dim=0) / unit).sqrt()
    interval = deviation.expand(2, -1)
    if not sample.is_whole:
        again = torch.randint(len(drawn), (RESAMPLES, len(drawn)), generator=sample.generator).to(
            square.device
        )
        deviations = (
            drawn_square[again].mean(dim=1) / away[again].mean(dim=1).maximum(least)
        ).sqrt()
        interval = deviations.quantile(deviation.new_tensor([0.025, 0.975]), dim=0)
    worst_error, index = (square / unit).sqrt().topk(min(WORST, len(square)), dim=0)
    return AttentionError(deviation, interval, deviation, sample.points[index], worst_error)


def deviations(out: Tensor, exact: Tensor) -> Tensor:
    """Returns the :class:`AttentionError` ``deviation`` of random outputs (S, H, C), (H,)."""
    away, least = _spread(exact)
    square = (out.double() - exact).square().sum(dim=2)
    return (square.mean(dim=0) / away.mean(dim=0).maximum(least)).sqrt()


def _spread(exact: Tensor) -> tuple[Tensor, Tensor]:
    """Returns outputs' squared distances from their mean, (S, H), and a lower bound, (H,)."""
    least = (LEAST_DEVIATION**2 * exact.square().sum(dim=2).mean(dim=0)).clamp(
        min=torch.finfo(torch.float64).tiny
    )
    return (exact - exact.mean(dim=0)).square().sum(dim=2), least


def _sizes(exact: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the squares of outputs (S, H, C), (S, H), and a lower bound of their mean, (H,)."""
    square = exact.square().sum(dim=2)
    return square, square.new_full(square.shape[1:], torch.finfo(torch.float64).tiny)


Attend = Callable[[AttentionCall], Tensor]  # computes the output of a call


def _attend(call: AttentionCall) -> Tensor:
    return run_call(call, True, False)[0]


def _sum(call: AttentionCall) -> Tensor:
    return run_call(call, False, False)[0]


def exact_outputs(
    cloud: AttentionCall, points: Tensor, grad: Tensor, attend: Attend = _attend
) -> tuple[Tensor, Tensor]:
    """Computes exact attention at some points in float64, and its gradient.

    Args:
        cloud (AttentionCall): A call of :func:`detach_call`.
        points (torch.Tensor): Indices of the points, (S,).
        grad (torch.Tensor): The gradient of the loss by their outputs, (S, H, C).
        attend (callable, optional): Computes outputs. (default: in one process)

    Returns:
        The outputs (S, H, C), and the gradient of the loss by all positions (N, H, D). In
        cross-attention the gradient by the queries follows, (N+M, H, D).
    """
    keys = cloud.positions.detach().double().requires_grad_()  # a leaf of its own
    targets = cloud.positions if cloud.queries is None else cloud.queries
    target_batch = cloud.batch if cloud.queries is None else cloud.query_batch
    asked = targets.detach()[points].double().requires_grad_()
    asked_batch = None if target_batch is None else target_batch[points]
    exact = cloud._replace(
        positions=keys,
        values=cloud.values.double(),
        queries=asked,
        query_batch=asked_batch,
        method="exact",
    )
    out = attend(exact)
    of_keys, of_asked = torch.autograd.grad(out, (keys, asked), grad)
    of_targets = torch.zeros(targets.shape, dtype=of_asked.dtype, device=of_asked.device)
    of_targets[points] = of_asked
    slope = of_keys + of_targets if cloud.queries is None else torch.cat([of_keys, of_targets])
    return out.detach(), slope


def method_outputs(
    cloud: AttentionCall, points: Tensor, grad: Tensor, attend: Attend = _attend
) -> tuple[Tensor, Tensor]:
    """Computes :func:`exact_outputs` by the method of the call, in the type of its points."""
    given = [t.detach().requires_grad_() for t in (cloud.positions, cloud.queries) if t is not None]
    out = attend(cloud._replace(positions=given[0], queries=None if len(given) == 1 else given[1]))
    slope = torch.autograd.grad(out[points], given, grad.to(out.dtype))
    return out[points].detach(), torch.cat(slope).double()


def slope_products(slope: Tensor, exact: Tensor) -> Tensor:
    """Computes per head the dot products ``<a,a>``, ``<b,b>``, ``<a,b>`` of two gradients (N, H,
    D), (3, H). Results of disjoint sets of points can be added."""
    return torch.stack(
        [
            (one * other).sum(dim=(0, 2))
            for one, other in ((slope, slope), (exact, exact), (slope, exact))
        ]
    )


def cosines(products: Tensor) -> Tensor:
    """Returns the cosine of two gradients per head, (H,): 1 if both are 0, 0 if one is."""
    of_slope, of_exact, of_both = products
    norms = of_slope.sqrt() * of_exact.sqrt()
    cosine = of_both / torch.where(norms > 0, norms, 1.0)
    return torch.where((of_slope == 0) & (of_exact == 0), 1.0, cosine)
