r"""The results of :mod:`phgcn_lab.motif`: numbers, a table as Markdown, and figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from phgcn.report.style import COLOURS as LINE_COLOURS
from phgcn.report.style import panels

from .arrays import Floats
from .markdown import table
from .motif_graphs import RED, SPACER_NODE, VARIANTS, motif_graphs
from .results import Row, Style, chosen, names, write_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEARNED = 0.98
BEGUN = 0.6  # From this accuracy on a network has found what to count
NODE_COLOURS = ("#d62728", "#0072b2", "#009e73", "#bbbbbb")


def write(folder: Path, content: Row) -> list[str]:
    figures = {"": draw(content), "-graphs": draw_graphs()}
    title = "Which motif is frequent?"
    return write_results(folder, "motif", content, title, table_lines(content), figures)


# Numbers


def summary(trials: Sequence[Row]) -> Row:
    """Summarises the accuracy of all trials in the end, and their last fifth of tests.

    ``learned`` is the iteration of each trial from which on all its tests reach 98 %. Of the
    mistakes since a network first had 60 % right, the shares that are ``one_sided`` and in
    ``close`` graphs.
    """
    last = [trial["accuracy"][-1] for trial in trials]
    late = [min(trial["accuracy"][-max(1, len(trial["accuracy"]) // 5) :]) for trial in trials]
    error = statistics.stdev(last) / math.sqrt(len(last)) if len(last) > 1 else None
    return {
        "mean": statistics.mean(last),
        "standard_error": error,
        "worst": min(last),
        "lowest_late": min(late),
        "learned": [_learned(trial["iterations"], trial["accuracy"]) for trial in trials],
        "mistakes": _mistakes(trials),
    }


def _learned(iterations: Sequence[int], accuracy: Sequence[float]) -> int | None:
    missed = max((number for number, x in enumerate(accuracy) if x < LEARNED), default=-1)
    return iterations[missed + 1] if missed + 1 < len(iterations) else None


def _mistakes(trials: Sequence[Row]) -> dict[str, float] | None:
    wrong = leaning = close = 0.0
    for trial in trials:
        accuracy = trial["accuracy"]
        begun = next((k for k, value in enumerate(accuracy) if value >= BEGUN), len(accuracy))
        wrong += sum(1 - value for value in accuracy[begun:])
        leaning += sum(map(abs, trial["leaning"][begun:]))
        close += sum(trial["close_mistakes"][begun:])
    return {"one_sided": leaning / wrong, "close": close / wrong} if wrong > 0 else None


def made(trials: Sequence[Row]) -> Row:
    keys = ("machine", "device", "torch", "commit", "dirty")
    origins = {key: list(dict.fromkeys(trial.get(key) for trial in trials)) for key in keys}
    times = [trial["seconds"] for trial in trials]
    return {**origins, "date": max(trial["date"] for trial in trials), "seconds": times}


# The table

HEADINGS = (*("model", "elements", "motifs differ in", "iterations", "accuracy %", "learned by"),)


def table_lines(content: Row) -> list[str]:
    return table(HEADINGS, [_row(curve) for curve in content["curves"]])


def _row(curve: Row) -> tuple[str, ...]:
    summary, effort = curve["summary"], curve["effort"]
    error = "" if summary["standard_error"] is None else f" ± {100 * summary['standard_error']:.1f}"
    learned = [number for number in summary["learned"] if number is not None]
    return (
        curve["title"],
        str(curve["elements"]),
        curve["variant"],
        f"{effort['iterations']} x {effort['graphs']}",
        f"{100 * summary['mean']:.1f}{error}",
        f"{len(learned)} of {len(summary['learned'])}",
    )


# Figures


def draw(content: Row) -> Figure:
    """Accuracy along training by length and variant: the mean, and its standard error as a band."""
    curves = content["curves"]
    shown, titles = names(curves, "elements", "variant"), names(curves, "title")
    figure, axes = panels(len(shown), columns=3, width=4.2, height=3.4)
    for axis, (elements, variant) in zip(axes, shown, strict=True):
        for curve in chosen(curves, elements=elements, variant=variant):
            colour = LINE_COLOURS[titles.index(curve["title"]) % len(LINE_COLOURS)]
            _draw_curve(axis, curve, colour)
        axis.axhline(50, color="#999999", linewidth=0.8, linestyle=":")
        axis.set(title=f"{elements} elements, {variant}", xlabel="iteration", ylim=(35, 102))
        axis.set_ylabel("test accuracy %")
        axis.legend(frameon=False, fontsize=7.5)
    return figure


def _draw_curve(axis: Axes, curve: Row, colour: str) -> None:
    trials, iterations = 100 * np.array(curve["trials"]), curve["iterations"]
    mean, error = trials.mean(axis=0), np.zeros(len(iterations))
    if len(trials) > 1:
        error = trials.std(axis=0, ddof=1) / math.sqrt(len(trials))
    axis.plot(iterations, mean, color=colour, label=curve["title"])
    band: Style = {"color": colour, "alpha": 0.25, "linewidth": 0}
    axis.fill_between(iterations, mean - error, mean + error, **band)


def draw_graphs(elements: int = 10, seed: int = 4) -> Figure:
    figure, axes = panels(2 * len(VARIANTS), columns=1, width=8.2, height=0.85)
    for number, (variant, motifs) in enumerate(VARIANTS.items()):
        axis, start = axes[2 * number], 0.0
        for name, element in zip(
            ("motif_1", "motif_2", "spacer node"), (*motifs, SPACER_NODE), strict=True
        ):
            where = _positions(element.colours, start)
            _draw_nodes(axis, where, element.edges, element.colours, [""] * len(where))
            axis.text(where[:, 0].mean(), -0.75, name, ha="center", va="top", fontsize=8)
            start = where[-1, 0] + 4
        axis.set_title(f"{variant}: the elements", loc="left", fontsize=9)
        _draw_chain(axes[2 * number + 1], elements, variant, seed)
    for axis in axes:
        axis.set_aspect("equal")
        axis.set_axis_off()
        axis.set(xlim=(-1, max(axis.dataLim.x1 for axis in axes) + 1), ylim=(-1.8, 1.4))
    return figure


def _positions(colours: Sequence[int], start: float = 0.0) -> Floats:
    """Positions in a row, (N, 2), red nodes raised."""
    raised = [0.8 if colour == RED else 0.0 for colour in colours]
    where: Floats = np.c_[start + np.arange(len(colours)), raised]
    return where


def _draw_chain(axis: Axes, elements: int, variant: str, seed: int) -> None:
    data = motif_graphs(1, elements, variant, seed)
    colours = data.x.argmax(dim=1).tolist()
    labels = ["" if label < 0 else "−+"[label] for label in data.y.tolist()]
    edges = [(i, j) for i, j in data.edge_index.t().tolist() if i < j]
    _draw_nodes(axis, _positions(colours), edges, colours, labels)
    frequent = "motif_1" if int(data.lead) > 0 else "motif_2"
    title = (
        f"{variant}: a chain of {elements} elements; +: a red node of {frequent}, the frequent one"
    )
    axis.set_title(title, loc="left", fontsize=9)


def _draw_nodes(
    axis: Axes, where: Floats, edges: Any, colours: Sequence[int], labels: Sequence[str]
) -> None:
    for i, j in edges:
        axis.plot(*where[[i, j]].T, color="#555555", linewidth=1, zorder=1)
    style: Style = {"edgecolors": "#333333", "linewidths": 0.6, "zorder": 2}
    fill = [NODE_COLOURS[colour] for colour in colours]
    axis.scatter(where[:, 0], where[:, 1], s=70, c=fill, **style)
    for (across, up), label in zip(where, labels, strict=True):
        axis.text(across, up, label, ha="center", va="center", fontsize=8, color="white", zorder=3)
