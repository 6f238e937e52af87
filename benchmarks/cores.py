r"""Measures clouds with a small core, drawn at random: error, gradient and time with nested boxes and without.

    python benchmarks/cores.py            # writes benchmarks/results/cores.json, some minutes
    python benchmarks/cores.py --quick    # few clouds, to see that it works

Each cloud is one of nine kinds, with widths, shares and tails drawn at random.  Those that have no core by
:mod:`phgcn.lattice.nested` are counted and left out.  *Without*: no cloud is looked at, as if all had too few points.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import common
import numpy as np
import torch
from common import random_features
from torch import Tensor

import phgcn
from phgcn.lattice import nested

METHODS = ("lattice", "lattice-fine")
DRAWS = {2000: (16, METHODS), 20_000: (8, ("lattice",))}
"""By the number of points, draws of each kind, and methods."""
SAMPLES = 500
"""Points whose exact outputs are compared."""
SEED = common.SEED + 1
"""Not the seed of the clouds on which the boxes were chosen."""

Random = np.random.Generator


def width(rng: Random) -> float:
    return 10 ** rng.uniform(-3, -1)


def student(rng: Random, count: int, dim: int) -> np.ndarray:
    """Student's t distribution, of the distance from the middle."""
    freedom = rng.uniform(0.8, 5)
    return width(rng) * rng.standard_normal((count, dim)) / np.sqrt(rng.chisquare(freedom, (count, 1)) / freedom)


def student_by_coordinate(rng: Random, count: int, dim: int) -> np.ndarray:
    return width(rng) * rng.standard_t(rng.uniform(0.8, 4), (count, dim))


def log_normal(rng: Random, count: int, dim: int) -> np.ndarray:
    """Any direction, and the logarithm of the distance normal."""
    z = rng.standard_normal((count, dim))
    return (
        width(rng)
        * z
        / np.linalg.norm(z, axis=1, keepdims=True)
        * np.exp(rng.uniform(0.5, 2) * rng.standard_normal((count, 1)))
    )


def flat(rng: Random, count: int, dim: int) -> np.ndarray:
    """A core of another width along each coordinate, and up to a tenth of the points around it."""
    points, far = rng.standard_normal((count, dim)) * 10 ** rng.uniform(-3, 0, dim), int(count * rng.uniform(0, 0.1))
    points[:far] = rng.standard_normal((far, dim)) * 10 ** rng.uniform(-1, 1)
    return points


def beside(rng: Random, count: int, dim: int) -> np.ndarray:
    """A core at the edge of the other points."""
    points, far = (
        rng.standard_normal((count, dim)) * width(rng) + 5 * rng.standard_normal(dim),
        int(rng.integers(1, count // 10)),
    )
    points[:far] = 3 * rng.standard_normal((far, dim))
    return points


def four_widths(rng: Random, count: int, dim: int) -> np.ndarray:
    return rng.standard_normal((count, dim)) * rng.choice(10 ** rng.uniform(-3, 1, 4), (count, 1))


def two_places(rng: Random, count: int, dim: int) -> np.ndarray:
    """Two clusters, and a few points around them."""
    points, far = rng.standard_normal((count, dim)) * width(rng), int(0.03 * count)
    points[: count // 2] += 10 ** rng.uniform(-1, 1)
    points[:far] = 5 * rng.standard_normal((far, dim))
    return points


def pin(rng: Random, count: int, dim: int) -> np.ndarray:
    """A core on a line of up to an eighth of the points."""
    points, far = rng.standard_normal((count, dim)) * width(rng), int(count * rng.uniform(0.01, 0.12))
    points[:far, 0] += rng.uniform(-10, 10, far)
    return points


def four_scales(rng: Random, count: int, dim: int) -> np.ndarray:
    """Gaussians of widths from 0.001 to 1 around one place, each with a third of the points of the one before."""
    return rng.standard_normal((count, dim)) * 10.0 ** (np.minimum(rng.geometric(0.7, (count, 1)), 4) - 4)


KINDS: dict[str, Callable[[Random, int, int], np.ndarray]] = {
    "Student's t": student,
    "Student's t by coordinate": student_by_coordinate,
    "log-normal": log_normal,
    "flat core": flat,
    "core at the edge": beside,
    "four widths": four_widths,
    "two places": two_places,
    "core on a line": pin,
    "four scales": four_scales,
}


@contextmanager
def nested_boxes(wanted: bool) -> Iterator[None]:
    """Lets no cloud be looked at where they are not wanted."""
    least = nested.LEAST_POINTS
    nested.LEAST_POINTS = least if wanted else sys.maxsize
    try:
        yield
    finally:
        nested.LEAST_POINTS = least


def attend(points: Tensor, values: Tensor, method: str) -> tuple[Tensor, float]:
    """Output, and processor time forward and backward."""
    leaf, begin = points.clone().requires_grad_(), time.process_time()
    out = phgcn.global_attention(leaf, values, decay=1.0, method=method)
    out.backward(torch.ones_like(out))
    return out.detach(), time.process_time() - begin


def measure(kind: str, count: int, draw: int, methods: Sequence[str]) -> list[dict]:
    """Errors and times of some methods on one cloud; empty where it has no core."""
    rng = np.random.default_rng([SEED, list(KINDS).index(kind), count, draw])
    dim = 1 + draw % 8
    points, values = torch.as_tensor(KINDS[kind](rng, count, dim)).float(), random_features(count, 3)
    rows = []
    for method in methods:
        row, outs = {"kind": kind, "dim": dim, "count": count, "method": method}, []
        for name, wanted in (("without", False), ("with", True)):
            with nested_boxes(wanted):
                out, seconds = attend(points, values, method)
                error = phgcn.attention_error(points, values, decay=1.0, method=method, samples=SAMPLES)
            row[name] = {"deviation": float(error.deviation), "cosine": float(error.gradient_cosine), "seconds": seconds}
            outs.append(out)
        if not torch.equal(*outs):
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one cloud of each kind")
    options = parser.parse_args()
    attend(torch.randn(2000, 4), torch.randn(2000, 3), "lattice")  # compiles kernels
    rows, clouds = [], 0
    for kind in KINDS:
        for count, (draws, methods) in DRAWS.items():
            for draw in range(1 if options.quick else draws):
                rows += measure(kind, count, draw, methods)
                clouds += 1
        print(f"{kind}: {sum(row['kind'] == kind for row in rows)} rows", flush=True)
    about = {"provenance": common.provenance(SEED), "quick": options.quick, "clouds": clouds}
    common.write_json(common.RESULTS / "cores.json", {**about, "rows": rows})


if __name__ == "__main__":
    main()
