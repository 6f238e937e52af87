r"""Draws a cover of docs/tutorial.md and the song that it attends to:
``python docs/figures/draw_cover.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from page import COLOURS, FAINT, INK, LINE, POINT, new, save, write_songs
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

import phgcn

COVER, SONG = "cover-17", "song-17"
MELODY = ("m1", "m2", "m3", "m4")
RINGS = 4
"""Up to how many edges away nodes are drawn."""


def rings(data: Data, node: int) -> np.ndarray:
    """Counts the edges from a node to every other, (N), -1 beyond the last ring."""
    steps = np.full(data.num_nodes, -1)
    for away in range(RINGS, -1, -1):
        steps[k_hop_subgraph(node, away, data.edge_index)[0].numpy()] = away
    return steps


def draw_graph(axis: Axes, data: Data, cover: int, song: int) -> None:
    steps = rings(data, cover)
    place = np.full((data.num_nodes, 2), np.nan)
    for away in range(RINGS + 1):
        nodes = np.flatnonzero(steps == away)
        angle = 2 * np.pi * (np.arange(len(nodes)) + 0.5 * away) / max(len(nodes), 1)
        place[nodes] = away * np.c_[np.cos(angle), np.sin(angle)]
    for one, other in data.edge_index.T.tolist():
        axis.plot(*place[[one, other]].T, color="#dde1e7", linewidth=0.4, zorder=1)
    axis.scatter(*place.T, s=9, color=FAINT, linewidths=0, zorder=2)
    for node, name, colour in ((cover, COVER, POINT), (song, SONG, COLOURS[0])):
        axis.scatter(*place[node], s=70, color=colour, edgecolors="white", zorder=4)
        box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": colour}
        axis.annotate(
            name, place[node], (0, 11), textcoords="offset points", ha="center", bbox=box, zorder=5
        )
    style = {"arrowstyle": "-|>", "color": POINT, "lw": 2, "connectionstyle": "arc3,rad=0.25"}
    axis.annotate("", place[song], place[cover], arrowprops=style | {"shrinkB": 5}, zorder=3)
    axis.set_title(f"In the graph they are {steps[song]} edges apart", color=INK)
    axis.set(aspect="equal", xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def draw_melodies(axis: Axes, data: Data, shown: list[tuple[str, float]]) -> None:
    columns = [data.feature_names.index(name) for name in MELODY]
    melodies = data.x[:, columns].numpy()
    axis.plot(melodies.T, color=LINE, linewidth=0.4)
    axis.plot(melodies[data.node_id.index(COVER)], color=POINT, linewidth=2, label=f"{COVER}")
    for (name, weight), colour in zip(shown, COLOURS, strict=False):
        label = f"{name}, {100 * weight:.1f} % of the attention"
        line = melodies[data.node_id.index(name)]
        axis.plot(line, "--", color=colour, linewidth=1.6, label=label)
    axis.set_xticks(range(len(MELODY)), ["1st note", "2nd note", "3rd note", "4th note"])
    axis.set(ylabel="pitch", xlim=(0, len(MELODY) - 1), ylim=(-5.6, 3.2), yticks=range(-3, 4))
    axis.set_title("Their melodies are nearly the same", color=INK)
    axis.legend(loc="lower left", handlelength=2.5)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_songs(Path(folder))
        classifier = phgcn.NodeClassifier().fit(f"{folder}/songs")
        found = [t for t in classifier.attention(COVER, k=3) if t.path == "global" and t.head == 0]
        data = classifier.graph_
    figure, (left, right) = new(3.5, columns=2)
    cover, song = (data.node_id.index(name) for name in (COVER, SONG))
    draw_graph(left, data, cover, song)
    draw_melodies(right, data, [(target.target, target.weight) for target in found])
    save(figure, "cover")


if __name__ == "__main__":
    main()
