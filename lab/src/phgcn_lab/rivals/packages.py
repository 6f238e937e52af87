r"""Attention by other packages, imported when called. pykeops and FlexAttention have gradients."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .sums import add_ones, divide

TREE_QUERIES = 64
"""Queries of a tree that are asked; each takes its own time, so that all would take as many times
longer.
"""


class Sampled(NamedTuple):
    """Outputs of the first of the sampled points alone, and the seconds that all points would
    take."""

    out: Tensor
    seconds: float


def tree(points: Tensor, values: Tensor, sample: Tensor, algorithm: str, rtol: float) -> Sampled:
    """Sums by scikit-learn's ``KernelDensity``: one weighted density for the denominator and for
    each channel, shifted to be positive. ``rtol`` is the relative error that a density may have.
    """
    density = importlib.import_module("sklearn.neighbors").KernelDensity
    positions = points.double().numpy()
    asked = positions[sample[:TREE_QUERIES].numpy()]
    low = values.double().amin(dim=0) - 1
    weights = add_ones(values.double() - low).T.numpy()
    settings = {"bandwidth": 1.0, "algorithm": algorithm, "kernel": "exponential", "rtol": rtol}
    building, asking, sums = 0.0, 0.0, []
    for weight in weights:
        begin = time.perf_counter()
        model = density(**settings).fit(positions, sample_weight=weight)
        built = time.perf_counter()
        sums.append(np.exp(model.score_samples(asked)) * weight.sum())
        building, asking = building + built - begin, asking + time.perf_counter() - built
    out = torch.from_numpy(np.stack(sums, axis=1))
    return Sampled(out[:, :-1] / out[:, -1:] + low, building + asking * len(points) / len(asked))


def fourier(points: Tensor, values: Tensor, expansion: int, near: int) -> Tensor:
    """Sums by pyNFFT3's kernel ``laplacian_rbf`` with ``expansion`` frequencies in each dimension;
    pairs within ``near`` steps of the grid are summed one by one.
    """
    package = importlib.import_module("pyNFFT3")
    border, smoothness = 1 / 16, 4
    positions = points.double().numpy()
    positions = positions - positions.mean(axis=0)
    scale = 0.999 * 0.5 * (0.5 - border) / np.linalg.norm(positions, axis=1).max()
    shape, count = {"n": expansion, "nn": 2 * expansion, "p": smoothness, "m": 4}, len(points)
    sizes, borders = (points.size(1), count, count), {"eps_I": near / expansion, "eps_B": border}
    plan = package.FASTSUM(*sizes, "laplacian_rbf", scale, **borders, **shape)
    plan.x = plan.y = np.ascontiguousarray(scale * positions)
    sums = []
    for weight in (*values.double().numpy().T, np.ones(count)):
        plan.alpha = weight.astype(np.complex128)
        plan.trafo()
        sums.append(plan.f.real.copy())
    out = torch.from_numpy(np.stack(sums, axis=1))
    return divide(out, values)


def densecrf(points: Tensor, values: Tensor, gaussians: int) -> Tensor:
    """Sums by pydensecrf2, whose lattice filters by Gaussians, of which :math:`e^{-r}` is a sum.

    A step of inference filters the labels' probabilities: values are turned into those, and the
    filter's output is what the step adds to the unary energy.
    """
    package = importlib.import_module("pydensecrf.densecrf")
    channels, low = values.size(1), values.amin(dim=0)
    unit = (values.amax(dim=0) - low) * channels / 0.9
    shares = (values - low) / unit + 0.05 / channels
    shares = torch.cat([shares, 1 - shares.sum(dim=1, keepdim=True)], dim=1)
    energy = -shares.log().T.contiguous().numpy()
    crf = package.DenseCRF(len(points), channels + 1)
    crf.setUnaryEnergy(energy)
    for width, weight in zip(*gaussian_mixture(gaussians), strict=True):
        place = (points.T / width).contiguous().numpy()
        crf.addPairwiseEnergy(place, compat=weight, normalization=package.NO_NORMALIZATION)
    probabilities, _, spare = crf.startInference()
    # the one it makes cannot be read
    filtered = importlib.import_module("pydensecrf.eigen").matrixXf(np.zeros_like(energy))
    crf.stepInference(probabilities, filtered, spare)
    sums = torch.from_numpy(np.array(filtered) + energy).T
    return (sums[:, :-1] / sums.sum(dim=1, keepdim=True) - 0.05 / channels) * unit + low


def gaussian_mixture(count: int) -> tuple[list[float], list[float]]:
    """Widths and weights of Gaussians whose sum is nearly :math:`e^{-r}`."""
    nnls: Any = importlib.import_module("scipy.optimize").nnls
    widths = np.geomspace(1 / count, count, count)
    distance = np.linspace(0.0, 8.0, 400)
    weights, _ = nnls(np.exp(-(distance[:, None] ** 2) / (2 * widths**2)), np.exp(-distance))
    return widths.tolist(), weights.tolist()


def keops(points: Tensor, values: Tensor) -> Tensor:
    lazy = importlib.import_module("pykeops.torch").LazyTensor
    difference = lazy(points[:, None, :]) - lazy(points[None, :, :])
    summed = (-difference.square().sum(dim=-1).sqrt()).exp() @ add_ones(values)
    out: Tensor = summed[:, :-1] / summed[:, -1:]
    return out


@lru_cache
def _compiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _minus_distance(score: Tensor, *_: Tensor) -> Tensor:
    return -score.clamp(min=1e-12).sqrt()


def flex(points: Tensor, values: Tensor) -> Tensor:
    r"""FlexAttention: the exact sum, with :math:`\lVert p \rVert^2 + \lVert q \rVert^2 - 2 p \cdot
    q` as the product of queries and keys, whose negative root is the score."""
    squared, one = points.square().sum(dim=1, keepdim=True), torch.ones_like(points[:, :1])
    empty = points.new_zeros(len(points), 14 - points.size(1))
    queries = torch.cat([-2 * points, squared, one, empty], dim=1)
    keys = torch.cat([points, one, squared, empty], dim=1)
    inputs = (part[None, None] for part in (queries, keys, values))
    out: Tensor = _compiled_flex()(*inputs, score_mod=_minus_distance, scale=1.0)[0, 0]
    return out
