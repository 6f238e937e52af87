r"""Draws which method to take by number of points, dimension and error, as measured:
``python docs/figures/draw_choice.py``.

Errors are those of ``lab/bench/results/accuracy.json``, crossings those of ``method="auto"``."""

from __future__ import annotations

import json
import statistics

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from page import FAINT, HERE, INK, METHODS, new, save

from phgcn.crossings import CROSSINGS

DIMS = (2, 4, 6)
CLOUDS = ("spread 1", "spread 3", "spread 10", "clusters")
LEAST, MOST = 100, 1_000_000
HALO = [withStroke(linewidth=2.5, foreground="white")]
FILE = HERE.parents[1] / "lab" / "bench" / "results" / "accuracy.json"


def errors(method: str, dim: int) -> list[float]:
    """Returns the error on each kind of cloud, of the largest size that was measured."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["method"] == method and row["dim"] == dim]
    most = max(row["count"] for row in rows)
    return [row["dev"] for row in rows if row["count"] == most and row["cloud"] in CLOUDS]


def draw(axis: Axes, dim: int) -> None:
    begin = CROSSINGS["cpu"][dim].points or MOST
    gpu = CROSSINGS["cuda"][dim].points
    axis.axvspan(LEAST, begin, color="#e4e7ec", linewidth=0)
    axis.text((LEAST * begin) ** 0.5, 0.06, "exact", ha="center", fontweight="bold", color=INK)
    for method in ("separable", "lattice", "lattice-fine"):
        found, colour = errors(method, dim), METHODS[method]
        middle = statistics.median(found)
        axis.fill_between([begin, MOST], min(found), max(found), color=colour, alpha=0.13, lw=0)
        axis.plot([begin, MOST], [middle, middle], color=colour, linewidth=1.8)
        style = {
            "ha": "right",
            "va": "bottom",
            "fontweight": "bold",
            "color": colour,
            "path_effects": HALO,
        }
        axis.text(MOST * 0.85, middle * 1.04, method, **style)
    if gpu:
        axis.axvline(gpu, color=FAINT, linewidth=1, linestyle="--")
    axis.set(xscale="log", yscale="log", xlim=(LEAST, MOST), ylim=(0.0005, 1), xlabel="points N")
    axis.minorticks_off()
    on_gpu = f"to {gpu:,}" if gpu else "at any size"
    axis.set_title(f"{dim} dimensions", color=INK, fontweight="bold", pad=18)
    text = f"exact to {begin:,}, on an H200 {on_gpu}"
    axis.text(0.5, 1.03, text, transform=axis.transAxes, ha="center", fontsize=8)


def main() -> None:
    figure, axes = new(3.1, columns=len(DIMS), sharey=True)
    for axis, dim in zip(axes, DIMS, strict=True):
        draw(axis, dim)
    ticks = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].set_ylabel("error against exact attention,\nover the deviation of its outputs")
    save(figure, "choice")


if __name__ == "__main__":
    main()
