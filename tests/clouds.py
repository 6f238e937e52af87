"""What the tests share: point clouds, schemes to try, and the sums written out as dense matrices."""

from dataclasses import replace

import numpy as np
import torch

from phgcn.lattice import MultiScale, Separable
from phgcn.lattice.coefficients import FADE_START, multiscale_weights
from phgcn.lattice.geometry import kuhn_matrix, origin
from phgcn.lattice.pairs import orbit_products
from phgcn.lattice.scheme import named_scheme

BACKENDS = ("reference", "numba")


def normal(*shape, seed=0, dtype=torch.float64):
    """Standard normal numbers; the same for every dtype but for rounding."""
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def clusters(count, dim, seed=0):
    """Six Gaussian clusters of standard deviation 1, whose centres have 10; and the cluster of each point."""
    rng = np.random.default_rng(seed)
    centres, label = rng.standard_normal((6, dim)) * 10, rng.integers(0, 6, count)
    return torch.as_tensor(centres[label] + rng.standard_normal((count, dim))), torch.as_tensor(label)


def forced(method, dim, near_field, **changes):
    """A named scheme with a finest level of its own."""
    return replace(named_scheme(method, dim), near_field=near_field, **changes)


def schemes(dim):
    """Every kind of filter, with weights that need no new fit."""
    return {
        "exact": "exact",
        "all levels": forced("lattice", dim, 0),
        "near field": forced("lattice", dim, 1),
        "wide near field": forced("lattice", dim, 2),
        "two lattices": forced("lattice", dim, 1, lattices=2),
        "separable": Separable(),
    }


KINDS = tuple(schemes(2))
FULL = MultiScale(spacing=1.4, hops=(3,), near_field=0)
"""All vertices within three hops of one lattice: the paper's other reading."""


def dense_exact(queries, keys):
    """The matrix of exact weights."""
    return torch.exp(-torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist"))


def dense_lattice(queries, keys, scheme, itself):
    """The matrix that a multi-scale scheme stands for, one pair of points at a time, without splat, blur or slice."""
    dim, levels = keys.size(1), len(scheme.hops)
    fitted = multiscale_weights(scheme, dim)
    pairs = [t.reshape(-1, dim) for t in torch.broadcast_tensors(queries.unsqueeze(1), keys.unsqueeze(0))]
    weight = torch.zeros(len(pairs[0]), dtype=torch.float64)
    for lattice in range(scheme.lattices):
        matrix, shift = kuhn_matrix(dim).T / scheme.spacing, origin(dim, lattice) * 2 ** (levels - 1)
        first, second = (p @ matrix + shift for p in pairs)
        for k in range(scheme.near_field, levels):
            products = orbit_products(first / 2**k, second / 2**k, scheme.hops[k])
            weight += torch.as_tensor(products @ fitted.weights[k]) / scheme.lattices
    weight = weight.reshape(len(queries), len(keys))
    if scheme.near_field > 0:
        weight += _near(torch.cdist(queries, keys), fitted, scheme.near_field)
    return weight.fill_diagonal_(1.0) if itself else weight


def _near(r, fitted, level):
    basis = sum(a * torch.exp(-fitted.rate * 4**j * r**2) for j, a in enumerate(fitted.amplitude[level].tolist()))
    radius = fitted.radius[level]
    t = ((radius**2 - r**2) / (radius**2 - (FADE_START * radius) ** 2)).clamp(0, 1)
    return (torch.exp(-r) - basis) * t * t * (3 - 2 * t)


def with_cells(weight, positions, lone, heavy):
    """A matrix of weights whose rows of lone points are exact, but for heavy points, which are seen at the middle of all in the
    same cube of side 1."""
    cube = torch.unique(positions.detach().floor(), dim=0, return_inverse=True)[1]
    seen = [positions[heavy & (cube == cube[j])].mean(dim=0) if heavy[j] else positions[j] for j in range(len(positions))]
    return torch.where(lone.unsqueeze(1), dense_exact(positions, torch.stack(seen)), weight)


def applied(weight, values, normalise):
    """A matrix of weights applied to values."""
    return weight @ values / weight.sum(dim=1, keepdim=True) if normalise else weight @ values


def relative(got, want):
    """The norm of the difference over the norm of what is wanted."""
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).norm() / want.norm().clamp_min(1e-300))
