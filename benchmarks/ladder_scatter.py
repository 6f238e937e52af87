r"""How much a step of the ladder gives a pair depends on where the pair lies: ``SCATTER`` in ``phgcn/lattice/ladder.py``.

    python benchmarks/ladder_scatter.py    # a minute; writes benchmarks/results/ladder_scatter.json

Pairs at distances from 0 to 1.5 spacings of the step's level, in random directions at random places: the largest standard
deviation of what the step gives them, over the height of its bump.
"""

from __future__ import annotations

import common
import numpy as np
import torch
from rich.progress import track

from phgcn.lattice.ladder import Rung, bump, level
from phgcn.lattice.reference.ladder import build, reduce, splat

DIMS, STEPS, PLACES = (2, 3, 4, 5), range(6), 120
DISTANCES = np.linspace(0, 1.5, 7)


def scatter(dim: int, step: int) -> float:
    """The largest standard deviation over distances, over the height of the bump."""
    random, given = np.random.default_rng(common.SEED), np.empty((PLACES, len(DISTANCES)))
    for place in range(PLACES):
        direction = random.standard_normal(dim)
        spacing = 2.0 ** level(step)
        away = spacing * DISTANCES[:, None] * direction / np.linalg.norm(direction)
        points = torch.from_numpy(np.concatenate([np.zeros((1, dim)), away]) + 50 * random.random(dim))
        ladder = build(points, Rung(0, 6, 0.0), step + 1)
        table = reduce(splat(torch.eye(len(points), dtype=torch.float64), ladder), ladder.steps)[-1]
        given[place] = table[:, 0] @ table[:, 1:]
    return float(given.std(axis=0).max() / bump(dim, step)[1][0])


def main() -> None:
    cases = [(dim, step) for dim in DIMS for step in STEPS if (dim, step) != (5, 5)]
    rows = [{"dim": dim, "step": step, "scatter": scatter(dim, step)} for dim, step in track(cases, "measuring")]
    common.write_json(common.RESULTS / "ladder_scatter.json", {"provenance": common.provenance(), "rows": rows})
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
