r"""Draws the permutohedral lattice in two dimensions: splat, smoothing and nesting.

    python docs/figures/draw_lattice.py

Writes ``lattice.svg`` and ``lattice.png`` beside this script.  Simplices and weights are those that
the library computes."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from matplotlib.axes import Axes
from page import INK, LINE, POINT, new, save

from phgcn.lattice.geometry import kuhn_matrix, locate

# from a vertex, in Kuhn coordinates: the sides of the two triangles of each square
EDGES = ((1, 0), (0, 1), (1, 1))
VISIBLE = 5.5
ORBITS = ("#08306b", "#2171b5", "#6baed6", "#c6dbef")


def plane(kuhn: object) -> np.ndarray:
    """Kuhn coordinates as positions in the plane, in shortest lattice vectors."""
    return np.asarray(kuhn, dtype=float) @ np.linalg.inv(kuhn_matrix(2).numpy()).T


def grid(axis: Axes, reach: int = 6, step: int = 1, colour: str = LINE, width: float = 0.8) -> None:
    """The triangulation with every ``step``-th vertex, as far as it can be seen."""
    gap = np.full((1, 2), np.nan)
    lines = [
        np.concatenate([plane([(i, j), (i + step * a, j + step * b)]), gap])
        for i, j in itertools.product(range(-reach, reach + 1, step), repeat=2)
        for a, b in EDGES
        if np.linalg.norm(plane((i, j))) < VISIBLE
    ]
    axis.plot(*np.concatenate(lines).T, color=colour, linewidth=width, zorder=1)


def frame(axis: Axes, title: str, centre: object, half: float) -> None:
    x, y = plane(centre)
    axis.set(
        xlim=(x - half, x + half), ylim=(y - half, y + half), aspect="equal", xticks=[], yticks=[]
    )
    axis.set_title(title, fontsize=8.5, color=INK, pad=6)
    axis.spines[:].set_visible(True)
    for side in axis.spines.values():
        side.set_color(LINE)


def draw_splat(axis: Axes) -> None:
    """A point, its simplex, and its barycentric weights."""
    w = torch.tensor([[0.70, 0.15]], dtype=torch.float64)
    vertices, weights = (t[0].numpy() for t in locate(w))
    corner, point = plane(vertices), plane(w.numpy())[0]
    grid(axis)
    axis.fill(*corner.T, color=POINT, alpha=0.10, zorder=2, linewidth=0)
    middle = corner.mean(axis=0)
    for place, weight in zip(corner, weights, strict=True):
        way = {
            "arrowstyle": "-|>",
            "color": POINT,
            "lw": 0.6 + 3 * weight,
            "shrinkA": 0,
            "shrinkB": 12,
        }
        axis.annotate("", place, point, arrowprops=way, zorder=3)
        axis.scatter(*place, s=60 + 250 * weight, color=ORBITS[1], zorder=4, edgecolors="white")
        x, y = place + 0.3 * (place - middle) / np.linalg.norm(place - middle)
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"}
        axis.text(
            x,
            y,
            f"{weight:.2f}",
            ha="center",
            va="center",
            fontsize=11,
            color=INK,
            bbox=box,
            zorder=5,
        )
    axis.scatter(*point, s=55, color=POINT, zorder=6, edgecolors="white")
    frame(
        axis,
        "Splat: a point gives to the corners\nof its simplex; slice reads them back",
        (0.7, 0.3),
        1.35,
    )


def draw_smoothing(axis: Axes) -> None:
    """What a vertex gives to those around it: half to itself and half to its neighbour, along one
    direction after the other.
    """
    grid(axis)
    shares: dict[tuple[int, int], float] = {}
    for taken in itertools.product((0, 1), repeat=3):
        place = taken[0] - taken[2], taken[1] - taken[2]  # the three directions add up to 0
        shares[place] = shares.get(place, 0.0) + 1 / 8
    for place, share in shares.items():
        x, y = plane(place)
        colour = ORBITS[0 if share > 1 / 8 else 2]
        axis.scatter(x, y, s=2400 * share, color=colour, edgecolors=INK, linewidths=0.6, zorder=3)
        axis.text(
            x,
            y,
            "¼" if share > 1 / 8 else "⅛",
            ha="center",
            va="center",
            fontsize=12,
            color="white",
            zorder=4,
        )
    title = "Smooth: half stays and half moves on,\nalong each of the three directions"
    frame(axis, title, (0, 0), 2.0)


def draw_nesting(axis: Axes) -> None:
    """Two levels: a fine vertex lies on a coarse one or halfway between two, its parents."""
    grid(axis, colour=LINE, width=0.7)
    grid(axis, step=2, colour=ORBITS[1], width=1.6)
    window = [
        v for v in itertools.product(range(-6, 7), repeat=2) if np.linalg.norm(plane(v)) < 4.2
    ]
    fine = plane([v for v in window if any(c % 2 for c in v)])
    coarse = plane([v for v in window if not any(c % 2 for c in v)])
    axis.scatter(*fine.T, s=26, color="white", edgecolors=INK, linewidths=0.8, zorder=3)
    axis.scatter(*coarse.T, s=110, color=ORBITS[1], edgecolors="white", zorder=4)
    for vertex in ((1, 0), (1, 2), (-1, -1)):
        parents = 2 * np.array([[c // 2 for c in vertex], [-(-c // 2) for c in vertex]])
        here = plane(vertex)
        axis.scatter(*here, s=50, color=POINT, edgecolors="white", zorder=5)
        for parent in plane(parents):
            axis.annotate(
                "",
                here + 0.86 * (parent - here),
                here,
                arrowprops={"arrowstyle": "-|>", "color": POINT, "lw": 1.8},
                zorder=4,
            )
            x, y = (
                here
                + 0.45 * (parent - here)
                + 0.2 * np.array([-(parent - here)[1], (parent - here)[0]])
            )
            axis.text(x, y, "½", ha="center", va="center", fontsize=11, color=POINT, zorder=5)
    frame(
        axis,
        "Nested levels: a fine vertex v gives\nhalf to ⌊v/2⌋ and half to ⌈v/2⌉",
        (0, 0),
        2.9,
    )


def main() -> None:
    figure, axes = new(3.1, columns=3)
    draw_splat(axes[0])
    draw_smoothing(axes[1])
    draw_nesting(axes[2])
    save(figure, "lattice")


if __name__ == "__main__":
    main()
