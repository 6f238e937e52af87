r"""Draws the paper's Fig. 1 anew: the layer with its two paths, and the lattices inside of the
global one: ``python docs/figures/draw_layer.py``.

Simplices and weights are those that the library computes."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from draw_lattice import EDGES, ORBITS, plane
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from page import INK, LINE, POINT, new, save

from phgcn.lattice.geometry import locate

LOCAL, GLOBAL = "#2a7f62", "#2171b5"
NODES = np.array([[0, 0], [0.75, 0.5], [0.8, -0.5], [-0.75, 0.45], [-0.6, -0.6], [1.6, 0.1]])
NODES = np.r_[NODES, [[-1.5, -0.1]]]
LINKS = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 5), (3, 6), (4, 6))
RADIUS, SIZE = 0.8, 0.5  # of the window on a lattice, and of its shortest vectors
UPPER, MIDDLE, LOWER = 4.0, 2.8, 1.35


def arrow(axis: Axes, start: tuple, end: tuple, colour: str = INK, route: str = "arc3") -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.5, "connectionstyle": route}
    axis.annotate("", end, start, arrowprops=style | {"shrinkA": 0, "shrinkB": 0}, zorder=2)


def box(axis: Axes, centre: tuple, width: float, height: float, text: str, colour: str) -> None:
    corner = centre[0] - width / 2, centre[1] - height / 2
    shape = {"boxstyle": "round,pad=0,rounding_size=0.12", "fc": "white", "ec": colour, "lw": 1.3}
    axis.add_patch(FancyBboxPatch(corner, width, height, zorder=3, **shape))
    axis.text(*centre, text, ha="center", va="center", linespacing=1.5, zorder=4)


def draw_graph(axis: Axes, centre: tuple, attends: bool) -> None:
    """Draws a small graph; with ``attends``, its middle node and the edges that it reads."""
    places = np.array(centre) + 0.52 * NODES
    for one, other in LINKS:
        read = attends and one == 0
        style = {"color": LOCAL if read else LINE, "lw": 2.2 if read else 1.2}
        axis.plot(*places[[one, other]].T, zorder=2, **style)
    for number, place in enumerate(places):
        colour = POINT if attends and number == 0 else LOCAL if attends and number < 5 else INK
        axis.add_patch(Circle(place, 0.1, fc=colour, ec="white", lw=0.8, zorder=3))


def draw_grid(axis: Axes, centre: tuple, step: int) -> None:
    """Draws a round window on the lattice whose vectors are ``step`` times the shortest."""
    window = Circle(centre, RADIUS, fc="none", ec="none", transform=axis.transData)
    axis.add_patch(window)
    for corner in itertools.product(range(-4, 5), repeat=2):
        for edge in EDGES:
            ends = plane([corner, np.add(corner, edge)]) * SIZE * step + centre
            axis.plot(*ends.T, color=LINE, lw=0.8, zorder=2)[0].set_clip_path(window)


def draw_points(axis: Axes, centre: tuple, back: bool) -> None:
    """Draws points that give to the corners of their triangles, or with ``back`` read them."""
    draw_grid(axis, centre, 1)
    for point, colour in (((0.55, 0.2), POINT), ((-0.75, -0.3), ORBITS[0])):
        where = torch.tensor([point], dtype=torch.float64)
        vertices, weights = (part[0].numpy() for part in locate(where))
        corners, place = (plane(x) * SIZE + centre for x in (vertices, where.numpy()[0]))
        axis.add_patch(Polygon(corners, fc=colour, alpha=0.12, ec="none", zorder=1))
        for corner, weight in zip(corners, weights, strict=True):
            ends = (place, corner) if back else (corner, place)
            style = {"arrowstyle": "-|>", "color": colour, "lw": 0.5 + 1.8 * weight}
            axis.annotate("", *ends, arrowprops=style | {"mutation_scale": 7, "shrinkB": 3})
            axis.add_patch(Circle(corner, 0.04 + 0.07 * weight, fc=GLOBAL, ec="white", zorder=4))
        axis.add_patch(Circle(place, 0.07, fc=colour, ec="white", lw=0.8, zorder=5))


def draw_bump(axis: Axes, centre: tuple, step: int) -> None:
    """Draws a lattice, and how far a vertex's value has moved on it."""
    draw_grid(axis, centre, step)
    window = Circle(centre, RADIUS, transform=axis.transData)
    for share, radius in ((0.25, 1.0), (0.5, 0.65), (0.9, 0.3)):
        shape = {"fc": GLOBAL, "alpha": 0.25 * share + 0.05, "ec": "none", "zorder": 1}
        bump = Circle(centre, radius * SIZE * (0.5 + 0.45 * step), **shape)
        axis.add_patch(bump)
        bump.set_clip_path(window)
    axis.add_patch(Circle(centre, 0.07, fc=GLOBAL, ec="white", zorder=3))


def draw(axis: Axes) -> None:
    axis.set(xlim=(0, 13), ylim=(0, 5.1), aspect="equal")
    axis.axis("off")
    draw_graph(axis, (0.95, MIDDLE), attends=False)
    axis.text(0.95, MIDDLE - 0.75, "graph: $x$, edges", ha="center")
    arrow(axis, (1.85, MIDDLE), (2.15, MIDDLE))
    box(axis, (3.15, MIDDLE), 2.0, 0.95, "values $f = Wx$\npositions $p = \\Phi f$", INK)
    arrow(axis, (3.15, MIDDLE + 0.47), (4.3, UPPER), LOCAL, "angle,angleA=90,angleB=0,rad=8")
    arrow(axis, (3.15, MIDDLE - 0.47), (4.3, LOWER), GLOBAL, "angle,angleA=90,angleB=0,rad=8")
    style = {"weight": "bold", "fontsize": 9.5}
    axis.text(
        4.4, 4.78, "structural path: each node attends to its neighbours", color=LOCAL, **style
    )
    text = "global path: each node attends to all, in linear time"
    axis.text(4.4, 2.42, text, color=GLOBAL, **style)
    draw_graph(axis, (5.3, UPPER), attends=True)
    arrow(axis, (6.25, UPPER), (6.6, UPPER), LOCAL)
    weights = r"$\alpha_{ij} \propto e^{-\lambda_s \Vert p_i - p_j \Vert}$ over neighbours $j$"
    box(axis, (8.6, UPPER), 4.0, 0.75, weights, LOCAL)
    for x, back in ((5.2, False), (10.75, True)):
        draw_points(axis, (x, LOWER), back)
    for x, step in ((7.05, 1), (8.9, 2)):
        draw_bump(axis, (x, LOWER), step)
    for left, right in ((5.2, 7.05), (7.05, 8.9), (8.9, 10.75)):
        arrow(axis, (left + RADIUS, LOWER), (right - RADIUS, LOWER), GLOBAL)
    names = ((5.2, "splat"), (7.98, "smooth, on ever coarser lattices"), (10.75, "slice"))
    for x, name in names:
        axis.text(x, 0.1, name, ha="center")
    arrow(axis, (10.6, UPPER), (12.2, MIDDLE + 0.47), LOCAL, "angle,angleA=0,angleB=90,rad=8")
    arrow(axis, (11.55, LOWER), (12.2, MIDDLE - 0.47), GLOBAL, "angle,angleA=0,angleB=90,rad=8")
    box(axis, (12.2, MIDDLE), 1.5, 0.95, "side by side:\n$x'$", INK)


def main() -> None:
    figure, axis = new(3.25)
    draw(axis)
    save(figure, "layer")


if __name__ == "__main__":
    main()
