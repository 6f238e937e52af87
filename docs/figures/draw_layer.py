r"""Draws the paper's Fig. 1 anew: the layer with its two paths, and the lattice inside of the
global one.

    python docs/figures/draw_layer.py

Writes ``layer.svg`` and ``layer.png`` beside this script.  Simplices and weights are those that the
library computes."""

from __future__ import annotations

import numpy as np
import torch
from draw_lattice import EDGES, HERE, INK, LINE, ORBITS, POINT, plane, plt, save
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

from phgcn.lattice.geometry import locate

LOCAL, GLOBAL = "#2a7f62", "#2171b5"
NODES = np.array(
    [[0.0, 0.0], [0.75, 0.5], [0.8, -0.5], [-0.75, 0.45], [-0.6, -0.6], [1.6, 0.1], [-1.5, -0.1]]
)
LINKS = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 5), (3, 6), (4, 6))
CELLS = [(i, j) for i in range(-2, 3) for j in range(-2, 3) if np.linalg.norm(plane((i, j))) < 1.8]
"""The vertices of the small lattices, in Kuhn coordinates."""


def arrow(
    axis: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    bend: float = 0.0,
) -> None:
    style = {
        "arrowstyle": "-|>",
        "color": colour,
        "lw": 1.6,
        "connectionstyle": f"arc3,rad={bend}",
        "mutation_scale": 14,
    }
    axis.annotate("", end, start, arrowprops=style, zorder=2)


def box(
    axis: Axes, centre: tuple[float, float], width: float, text: str, colour: str = INK
) -> None:
    height = 0.42 + 0.26 * text.count("\n")
    corner = centre[0] - width / 2, centre[1] - height / 2
    style = "round,pad=0.04,rounding_size=0.1"
    axis.add_patch(
        FancyBboxPatch(
            corner, width, height, boxstyle=style, fc="white", ec=colour, lw=1.4, zorder=3
        )
    )
    axis.text(*centre, text, ha="center", va="center", fontsize=10, color=INK, zorder=4)


def draw_graph(axis: Axes, centre: tuple[float, float], size: float, attends: bool) -> None:
    """A small graph; with ``attends``, its middle node and the edges that it reads."""
    places = np.array(centre) + size * NODES
    for one, other in LINKS:
        read = attends and one == 0
        axis.plot(
            *places[[one, other]].T,
            color=LOCAL if read else LINE,
            lw=2.4 if read else 1.2,
            zorder=2,
        )
    for number, place in enumerate(places):
        colour = POINT if attends and number == 0 else LOCAL if attends and number < 5 else INK
        axis.add_patch(Circle(place, 0.085, fc=colour, ec="white", lw=0.8, zorder=3))


def draw_lattice(axis: Axes, centre: tuple[float, float], size: float) -> np.ndarray:
    """The triangles of a small lattice; returns where it puts points of the plane."""
    shift = np.array(centre)
    for i, j in CELLS:
        for a, b in EDGES:
            if (i + a, j + b) in CELLS:
                axis.plot(
                    *(shift + size * plane([(i, j), (i + a, j + b)])).T,
                    color=LINE,
                    lw=0.8,
                    zorder=1,
                )
    return shift


def simplex(point: tuple[float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The corners of a point's triangle, its weights on them, and the point, in the plane."""
    w = torch.tensor([point], dtype=torch.float64)
    vertices, weights = (part[0].numpy() for part in locate(w))
    return plane(vertices), weights, plane(w.numpy())[0]


def draw_splat(axis: Axes, centre: tuple[float, float], size: float, back: bool = False) -> None:
    """Points give their values to the corners of their triangles, or with ``back`` read them."""
    shift = draw_lattice(axis, centre, size)
    for point, colour in (((0.55, 0.2), POINT), ((-0.75, -0.3), ORBITS[0])):
        corners, weights, place = simplex(point)
        corners, place = shift + size * corners, shift + size * place
        axis.add_patch(Polygon(corners, fc=colour, alpha=0.12, ec="none", zorder=1))
        for corner, weight in zip(corners, weights, strict=True):
            start, end = (corner, place) if back else (place, corner)
            style = {
                "arrowstyle": "-|>",
                "color": colour,
                "lw": 0.5 + 1.8 * weight,
                "mutation_scale": 8,
                "shrinkB": 3,
            }
            axis.annotate("", end, start, arrowprops=style, zorder=3)
            axis.add_patch(
                Circle(corner, 0.035 + 0.06 * weight, fc=GLOBAL, ec="white", lw=0.5, zorder=4)
            )
        axis.add_patch(Circle(place, 0.06, fc=colour, ec="white", lw=0.8, zorder=5))


def draw_blur(axis: Axes, centre: tuple[float, float], size: float) -> None:
    """A vertex reads all vertices around it."""
    shift = draw_lattice(axis, centre, size)
    for vertex in CELLS:
        place = shift + size * plane(vertex)
        distance = float(np.linalg.norm(plane(vertex)))
        if distance > 0:
            style = {
                "arrowstyle": "-|>",
                "color": GLOBAL,
                "lw": 2.2 * np.exp(-distance),
                "mutation_scale": 8,
                "shrinkB": 6,
            }
            axis.annotate("", shift, place, arrowprops=style, zorder=2)
        shade = ORBITS[min(int(distance / 0.8), 3)]
        axis.add_patch(
            Circle(place, 0.11 * np.exp(-0.5 * distance), fc=shade, ec="white", lw=0.5, zorder=3)
        )


def draw(axis: Axes) -> None:
    axis.set(xlim=(0, 13), ylim=(0, 5.2), aspect="equal")
    axis.axis("off")
    draw_graph(axis, (1.05, 2.8), 0.5, attends=False)
    axis.text(1.05, 3.55, "graph", ha="center", fontsize=11, color=INK)
    axis.text(1.05, 2.05, "$x$, edges", ha="center", fontsize=10, color=INK)
    arrow(axis, (1.95, 2.8), (2.35, 2.8))
    box(axis, (3.15, 2.8), 1.5, "values $f = Wx$\npositions $p = \\Phi f$")
    arrow(axis, (3.4, 3.2), (4.5, 4.0), LOCAL, -0.2)
    arrow(axis, (3.4, 2.4), (4.5, 1.3), GLOBAL, 0.2)
    axis.text(
        4.75, 4.95, "structural path: each node attends to its neighbours", fontsize=11, color=LOCAL
    )
    draw_graph(axis, (5.7, 4.0), 0.55, attends=True)
    box(
        axis,
        (8.9, 4.0),
        3.6,
        "$\\alpha_{ij} \\propto e^{-\\lambda_s \\Vert p_i - p_j \\Vert}$ over neighbours $j$",
        LOCAL,
    )
    arrow(axis, (6.75, 4.0), (7.0, 4.0), LOCAL)
    axis.text(
        4.75,
        2.45,
        "global path: each node attends to all nodes, in linear time",
        fontsize=11,
        color=GLOBAL,
    )
    draw_splat(axis, (5.6, 1.3), 0.5)
    draw_blur(axis, (7.75, 1.3), 0.5)
    draw_splat(axis, (9.9, 1.3), 0.5, back=True)
    for x, name in ((5.6, "splat"), (7.75, "blur"), (9.9, "slice")):
        axis.text(x, 0.12, name, ha="center", fontsize=11, color=INK)
    arrow(axis, (6.5, 1.3), (6.85, 1.3), GLOBAL)
    arrow(axis, (8.65, 1.3), (9.0, 1.3), GLOBAL)
    arrow(axis, (10.75, 4.0), (11.2, 2.95), LOCAL, -0.1)
    arrow(axis, (10.75, 1.5), (11.2, 2.65), GLOBAL, 0.1)
    box(axis, (11.9, 2.8), 1.3, "$\\sigma(\\cdot)\\,\\Vert\\,\\sigma(\\cdot)$\nside by side")
    axis.text(11.9, 2.05, "$x'$: twice as wide", ha="center", fontsize=10, color=INK)


def main() -> None:
    plt.rcParams.update({"svg.hashsalt": "layer", "svg.fonttype": "path"})
    figure, axis = plt.subplots(figsize=(11, 4.4), layout="constrained")
    draw(axis)
    for suffix in ("svg", "png"):
        save(figure, HERE / f"layer.{suffix}")
        print(HERE / f"layer.{suffix}")


if __name__ == "__main__":
    main()
