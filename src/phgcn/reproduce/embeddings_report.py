r"""The results of :mod:`phgcn.reproduce.embeddings`: a table as Markdown, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..files import write_json, write_text
from ..report.embeddings import draw_hops, draw_positions
from ..report.node_colours import colour_nodes
from ..report.style import colours, headline, legend, panels, save
from ..train.graph import class_names
from .arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADINGS = ("graph", "test accuracy %", "silhouette", "test nodes", "shuffled labels", "untrained", "Spearman", "explained")


@dataclass(frozen=True, eq=False)
class Picture:
    """What is drawn of a graph.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **steps:** :math:`(N, N)`, the edges between nodes
    """

    data: Data
    positions: Tensor
    steps: Floats
    split: int


def write(folder: Path, content: dict[str, Any], drawn: Sequence[Picture]) -> list[Path]:
    write_json(folder / "embeddings.json", content)
    write_text(folder / "embeddings.md", markdown(content))
    figure = draw(drawn)
    made = [save(figure, folder / f"embeddings.{kind}") for kind in ("png", "svg")]
    return [folder / "embeddings.json", folder / "embeddings.md", *made]


def rows(content: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the cells of the table."""
    lines = []
    for graph in content["graphs"]:
        summary, accuracy = graph["summary"], graph["test_accuracy"]
        cells = [_cell(summary[key]) for key in ("all_silhouette", "test_silhouette", "all_shuffled", "untrained_silhouette")]
        spearman = f"{_cell(summary['hops_rho'])} [{summary['hops_rho']['lowest']:.2f}, {summary['hops_rho']['highest']:.2f}]"
        first = (graph["graph"], f"{100 * accuracy['mean']:.1f} ± {100 * accuracy['std']:.1f}")
        lines.append((*first, *cells, spearman, f"{100 * summary['hops_explained']['mean']:.1f} %"))
    return lines


def _cell(spread: dict[str, Any]) -> str:
    return f"{spread['mean']:.2f}" + ("" if spread["std"] is None else f" ± {spread['std']:.2f}")


def markdown(content: dict[str, Any]) -> str:
    text = (
        f"Two-layer PH-GCN, two heads, embeddings in the plane, protocol paper, {content['splits']} splits; the first layer's "
        "embeddings. Silhouette of the classes over all nodes, over test nodes alone, with shuffled labels, and of the same "
        "networks before training. Spearman: the correlation between edges on the way between two nodes and the distance of "
        "their embeddings, over all connected pairs. Means over splits and heads ± the standard deviation over splits; in "
        "brackets the lowest and the highest of all. Explained: the share of the variance of embedding distances that lies "
        "between groups of pairs with the same number of edges."
    )
    lines = ["# What the embeddings show", "", text, ""]
    lines += ["| " + " | ".join(line) + " |" for line in (HEADINGS, ("---",) * len(HEADINGS), *rows(content))]
    for graph in content["graphs"]:
        summary, of = graph["summary"], graph["summary"]["networks"]
        lines += [
            "",
            f"{graph['graph']}: of {of} embeddings, classes cluster more than shuffled ones (p < 0.05) in "
            f"{summary['all_significant']} over all nodes and in {summary['test_significant']} over test nodes; edges and "
            f"distances correlate (Mantel's test, p < 0.05) in {summary['hops_significant']}, before training in "
            f"{summary['hops_untrained_significant']} (mean {summary['hops_untrained_rho']['mean']:.2f}). The 95 % interval of "
            "each correlation, from drawing nodes anew, is in the JSON.",
        ]
    about = content["provenance"]
    return "\n".join([*lines, "", f"`{about['command']}`, commit {about['commit']}, {about['date']}"]) + "\n"


def draw(drawn: Sequence[Picture]) -> Figure:
    """Draws as in the paper: embeddings by class above, edges against embedding distance below, a column for each head."""
    columns = [(picture, head) for picture in drawn for head in range(picture.positions.size(1))]
    figure, axes = panels(2 * len(columns), columns=len(columns), width=3.3, height=3.1)
    most = max((class_names(picture.data) for picture in drawn), key=len)
    for number, (picture, head) in enumerate(columns):
        points = picture.positions[:, head]
        draw_positions(
            axes[number],
            points,
            colour_nodes(picture.data.y, most).nodes,
            f"{picture.data.name}, head {head}, split {picture.split}",
        )
        pairs = np.isfinite(picture.steps) & (picture.steps > 0)
        far, near = torch.cdist(points, points).numpy()[pairs], picture.steps[pairs].astype(int)
        draw_hops(axes[len(columns) + number], near, far, f"{picture.data.name}, head {head}")
    legend(figure, [(f"class {name}", colour) for name, colour in zip(most, colours(len(most)), strict=True)])
    headline(
        figure, "Embeddings of the first layer: nodes by class, and edges between nodes against the distance of embeddings"
    )
    return figure
