r"""How much a step of the ladder gives a pair depends on where the pair lies: ``SCATTER`` in
``phgcn/lattice/ladder.py``.

Pairs at distances from 0 to 1.5 spacings of the step's level, in random directions at random
positions: the largest standard deviation of what the step gives them, over the height of its bump.
"""

from __future__ import annotations

import argparse

import common
import numpy as np
import torch
from registry import measurement

from phgcn.lattice.ladder import Rung, bump, level
from phgcn.lattice.reference.ladder import build, reduce, splat
from phgcn_lab.markdown import table

DIMS, STEPS, PLACES = (2, 3, 4, 5), range(6), 120
DISTANCES = np.linspace(0, 1.5, 7)


def scatter(dim: int, step: int) -> float:
    """The largest standard deviation over distances, over the height of the bump."""
    random, given = np.random.default_rng(common.SEED), np.empty((PLACES, len(DISTANCES)))
    for place in range(PLACES):
        direction = random.standard_normal(dim)
        spacing = 2.0 ** level(step)
        away = spacing * DISTANCES[:, None] * direction / np.linalg.norm(direction)
        points = torch.from_numpy(
            np.concatenate([np.zeros((1, dim)), away]) + 50 * random.random(dim)
        )
        ladder = build(points, Rung(0, 6, 0.0), step + 1)
        table = reduce(splat(torch.eye(len(points), dtype=torch.float64), ladder), ladder.steps)[-1]
        given[place] = table[:, 0] @ table[:, 1:]
    return float(given.std(axis=0).max() / bump(dim, step)[1][0])


def scatter_table(content: dict) -> list[str]:
    """By step and dimension: how much what a step gives a pair depends on where the pair lies."""
    found = {(row["step"], row["dim"]): row["scatter"] for row in content["rows"]}
    steps, dims = (sorted({key[i] for key in found}) for i in (0, 1))
    names = [f"${'TU'[step % 2]}_{step // 2}$" for step in steps]
    cells = [
        [f"{found[step, dim]:.3f}" if (step, dim) in found else "" for dim in dims]
        for step in steps
    ]
    return table(
        ["step", *(f"D = {dim}" for dim in dims)],
        [[name, *row] for name, row in zip(names, cells, strict=True)],
    )


@measurement(tables=scatter_table)
def ladder_scatter(options: argparse.Namespace) -> dict:
    """Dependence of what a step of the ladder gives a pair on where the pair lies."""
    cases = [(dim, step) for dim in DIMS for step in STEPS if (dim, step) != (5, 5)]
    return {"rows": [{"dim": d, "step": s, "scatter": scatter(d, s)} for d, s in cases]}
