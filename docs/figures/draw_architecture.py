r"""Draws which room of the code uses which: ``python docs/figures/draw_architecture.py``.

Writes ``architecture.svg`` and ``architecture.png`` beside this script.  Arrows are the imports
that the source has, found by reading it; rooms are placed by hand, those that know more above those
that know less."""

from __future__ import annotations

import ast
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from page import INK, LINE, new, save

import phgcn

SOURCE = Path(phgcn.__file__).parent
ROWS = (
    ("cli",),
    ("estimators", "report", "explore"),
    ("train", "data"),
    ("nn",),
    ("functional", "distributed"),
    ("lattice", "exact", "structural"),
    ("runtime",),
)
"""The rooms, from those that know most to those that know least."""
NOTES = {
    "cli": "the command phgcn",
    "estimators": "fit, predict",
    "report": "figures",
    "explore": "the page",
    "train": "loop, runs, tuning",
    "data": "graphs, splits",
    "nn": "layers, models",
    "distributed": "many processes",
    "functional": "attention over points",
    "lattice": "splat, smooth, slice",
    "exact": "all pairs",
    "structural": "neighbours",
    "runtime": "Numba, Triton",
}
ALIASES = {"calls": "functional", "accuracy": "functional", "tolerance": "functional"}
COLOURS = ("#e8eef7", "#eaf4ee", "#fbf1e6")


def room_of(module: str) -> str | None:
    """The room that a dotted path inside of the package belongs to, if it is drawn."""
    first = module.split(".")[0]
    first = ALIASES.get(first, first)
    return first if first in NOTES else None


def imports() -> set[tuple[str, str]]:
    """Which room imports which: pairs of names."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).with_suffix("").parts
        here = room_of(place[0])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level or here is None:
                continue
            above = place[: len(place) - node.level]
            names = [node.module] if node.module else [name.name for name in node.names]
            found |= {
                (here, there)
                for name in names
                if (there := room_of(".".join([*above, name]))) and there != here
            }
    return found


def places() -> dict[str, tuple[float, float]]:
    """The middle of each room's box."""
    result = {}
    for row, rooms in enumerate(ROWS):
        for number, room in enumerate(rooms):
            result[room] = (
                6 + 3.4 * (number - (len(rooms) - 1) / 2),
                1.25 * (len(ROWS) - 1 - row) + 0.6,
            )
    return result


def draw(axis: Axes) -> None:
    axis.set(xlim=(0, 12), ylim=(0, 1.25 * len(ROWS) + 0.1))
    axis.axis("off")
    where = places()
    rank = {room: row for row, rooms in enumerate(ROWS) for room in rooms}
    for upper, lower in sorted(imports()):
        if rank[lower] - rank[upper] != 1 and rank[lower] > rank[upper]:
            continue  # through the rooms between, too: drawn, they would hide the order
        (x, y), (u, v) = where[upper], where[lower]
        down, flat = (-0.36, 0.4) if v < y else (0.36, -0.4), v == y
        start = (x + (1.3 if u > x else -1.3), y) if flat else (x, y + down[0])
        end = (u + (-1.3 if u > x else 1.3), v) if flat else (u, v + down[1])
        axis.annotate(
            "", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.1}, zorder=1
        )
    for room, (x, y) in where.items():
        colour = COLOURS[0 if rank[room] < 3 else 1 if rank[room] < 5 else 2]
        style = "round,pad=0.02,rounding_size=0.12"
        axis.add_patch(
            FancyBboxPatch(
                (x - 1.3, y - 0.36), 2.6, 0.72, boxstyle=style, fc=colour, ec=LINE, lw=1.2, zorder=2
            )
        )
        axis.text(
            x,
            y + 0.13,
            room,
            ha="center",
            va="center",
            fontsize=11,
            weight="bold",
            color=INK,
            zorder=3,
        )
        axis.text(
            x, y - 0.16, NOTES[room], ha="center", va="center", fontsize=8, color=INK, zorder=3
        )


def main() -> None:
    figure, axis = new(5.8)
    draw(axis)
    save(figure, "architecture")


if __name__ == "__main__":
    main()
