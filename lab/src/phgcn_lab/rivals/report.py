r"""Which way to sum is the fastest at an error: tables as Markdown, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phgcn.report.style import headline, panels

from ..markdown import table
from ..results import Row, Style, chosen, names, write_results
from .adapters import RIVALS, named, shown
from .clouds import CHANNELS, GRAPHS, HOSTILE, SPREADS
from .measure import SAMPLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDS = (0.03, 0.01)  # Errors that the table of choices asks for
TRAINING_BOUND = 0.1  # Error that it asks for in training
COSINE = 0.9  # Least cosine of the gradient that the table of choices takes for training
MAIN_DIM = 4  # Dimension of the figure with few panels
LONGEST = 30.0  # Seconds from which on a figure names a way as too slow
LOWEST = 1e-4  # Errors below count as this: nobody needs less
OURS = {"separable": "#56b4e9", "lattice": "#0072b2", "lattice-fine": "#003f6b", "exact": "#000000"}
OTHERS = {
    "pykeops": "#7f7f7f",
    "FlexAttention": "#404040",
    "KD-tree": "#8c6d31",
    "ball tree": "#bd9e39",
    "NFFT, 2-D": "#009e73",
    "NFFT, 3-D": "#009e73",
    "slicing": "#e69f00",
    "LSH": "#cc79a7",
    "random features": "#d55e00",
    "Nyström": "#7f3c8d",
    "pydensecrf2": "#b22222",
}
COLOURS = OURS | OTHERS
MARKS = dict(zip((rival.name for rival in RIVALS), "^osD*8<>PPvXhdp", strict=True))


def write(folder: Path, name: str, content: Row) -> list[str]:
    lines = [*_notes(content), *choice_block(content)]
    drawn = figures(content)
    return write_results(folder, name, content, "Ways to sum a kernel", lines, drawn)


# Numbers


def select(content: Row, cloud: str, dim: int, count: int | None = None) -> list[Row]:
    """Selects the rows of a cloud; without ``count``, of its largest."""
    rows = chosen(content["rows"], cloud=cloud, dim=dim)
    most = max((row["count"] for row in rows), default=0) if count is None else count
    return [row for row in rows if row["count"] == most]


def error(row: Row) -> float:
    """The median error of random values, or the least that counts."""
    return max(float(row["errors"]["random"]["median"]), LOWEST)


def front(rows: Sequence[Row]) -> list[Row]:
    best, least = [], float("inf")
    done = [row for row in rows if "forward" in row]
    for row in sorted(done, key=lambda row: row["forward"]["seconds"]):
        if error(row) < least:
            best.append(row)
            least = error(row)
    return best


def fastest(rows: Sequence[Row], bound: float, kind: str = "forward") -> Row | None:
    """The fastest within a median error; of steps, with a gradient's cosine of 0.9 too."""
    good = [row for row in rows if kind in row and error(row) <= bound]
    if kind == "step":
        good = [row for row in good if row["cosine"] >= COSINE]
    return min(good, key=lambda row: row[kind]["seconds"], default=None)


# Tables


def places(content: Row) -> list[tuple[str, int, int]]:
    """Lists generated clouds by dimension and size, then hostile ones, then networks."""
    order = [*SPREADS, *HOSTILE, *GRAPHS]

    def position(place: tuple[str, int, int]) -> tuple[bool, int, int, int]:
        cloud, dim, count = place
        return cloud not in SPREADS, dim, count, order.index(cloud)

    return sorted(names(content["rows"], "cloud", "dim", "count"), key=position)


def milliseconds(seconds: float) -> str:
    scaled = 1000 * seconds
    return f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"


def label(row: Row) -> str:
    name = f"`{row['rival']}`" if named(row["rival"]).ours else row["rival"]
    return f"{name} ({shown(row['setting'])})" if row["setting"] else name


def choice_table(content: Row) -> list[str]:
    asked = [*((bound, "forward") for bound in BOUNDS), (TRAINING_BOUND, "step")]
    cells = []
    for cloud, dim, count in places(content):
        if dim > MAIN_DIM:
            continue
        rows = select(content, cloud, dim, count)
        texts = []
        for bound, kind in asked:
            row = fastest(rows, bound, kind)
            taken = row and milliseconds(row[kind]["seconds"])
            texts.append(f"{label(row)}, {taken} ms" if row else "none")
        cells.append((str(dim), cloud, f"{count:,}", *texts))
    errors = [f"error ≤ {bound:g}" for bound in BOUNDS]
    training = f"training: error ≤ {TRAINING_BOUND:g}, cosine ≥ {COSINE:g}"
    return table(["D", "cloud", "N", *errors, training], cells)


def choice_block(content: Row) -> list[str]:
    """The fastest ways in two to four dimensions."""
    return [*about_lines(content), "", *choice_table(content), "", _when(content)]


LATTICES = ("separable", "lattice", "lattice-fine")
MEASURES = {"median": "median", "rms": "root mean square", "p99": "99th percentile"}


def leader_block(content: Row) -> list[str]:
    """Counts the clouds of two to four dimensions on which each kind of way is the fastest."""
    kinds = ("a lattice", "`exact`", "another way", "none")
    lines = []
    for measure, title in MEASURES.items():
        counts = dict.fromkeys(kinds, 0)
        for place in places(content):
            if place[1] <= MAIN_DIM:
                counts[_leader(select(content, *place), measure)] += 1
        lines.append([title, *map(str, counts.values())])
    return table([f"error ≤ {BOUNDS[0]:g} by its", *kinds], lines)


def _leader(rows: Sequence[Row], measure: str) -> str:
    good = [row for row in rows if "forward" in row]
    good = [row for row in good if row["errors"]["random"][measure] <= BOUNDS[0]]
    if not good:
        return "none"
    rival = min(good, key=lambda row: float(row["forward"]["seconds"]))["rival"]
    return {**dict.fromkeys(LATTICES, "a lattice"), "exact": "`exact`"}.get(rival, "another way")


def _when(content: Row) -> str:
    if not content["origins"]:
        return "Nothing has been measured yet."
    commits = dict.fromkeys(str(origin["commit"])[:7] for origin in content["origins"])
    dates = sorted({origin["date"][:10] for origin in content["origins"]})
    return f"Commit {', '.join(commits)}; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."


def about_lines(content: Row) -> list[str]:
    about, effort = content["provenance"], content["effort"]
    where = f"{about['device']} ({about['machine']}, {about['threads']} threads)"
    return [
        f"{2 * CHANNELS} channels, float32, on {where}. Errors are of random values, on {SAMPLES} "
        "points against the exact sum, over the deviation of its outputs from their mean. Medians "
        f"of up to {effort['rounds']} interleaved rounds; a call of more than "
        f"{effort['limit']:g} s is stopped."
    ]


def _notes(content: Row) -> list[str]:
    lines = [content["note"], ""] if content["note"] else []
    missing = [f"- {name} did not run: {why}" for name, why in content["missing"].items()]
    return [*lines, *missing, ""] if missing else lines


# Figures


def figures(content: Row) -> dict[str, Figure]:
    """Error against time on generated clouds: in four dimensions, or the first, and in all."""
    dims = sorted({dim for cloud, dim, _ in places(content) if cloud in SPREADS})
    if not dims:
        return {}
    main = [MAIN_DIM if MAIN_DIM in dims else dims[0]]
    return {"": _draw(content, main, height=2.9), "-all": _draw(content, dims, height=2.1)}


def _draw(content: Row, dims: Sequence[int], height: float) -> Figure:
    """Draws a row of panels per dimension, a column per cloud, all with the same axes."""
    shown, columns = [(cloud, dim) for dim in dims for cloud in SPREADS], len(SPREADS)
    figure, axes = panels(len(shown), columns=columns, width=8.2 / columns, height=height)
    drawn: list[str] = []
    for number, (axis, (cloud, dim)) in enumerate(zip(axes, shown, strict=True)):
        if number:
            axis.sharex(axes[0])
            axis.sharey(axes[0])
        rows = select(content, cloud, dim)
        size = f", N = {rows[0]['count']:,}" if rows else ""
        drawn += _draw_panel(axis, rows, f"{cloud}, D = {dim}{size}")
        axis.set_xlabel("seconds, forward" if number >= len(shown) - columns else "", fontsize=8)
        axis.set_ylabel("" if number % columns else "median error / deviation", fontsize=8)
        axis.tick_params(labelsize=8)
    _legend(figure, [rival.name for rival in RIVALS if rival.name in drawn])
    device = content["provenance"]["device"]
    headline(figure, f"Error against time on {device}: lower left is better; grey: the front")
    return figure


def _draw_panel(axis: Axes, rows: Sequence[Row], title: str) -> list[str]:
    """Draws every rival as a line through its settings, and the front; returns the names that are
    drawn.  Rivals that took longer than :data:`LONGEST` are named below the title.
    """
    done = [row for row in rows if "forward" in row and row["forward"]["seconds"] <= LONGEST]
    axis.set_title(title if done else f"{title}: not measured", fontsize=9, pad=14)
    if not done:
        return []
    axis.step(*_line(front(done)), where="post", color="#cccccc", linewidth=5, zorder=1)
    drawn: list[str] = names(done, "rival")
    for name in drawn:
        ours = name in OURS
        style: Style = {"marker": MARKS[name], "color": COLOURS[name], "linewidth": 1.1}
        style |= {"markersize": 8, "zorder": 3} if ours else {"markersize": 4, "zorder": 2}
        axis.plot(*_line(chosen(done, rival=name)), **style)
    slow = [row for row in rows if "stopped_forward" in row or "forward" in row]
    if late := [name for name in names(slow, "rival") if name not in drawn]:
        place: Style = {"transform": axis.transAxes, "ha": "center", "va": "bottom"}
        axis.text(0.5, 1.02, f"too slow: {', '.join(late)}", fontsize=6.5, color="#666666", **place)
    axis.set(xscale="log", yscale="log")
    return drawn


def _line(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row["forward"]["seconds"] for row in rows], [error(row) for row in rows]


def _legend(figure: Figure, drawn: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for name in drawn:
        style: Style = {"marker": MARKS[name], "color": COLOURS[name]}
        ours, size = (" (ours)", 8) if name in OURS else ("", 5)
        handles.append(Line2D([], [], label=f"{name}{ours}", markersize=size, **style))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
