r"""Draws what a network sees with and without attention to all nodes, and what it learns:
``python docs/figures/draw_on_off.py``.

The curves are those of ``docs/results/motif.json``."""

from __future__ import annotations

import json

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from page import COLOURS, FAINT, HERE, LINE, POINT, mosaic, save
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

from phgcn_lab.motif_graphs import RED, motif_graphs

FILE = HERE.parent / "results" / "motif.json"
ELEMENTS, SEED, ASKED, LAYERS = 10, 4, 1, 3
NODE_COLOURS = (POINT, COLOURS[0], COLOURS[2], "#b4bac4")
ON, OFF = COLOURS[0], COLOURS[1]
CURVES = {"phgcn-10-colour-exact-10": ("on", ON), "gat-eda-10-colour": ("off", OFF)}


def draw_chain(axis: Axes, data: Data, node: int, seen: np.ndarray, colour: str) -> None:
    """Draws a chain, faint where the node does not see it, and lines from what it sees."""
    colours = data.x.argmax(dim=1).numpy()
    place = np.c_[np.arange(len(colours)), np.where(colours == RED, 1.6, 0.0)]
    for one, other in data.edge_index.T.tolist():
        axis.plot(*place[[one, other]].T, color=LINE, linewidth=1, zorder=1)
    for other in np.flatnonzero(seen):
        bend = "arc3,rad=" + ("0.25" if other < node else "-0.25")
        style = {
            "arrowstyle": "-",
            "color": colour,
            "alpha": 0.35,
            "lw": 0.8,
            "connectionstyle": bend,
        }
        axis.add_patch(FancyArrowPatch(place[other], place[node], zorder=1, **style))
    fill = [NODE_COLOURS[kind] if see else "white" for kind, see in zip(colours, seen, strict=True)]
    edge = [FAINT if see else LINE for see in seen]
    axis.scatter(*place.T, s=30, c=fill, edgecolors=edge, linewidths=0.8, zorder=2)
    axis.text(*(place[node] + (0, 1.2)), "?", ha="center", fontweight="bold", fontsize=11)
    axis.set(aspect="equal", ylim=(-4.4, 3.8), xlim=(-1, len(colours)))
    axis.set_axis_off()


def draw_curves(axis: Axes) -> None:
    curves = {curve["name"]: curve for curve in json.loads(FILE.read_text())["curves"]}
    for name, (label, colour) in CURVES.items():
        trials = 100 * np.array(curves[name]["trials"])
        steps, mean = curves[name]["iterations"], trials.mean(axis=0)
        axis.plot(steps, trials.T, color=colour, linewidth=0.5, alpha=0.35)
        axis.plot(steps, mean, color=colour, linewidth=2)
        axis.text(steps[-1], mean[-1] - 6, label, color=colour, ha="right", va="top", weight="bold")
    axis.set(xlabel="iterations of the training", ylabel="test accuracy %", ylim=(30, 102))
    axis.set_title("Ten networks each, and their mean")


def main() -> None:
    layout = [["off", "curves"], ["on", "curves"]]
    figure, axes = mosaic(2.9, layout, width_ratios=(2, 1))
    data = motif_graphs(1, ELEMENTS, seed=SEED)
    node, every = int(data.asked[ASKED]), np.ones(data.num_nodes, bool)
    near = np.zeros(data.num_nodes, bool)
    near[k_hop_subgraph(node, LAYERS, data.edge_index)[0].numpy()] = True
    for name, seen, colour, text in (
        ("off", near, OFF, "Off: three layers see three edges far"),
        ("on", every, ON, "On: every node sees the whole graph"),
    ):
        draw_chain(axes[name], data, node, seen, colour)
        axes[name].set_title(text, loc="left", color=colour, weight="bold")
    draw_curves(axes["curves"])
    save(figure, "on-off")


if __name__ == "__main__":
    main()
