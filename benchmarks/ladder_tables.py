r"""The table of the ladder beside the multi-scale lattice, from the JSON of ``benchmarks/ladder.py``."""

from __future__ import annotations

import math
import statistics

from markdown_lines import table

HEADS = (
    "D",
    "N",
    "clouds",
    "method",
    "error, median / worst",
    "gradient cosine, median",
    "as accurate as `lattice`",
    "time / `lattice`'s",
)
AS_ACCURATE = 1.02, 1e-3
"""A method is as accurate as another if its error is at most so many times, plus so much."""


def summary(rows: list[dict]) -> list[list[str]]:
    """Per number of points, dimension and method: errors, cosines, and how often the method is as accurate as ``lattice``."""
    lines = []
    for count, dim in sorted({(row["count"], row["dim"]) for row in rows}):
        here = [row for row in rows if (row["count"], row["dim"]) == (count, dim)]
        before = {row["cloud"]: row for row in here if row["method"] == "lattice"}
        for method in dict.fromkeys(row["method"] for row in here):
            found = [row for row in here if row["method"] == method]
            errors = [row["error"] for row in found if math.isfinite(row["error"])]
            bound = {name: AS_ACCURATE[0] * row["error"] + AS_ACCURATE[1] for name, row in before.items()}
            as_accurate = sum(not row["error"] > bound[row["cloud"]] for row in found)
            ratios = [row["seconds"] / before[row["cloud"]]["seconds"] for row in found if "seconds" in row]
            lines.append([
                str(dim), f"{count:,}", str(len(found)), method, f"{statistics.median(errors):.3f} / {max(errors):.3f}",
                f"{statistics.median(row['cosine'] for row in found if math.isfinite(row['cosine'])):.3f}",
                f"{as_accurate} of {len(found)}", f"{statistics.median(ratios):.2f}" if ratios else "",
            ])  # fmt: skip
    return lines


def ladder_table(content: dict) -> list[str]:
    """The table of the engineering notes."""
    return table(HEADS, summary(content["rows"]))


def scatter_table(content: dict) -> list[str]:
    """By step and dimension: how much what a step gives a pair depends on where the pair lies."""
    found = {(row["step"], row["dim"]): row["scatter"] for row in content["rows"]}
    steps, dims = (sorted({key[i] for key in found}) for i in (0, 1))
    names = [f"${'TU'[step % 2]}_{step // 2}$" for step in steps]
    cells = [[f"{found[step, dim]:.3f}" if (step, dim) in found else "" for dim in dims] for step in steps]
    return table(["step", *(f"D = {dim}" for dim in dims)], [[name, *row] for name, row in zip(names, cells, strict=True)])
