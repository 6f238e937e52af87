r"""The choices of the ladder, one by one: errors of ``lattice`` with each of them changed.

A variant replaces constants or functions of ``phgcn.lattice.ladder``, from which every backend takes
its numbers, so that nothing in the package knows of it.  Other smoothing than one pass along each
direction would take other maps in every backend, and is not measured here.
"""  # noqa: E501

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from unittest.mock import patch

import common
import numpy as np
import torch
from registry import measurement

import phgcn
from phgcn.kernels import KERNELS
from phgcn.lattice import ladder
from phgcn.lattice.reference.ladder import build, reduce, splat
from phgcn_lab.markdown import table

COUNT, CHANNELS, SAMPLED = 4000, 4, 200
DIMS = (1, 2, 3, 4)
CLOUDS = ("spread 0.01", "spread 0.3", "spread 1", "spread 3", "spread 10", "clusters", "core")
CHOSEN = "as it is"

solve, bump, errors_of_cloud = (
    ladder.nonnegative_least_squares,
    ladder.bump,
    ladder.errors_of_cloud,
)


def octaves_only(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    first = matrix.shape[1] % 2  # the number of steps is even, and step 0 may be left out
    steps = np.arange(first, matrix.shape[1] + first)
    return solve(np.where((steps % 2 == 1) & (steps > 1), 0.0, matrix), target)


def without_sums(*arguments: object) -> ladder.CloudErrors:
    """The least squares of a cloud without the rows of the sums of weights, the mass."""
    errors = errors_of_cloud(*arguments)
    points, steps = len(arguments[1]), errors.rows.shape[1]
    kept = np.arange(len(errors.rows)) % (points + 1 + steps) != points
    return errors._replace(rows=errors.rows[kept], target=errors.target[kept])


@lru_cache
def sampled_bump(dim: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """A bump estimated from pairs at random places, as exact ones would be without an integral."""
    if step > 5:
        return sampled_bump(dim, 4 + step % 2)
    random, distance = np.random.default_rng(step), bump(dim, step)[0]
    value, spacing = np.zeros(len(distance)), 2.0 ** ladder.level(step)
    for _ in range(SAMPLED):
        direction = random.standard_normal(dim)
        away = spacing * distance[:, None] * direction / np.linalg.norm(direction)
        points = np.concatenate([np.zeros((1, dim)), away]) + 50 * random.random(dim)
        found = build(torch.from_numpy(points), ladder.Rung(0, 6, 0.0), step + 1)
        rows = reduce(splat(torch.eye(len(points), dtype=torch.float64), found), found.steps)[-1]
        value += (rows[:, 0] @ rows[:, 1:]).numpy() / SAMPLED
    return distance, value


VARIANTS: dict[str, dict[str, object]] = {
    CHOSEN: {},
    f"bumps estimated from {SAMPLED} pairs": {"bump": sampled_bump},
    "octaves only: $U_0$ and $T_k$": {"nonnegative_least_squares": octaves_only},
    "first weighted step $T_1$": {"WIDE_REACH": 0.0},
    "no rows of the mass": {"errors_of_cloud": without_sums},
    "no rows of the scatter": {"SCATTER": (0.0,) * 6},
    "window up to the diameter": {"WINDOW": 1},
    "no window": {"WINDOW": 99},
}


@contextmanager
def replaced(numbers: dict[str, object]) -> Iterator[None]:
    """Replaces numbers of the ladder; what was computed from others is forgotten."""
    ladder.ladder_numbers.cache_clear()
    with patch.multiple(ladder, **{"LIMIT": ladder.LIMIT, **numbers}):
        yield
    ladder.ladder_numbers.cache_clear()


def points_of(cloud: str, dim: int) -> torch.Tensor:
    if cloud != "core":
        return common.cloud(cloud, COUNT, dim)
    points = common.cloud("spread 0.01", COUNT, dim)
    points[: COUNT // 20] *= 300
    return points


def measure(cloud: str, dim: int, kernel: str = "exponential") -> dict:
    """The error against the deviation, and the cosine of the gradient."""
    values = common.random_features(COUNT, CHANNELS)
    given = {"decay": 1.0, "method": "lattice", "kernel": kernel, "samples": 256}
    error = phgcn.attention_error(points_of(cloud, dim), values, **given)
    found = {"deviation": float(error.deviation), "cosine": float(error.gradient_cosine)}
    return {"cloud": cloud, "dim": dim, "kernel": kernel, **found}


def summary(rows: list[dict]) -> str:
    errors = [row["deviation"] for row in rows]
    cosine = min(row["cosine"] for row in rows)
    return f"{statistics.median(errors):.3f} / {max(errors):.3f} / {cosine:.3f}"


def by_row(rows: list[dict], key: str) -> list[list[str]]:
    names = list(dict.fromkeys(row[key] for row in rows))
    return [
        [name, *(summary([r for r in rows if (r[key], r["dim"]) == (name, d)]) for d in DIMS)]
        for name in names
    ]


def choice_table(content: dict) -> list[str]:
    """Errors of the ladder with one choice changed."""
    return table(["choice", *(f"D = {d}" for d in DIMS)], by_row(content["choices"], "variant"))


def kernel_table(content: dict) -> list[str]:
    """Errors of the ladder by kernel."""
    return table(["kernel", *(f"D = {d}" for d in DIMS)], by_row(content["kernels"], "kernel"))


@measurement(tables=lambda content: [*choice_table(content), "", *kernel_table(content)])
def ladder_choices(options: argparse.Namespace) -> dict:
    """Errors of the lattice with each choice of the ladder changed, and by kernel."""
    choices, kernels = [], []
    for name, numbers in VARIANTS.items():
        with replaced(numbers):
            rows = [measure(cloud, dim) for dim in DIMS for cloud in CLOUDS]
        choices += [{"variant": name, **row} for row in rows]
        assert all(math.isfinite(row["deviation"]) for row in rows)
    for kernel in KERNELS:
        kernels += [measure(cloud, dim, kernel) for dim in DIMS for cloud in CLOUDS]
    return {"count": COUNT, "choices": choices, "kernels": kernels}
