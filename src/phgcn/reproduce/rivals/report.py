r"""The results of :mod:`phgcn.reproduce.rivals`: which rival is the fastest at an error, tables as Markdown, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import write_json, write_text
from ...report.style import headline, panels, save
from .adapters import RIVALS, named, shown
from .clouds import CHANNELS, GRAPHS, HOSTILE, SPREADS
from .measure import SAMPLES
from .packages import TREE_QUERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
BOUNDS = (0.1, 0.03, 0.01)
"""Errors that the table of choices asks for."""
COSINE = 0.9
"""Least cosine of the gradient that the table of choices takes for training."""
MAIN_DIM = 4
"""Dimension of the figure with few panels."""
LOWEST = 1e-4
"""Errors below count as this: nobody needs less."""
OURS = {"separable": "#56b4e9", "lattice": "#0072b2", "lattice-fine": "#003f6b", "exact": "#000000"}
OTHERS = {
    "pykeops": "#7f7f7f", "KD-tree": "#8c6d31", "ball tree": "#bd9e39", "NFFT, 2-D": "#009e73", "NFFT, 3-D": "#009e73",
    "slicing": "#e69f00", "LSH": "#cc79a7", "random features": "#d55e00", "Nyström": "#7f3c8d", "pydensecrf2": "#b22222",
}  # fmt: skip
MARKS = dict(zip((rival.name for rival in RIVALS), "^osD*<>PPvXhdp", strict=True))


def write(folder: Path, name: str, content: dict[str, Any]) -> list[Path]:
    """Writes the JSON, the tables and the figures."""
    write_json(folder / f"{name}.json", content)
    write_text(folder / f"{name}.md", markdown(content))
    files = [folder / f"{name}.json", folder / f"{name}.md"]
    for suffix, figure in (("", draw_main(content)), ("-all", draw_all(content))):
        if figure is not None:
            files += [save(figure, folder / f"{name}{suffix}.{kind}") for kind in ("png", "svg")]
    return files


# Numbers


def select(content: dict[str, Any], cloud: str, dim: int, count: int | None = None) -> list[Row]:
    """Returns the rows of one cloud; without a number of points, of the largest that was measured."""
    rows = [row for row in content["rows"] if (row["cloud"], row["dim"]) == (cloud, dim)]
    most = max((row["count"] for row in rows), default=0) if count is None else count
    return [row for row in rows if row["count"] == most]


def error(row: Row) -> float:
    """Returns the median error of random values, or the least that counts."""
    return max(float(row["errors"]["random"]["median"]), LOWEST)


def front(rows: Sequence[Row]) -> list[Row]:
    """Selects the rows that no other beats in both time and error, by time."""
    best, least = [], float("inf")
    for row in sorted((row for row in rows if "forward" in row), key=lambda row: row["forward"]["seconds"]):
        if error(row) < least:
            best.append(row)
            least = error(row)
    return best


def fastest(rows: Sequence[Row], bound: float, kind: str = "forward") -> Row | None:
    """Returns the fastest row whose median error is at most a bound; for a step, whose gradient has a cosine of 0.9 too."""
    good = [row for row in rows if kind in row and error(row) <= bound and (kind == "forward" or row["cosine"] >= COSINE)]
    return min(good, key=lambda row: row[kind]["seconds"], default=None)


# Tables


def lines_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (headings, ("---",) * len(headings), *rows)]


def places(content: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Returns all clouds that were measured: generated ones by dimension and size, then hostile ones, then networks."""
    order = [*SPREADS, *HOSTILE, *GRAPHS]
    found = {(row["cloud"], row["dim"], row["count"]) for row in content["rows"]}
    return sorted(found, key=lambda place: (place[0] not in SPREADS, place[1], place[2], order.index(place[0])))


def milliseconds(seconds: float) -> str:
    scaled = 1000 * seconds
    return f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"


def label(row: Row) -> str:
    """Names a rival with its setting, ours in code."""
    name = f"`{row['rival']}`" if named(row["rival"]).ours else row["rival"]
    return f"{name} ({shown(row['setting'])})" if row["setting"] else name


def choice_table(content: dict[str, Any]) -> list[str]:
    """Makes the table of the fastest rival for each cloud and error, forward and with gradients, with its milliseconds."""
    headings = [
        "D",
        "cloud",
        "N",
        *(f"error ≤ {bound:g}" for bound in BOUNDS),
        f"training: error ≤ {BOUNDS[0]:g}, cosine ≥ {COSINE:g}",
    ]
    cells = []
    for cloud, dim, count in places(content):
        rows = select(content, cloud, dim, count)
        chosen = [(fastest(rows, bound), "forward") for bound in BOUNDS] + [(fastest(rows, BOUNDS[0], "step"), "step")]
        texts = [f"{label(row)}, {milliseconds(row[kind]['seconds'])} ms" if row else "none" for row, kind in chosen]
        cells.append((str(dim), cloud, f"{count:,}", *texts))
    return lines_of(headings, cells)


def wins(content: dict[str, Any]) -> dict[str, int]:
    """Counts on how many clouds each rival is the fastest at some error of the table of choices."""
    counts: dict[str, int] = {}
    for place in places(content):
        rows = select(content, *place)
        names = {row["rival"] for bound in BOUNDS if (row := fastest(rows, bound))}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


HEADINGS = (
    "rival",
    "setting",
    "error: median / 99 %",
    "structured",
    "cosine",
    "forward, ms",
    "with gradients, ms",
    "memory, MB",
)


def detail_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Returns the cells of all settings on one cloud; a rival that was stopped or failed says so."""
    cells = []
    for row in rows:
        if "errors" in row:
            random, structured = row["errors"]["random"], row["errors"]["structured"]
            texts = [f"{random['median']:.3g} / {random['p99']:.3g}", f"{structured['median']:.3g} / {structured['p99']:.3g}"]
        else:
            texts = ["", ""]
        texts.append(f"{row['cosine']:.3f}" if "cosine" in row else "")
        texts += [_time(row, "forward"), _time(row, "step"), _megabytes(row)]
        cells.append((f"`{row['rival']}`" if named(row["rival"]).ours else row["rival"], shown(row["setting"]), *texts))
    return cells


def _time(row: Row, kind: str) -> str:
    if kind in row:
        mark = " (a sample)" if named(row["rival"]).sampled else ""
        return milliseconds(row[kind]["seconds"]) + mark
    if f"stopped_{kind}" in row:
        return f"over {1000 * row[f'stopped_{kind}']:,.0f}"
    return "failed" if "failed" in row else ""


def _megabytes(row: Row) -> str:
    measured = row["step"] if "step" in row else row.get("forward", {})
    return f"{measured['bytes'] / 1e6:,.0f}" if measured.get("bytes") else ""


def choice_block(content: dict[str, Any]) -> list[str]:
    """Makes the table of choices for a document: where it was measured, the table, and how often each rival is the fastest."""
    counts = ", ".join(f"{name} {count}" for name, count in wins(content).items())
    total = len(places(content))
    return [
        *about_lines(content), "", *choice_table(content), "",
        f"Of {total} clouds, each is the fastest at some of these errors on: {counts}. {_when(content)}",
    ]  # fmt: skip


def detail_block(content: dict[str, Any]) -> list[str]:
    """Makes the tables of all settings on the largest clouds in four dimensions for a document."""
    lines: list[str] = []
    for cloud in SPREADS:
        rows = select(content, cloud, MAIN_DIM)
        if rows:
            lines += [f"{cloud}, D = {MAIN_DIM}, N = {rows[0]['count']:,}:", "", *lines_of(HEADINGS, detail_rows(rows)), ""]
    return lines[:-1]


def _when(content: dict[str, Any]) -> str:
    if not content["origins"]:
        return "Nothing has been measured yet."
    commits = dict.fromkeys(str(origin["commit"])[:7] for origin in content["origins"])
    dates = sorted({origin["date"][:10] for origin in content["origins"]})
    return f"Commit {', '.join(commits)}; {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."


def markdown(content: dict[str, Any]) -> str:
    """Writes all that was measured as one page."""
    title = "# Ways to sum a kernel: every setting on every cloud"
    lines = [title, "", *about_lines(content), "", "## The fastest at an error", ""]
    lines += choice_table(content)
    for cloud, dim, count in places(content):
        lines += [
            "",
            f"## {cloud}, D = {dim}, N = {count:,}",
            "",
            *lines_of(HEADINGS, detail_rows(select(content, cloud, dim, count))),
        ]
    lines += ["", f"Networks were trained for {content['effort']['epochs']} epochs. {_when(content)}"]
    return "\n".join(lines) + "\n"


def about_lines(content: dict[str, Any]) -> list[str]:
    """Says where and how it was measured, and what could not run."""
    about, effort = content["provenance"], content["effort"]
    lines = [
        f"{2 * CHANNELS} channels, float32, on {about['device']} ({about['machine']}, {about['threads']} threads). Errors are "
        f"of random values (and of structured ones), on {SAMPLES} points against the exact sum, over the deviation of its "
        f"outputs from their mean. Medians of up to {effort['rounds']} interleaved rounds; a call of more than "
        f"{effort['limit']:g} s is stopped. Memory is that of a forward, with gradients where there are some. "
        f"*A sample*: the time of a tree is that of {TREE_QUERIES} queries times N / {TREE_QUERIES}."
    ]
    lines += ["", content["note"]] if content["note"] else []
    lines += ["", *(f"- {name} did not run: {why}" for name, why in content["missing"].items())] if content["missing"] else []
    return lines


# Figures


def draw_main(content: dict[str, Any]) -> Figure | None:
    """Draws error against time on the three kinds of clouds, in four dimensions, or the first that was measured."""
    dims = [dim for cloud, dim, _ in places(content) if cloud in SPREADS]
    if not dims:
        return None
    return _draw(content, [MAIN_DIM if MAIN_DIM in dims else dims[0]], width=4.8, height=4.4)


def draw_all(content: dict[str, Any]) -> Figure | None:
    """Draws error against time for every dimension and kind of generated cloud."""
    dims = sorted({dim for cloud, dim, _ in places(content) if cloud in SPREADS})
    return _draw(content, dims, width=3.6, height=3.3) if dims else None


def _draw(content: dict[str, Any], dims: Sequence[int], width: float, height: float) -> Figure:
    """Draws a row of panels for each dimension: one for each kind of cloud."""
    figure, axes = panels(len(SPREADS) * len(dims), columns=len(SPREADS), width=width, height=height)
    names: list[str] = []
    for number, dim in enumerate(dims):
        for place, cloud in enumerate(SPREADS):
            rows = select(content, cloud, dim)
            names += _draw_panel(axes[number * len(SPREADS) + place], rows, f"{cloud}, D = {dim}")
    _legend(figure, [rival.name for rival in RIVALS if rival.name in names])
    headline(figure, f"Error against time on {content['provenance']['device']}: lower left is better; grey: the front")
    return figure


def _draw_panel(axis: Axes, rows: Sequence[Row], title: str) -> list[str]:
    """Draws every rival as a line through its settings, and the front; returns the names that are drawn."""
    done = [row for row in rows if "forward" in row]
    if not done:
        axis.set(title=f"{title}: not measured", xticks=[], yticks=[])
        return []
    axis.step(*_line(front(done)), where="post", color="#bbbbbb", linewidth=6, zorder=1)
    names = list(dict.fromkeys(row["rival"] for row in done))
    for name in names:
        times, values = _line([row for row in done if row["rival"] == name])
        ours = name in OURS
        style: dict[str, Any] = {"marker": MARKS[name], "color": (OURS | OTHERS)[name], "markersize": 11 if ours else 6}
        axis.plot(times, values, linewidth=1.2, zorder=3 if ours else 2, **style)
        if ours:
            axis.annotate(
                name, (times[0], values[0]), (8, 5), textcoords="offset points", fontsize=8, fontweight="bold", zorder=4
            )
    stopped = [row["rival"] for row in rows if "stopped_forward" in row and row["rival"] not in names]
    if stopped:
        text = "too slow: " + ", ".join(dict.fromkeys(stopped))
        axis.text(0.99, 0.99, text, transform=axis.transAxes, ha="right", va="top", fontsize=7, color="#666666", wrap=True)
    size = f", N = {rows[0]['count']:,}"
    axis.set(xscale="log", yscale="log", xlabel="seconds, forward", ylabel="median error / deviation", title=title + size)
    return names


def _line(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Returns seconds and errors of rows."""
    return [row["forward"]["seconds"] for row in rows], [error(row) for row in rows]


def _legend(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=MARKS[name], color=(OURS | OTHERS)[name], label=f"{name} (ours)" if name in OURS else name,
               markersize=9 if name in OURS else 6)
        for name in names
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=8)
