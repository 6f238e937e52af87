"""Draws a search for settings: the validation loss of every trial, and against each setting that
varies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import read_json
from .style import COLOURS, FORMATS, headline, label, panels, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# settings that a search varies by factors
LOGARITHMIC = ("learning_rate", "weight_decay", "decay_local", "decay_global")


def is_study(folder: Path) -> bool:
    """Returns whether a folder holds a search of ``phgcn tune``."""
    return (folder / "tune.json").is_file()


def plot_study(folder: Path, out: Path, kind: str = "png") -> list[Path]:
    """Draws the search in a folder of ``phgcn tune`` into a picture in the folder ``out``."""
    if kind not in FORMATS:
        raise ValueError(f"format is {kind!r}; allowed: {', '.join(FORMATS)}")
    content = read_json(folder / "tune.json")
    try:
        figure = draw_history(content)
    except (KeyError, TypeError):
        raise ValueError(f"{folder / 'tune.json'}: not the trials of a search") from None
    return [save(figure, out / f"history.{kind}")]


def draw_history(study: dict[str, Any]) -> Figure:
    """Draws the trials in their order, with the best so far as a line, and by each setting."""
    trials = [trial for trial in study["trials"] if trial["state"] == "complete"]
    if not trials:
        allowed = "a search with one or more"
        raise ValueError(f"{study['study']}: no trial is complete; allowed: {allowed}")
    varied = study["varied"]
    figure, axes = panels(1 + len(varied), columns=3, width=3.4, height=2.8)
    losses = [trial["val_loss"] for trial in trials]
    _draw_order(axes[0], [trial["number"] for trial in trials], losses)
    for axis, name in zip(axes[1:], varied, strict=True):
        _draw_setting(axis, name, [trial[name] for trial in trials], losses)
    shortened = len(study["trials"]) - len(trials)
    rest = f", {shortened} cut short or not ended" if shortened else ""
    headline(figure, f"{study['model']} on {study['graph']}: {len(trials)} trials{rest}")
    return figure


def _draw_order(axis: Axes, numbers: list[int], losses: list[float]) -> None:
    best = [min(losses[: place + 1]) for place in range(len(losses))]
    axis.plot(numbers, losses, "o", color=COLOURS[4], markersize=4, alpha=0.8, label="trial")
    axis.step(numbers, best, where="post", color=COLOURS[0], linewidth=1.2, label="best so far")
    axis.set(xlabel="trial", ylabel="validation loss")
    axis.legend(frameon=False, fontsize=8)


def _draw_setting(axis: Axes, name: str, values: list[Any], losses: list[float]) -> None:
    if all(isinstance(value, (int, float)) for value in values):
        places = values
        if name in LOGARITHMIC:
            axis.set_xscale("log")
    else:
        choices = sorted({str(value) for value in values})
        places = [choices.index(str(value)) for value in values]
        axis.set_xticks(range(len(choices)), [label(choice) for choice in choices])
    axis.plot(places, losses, "o", color=COLOURS[4], markersize=4, alpha=0.8)
    axis.plot(places[losses.index(min(losses))], min(losses), "o", color=COLOURS[0], markersize=6)
    axis.set(xlabel=name, ylabel="validation loss")
