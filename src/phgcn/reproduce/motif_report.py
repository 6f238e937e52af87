r"""The results of :mod:`phgcn.reproduce.motif`: numbers, a table as Markdown, and figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..files import write_json, write_text
from ..report.style import COLOURS as LINE_COLOURS
from ..report.style import panels, save
from .motif_graphs import RED, SPACER_NODE, VARIANTS, Element, motif_graphs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
LEARNED = 0.98
BEGUN = 0.6
"""From this accuracy on a network has found what to count."""
NODE_COLOURS = ("#d62728", "#0072b2", "#009e73", "#bbbbbb")


def write(folder: Path, content: dict[str, Any]) -> None:
    """Writes ``motif.json``, ``motif.md``, and the figures ``motif`` and ``motif-graphs``."""
    write_json(folder / "motif.json", content)
    write_text(folder / "motif.md", markdown(content))
    for name, figure in (("motif", draw(content)), ("motif-graphs", draw_graphs())):
        for kind in KINDS:
            save(figure, folder / f"{name}.{kind}")


# Numbers


def summary(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarises the trials of a case.

    Returns:
        Accuracy in the end: ``mean``, ``standard_error`` and ``worst`` trial; ``lowest_late``, the lowest of any trial in the
        last fifth of its tests; ``learned``, for every trial the iteration from which on all its tests reach 98 %,
        :obj:`None` if there is none; and, of the mistakes since a network first had 60 % right, the shares that are
        ``one_sided`` and in ``close`` graphs, :obj:`None` without mistakes.
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
    missed = max((place for place, value in enumerate(accuracy) if value < LEARNED), default=-1)
    return iterations[missed + 1] if missed + 1 < len(iterations) else None


def _mistakes(trials: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    wrong = leaning = close = 0.0
    for trial in trials:
        begun = next((place for place, value in enumerate(trial["accuracy"]) if value >= BEGUN), len(trial["accuracy"]))
        wrong += sum(1 - value for value in trial["accuracy"][begun:])
        leaning += sum(map(abs, trial["leaning"][begun:]))
        close += sum(trial["close_mistakes"][begun:])
    return {"one_sided": leaning / wrong, "close": close / wrong} if wrong > 0 else None


def made(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarises where, when and at which commits the trials of a case were run."""

    def different(key: str) -> list[Any]:
        return list(dict.fromkeys(trial.get(key) for trial in trials))

    origins = {key: different(key) for key in ("machine", "device", "torch", "commit", "dirty")}
    return {**origins, "date": max(trial["date"] for trial in trials), "seconds": [trial["seconds"] for trial in trials]}


# The table

HEADINGS = (
    "model", "elements", "motifs differ in", "trials", "iterations", "accuracy %", "worst trial", "lowest late",
    "learned after", "learned by",
)  # fmt: skip


def rows(content: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the cells of the table."""
    return [_row(curve) for curve in content["curves"]]


def _row(curve: dict[str, Any]) -> tuple[str, ...]:
    summary, effort = curve["summary"], curve["effort"]
    error = "" if summary["standard_error"] is None else f" ± {100 * summary['standard_error']:.1f}"
    learned = [number for number in summary["learned"] if number is not None]
    after = f"{statistics.median(learned):.0f} (at most {max(learned)})" if learned else "-"
    return (
        curve["title"], str(curve["elements"]), curve["variant"], str(effort["trials"]),
        f"{effort['iterations']} x {effort['graphs']}", f"{100 * summary['mean']:.1f}{error}", f"{100 * summary['worst']:.1f}",
        f"{100 * summary['lowest_late']:.1f}", after, f"{len(learned)} of {len(summary['learned'])}",
    )  # fmt: skip


def markdown(content: dict[str, Any]) -> str:
    text = (
        f"Iterations: their number, and the fresh graphs in each. Tested on {content['test_graphs']} fresh graphs, one red "
        "node of each motif in each (chance: 50 %). Accuracy: after the last iteration, mean and standard error. Lowest late: "
        "the lowest of any trial in the last fifth of its tests. Learned: all tests from then on reach 98 %; median over the "
        "trials that do. λ: the coefficient of global attention."
    )
    lines = ["# Which motif is frequent?", "", text, ""]
    lines += ["| " + " | ".join(line) + " |" for line in (HEADINGS, ("---",) * len(HEADINGS), *rows(content))]
    if content["missing"]:
        lines += ["", "Not done yet: " + ", ".join(content["missing"]) + "."]
    about = content["provenance"]
    return "\n".join([*lines, "", f"`{about['command']}`, commit {about['commit']}, {about['date']}"]) + "\n"


# Figures


def draw(content: dict[str, Any]) -> Figure:
    """Draws accuracy along training, a panel for each length and variant: the mean, and its standard error as a band."""
    curves = content["curves"]
    shown = list(dict.fromkeys((curve["elements"], curve["variant"]) for curve in curves))
    figure, axes = panels(len(shown), columns=3, width=4.2, height=3.4)
    names = list(dict.fromkeys(curve["title"] for curve in curves))
    for axis, (elements, variant) in zip(axes, shown, strict=True):
        for curve in curves:
            if (curve["elements"], curve["variant"]) != (elements, variant):
                continue
            trials = 100 * torch.tensor(curve["trials"], dtype=torch.float64)
            mean = trials.mean(dim=0)
            error = trials.std(dim=0) / math.sqrt(len(trials)) if len(trials) > 1 else torch.zeros_like(mean)
            colour = LINE_COLOURS[names.index(curve["title"]) % len(LINE_COLOURS)]
            axis.plot(curve["iterations"], mean, color=colour, label=curve["title"])
            axis.fill_between(curve["iterations"], mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
        axis.axhline(50, color="#999999", linewidth=0.8, linestyle=":")
        axis.set(title=f"{elements} elements, {variant}", xlabel="iteration", ylabel="test accuracy %", ylim=(35, 102))
        axis.legend(frameon=False, fontsize=7.5)
    return figure


def draw_graphs(elements: int = 10, seed: int = 4) -> Figure:
    """Draws the motifs of each variant, and a random chain of them with its labels."""
    figure, axes = panels(2 * len(VARIANTS), columns=1, width=12, height=1.25)
    for number, (variant, motifs) in enumerate(VARIANTS.items()):
        axis, chain = axes[2 * number : 2 * number + 2]
        place = 0.0
        for name, element in (("motif_1", motifs[0]), ("motif_2", motifs[1]), ("spacer node", SPACER_NODE)):
            where = _places(element, place)
            _draw_nodes(axis, where, element.edges, element.colours, [""] * len(where))
            axis.text(where[:, 0].mean(), -0.75, name, ha="center", va="top", fontsize=9)
            place = where[-1, 0] + 4
        axis.set_title(f"{variant}: the elements", loc="left", fontsize=10)
        _draw_chain(chain, elements, variant, seed)
    for axis in axes:
        axis.set_aspect("equal")
        axis.set_axis_off()
        axis.margins(0.02, 0.3)
    return figure


def _places(element: Element, start: float) -> np.ndarray:
    """Places the nodes of an element in a row, its red one raised."""
    raised = [0.8 if colour == RED else 0.0 for colour in element.colours]
    return np.c_[start + np.arange(len(element.colours)), raised]


def _draw_chain(axis: Axes, elements: int, variant: str, seed: int) -> None:
    data = motif_graphs(1, elements, variant, seed)
    colours = data.x.argmax(dim=1).tolist()
    where = np.c_[np.arange(len(colours)), [0.8 if colour == RED else 0.0 for colour in colours]]
    labels = ["" if label < 0 else str(label) for label in data.y.tolist()]
    edges = [(i, j) for i, j in data.edge_index.t().tolist() if i < j]
    _draw_nodes(axis, where, edges, colours, labels)
    frequent = "motif_1" if int(data.lead) > 0 else "motif_2"
    axis.set_title(f"{variant}: a chain of {elements} elements; {frequent} is the frequent one", loc="left", fontsize=10)


def _draw_nodes(axis: Axes, where: np.ndarray, edges: Any, colours: Sequence[int], labels: Sequence[str]) -> None:
    for i, j in edges:
        axis.plot(*where[[i, j]].T, color="#555555", linewidth=1, zorder=1)
    fill = [NODE_COLOURS[colour] for colour in colours]
    axis.scatter(where[:, 0], where[:, 1], s=90, c=fill, edgecolors="#333333", linewidths=0.6, zorder=2)
    for (across, up), label in zip(where, labels, strict=True):
        axis.text(across, up, label, ha="center", va="center", fontsize=7, color="white", zorder=3)
