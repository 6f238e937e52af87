"""What the tests share: point clouds, schemes to try, and the sums written out as dense
matrices."""

import numpy as np
import torch

from phgcn.lattice import Ladder, Separable

BACKENDS = ("reference", "numba")


def normal(*shape, seed=0, dtype=torch.float64):
    """Standard normal numbers; the same for every dtype but for rounding."""
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def clusters(count, dim, seed=0):
    """Six Gaussian clusters of standard deviation 1, whose centres have 10; and the cluster of each
    point.
    """
    rng = np.random.default_rng(seed)
    centres, label = rng.standard_normal((6, dim)) * 10, rng.integers(0, 6, count)
    return torch.as_tensor(centres[label] + rng.standard_normal((count, dim))), torch.as_tensor(
        label
    )


def schemes(dim):
    """Every kind of filter: the ladder with a near field of few pairs, so that small clouds have
    levels too.
    """
    return {
        "exact": "exact",
        "no near field": Ladder(pairs=0),
        "near field": Ladder(pairs=4),
        "fine": Ladder(pairs=3, reach=2.4, fineness=0.7),
        "separable": Separable(),
    }


KINDS = tuple(schemes(2))


def dense_exact(queries, keys, kernel="exponential"):
    """The matrix of exact weights, each kernel by its formula."""
    r = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")
    return {
        "exponential": lambda: torch.exp(-r),
        "gaussian": lambda: torch.exp(
            -((queries.unsqueeze(1) - keys.unsqueeze(0)) ** 2).sum(dim=2) / 2
        ),
        "matern32": lambda: (1 + 3**0.5 * r) * torch.exp(-(3**0.5) * r),
        "matern52": lambda: (1 + 5**0.5 * r + 5 / 3 * r**2) * torch.exp(-(5**0.5) * r),
    }[kernel]()


def applied(weight, values, normalise):
    """A matrix of weights applied to values."""
    return weight @ values / weight.sum(dim=1, keepdim=True) if normalise else weight @ values


def relative(got, want):
    """The norm of the difference over the norm of what is wanted."""
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).norm() / want.norm().clamp_min(1e-300))
