r"""The results of :mod:`phgcn_lab.embeddings`: a table as Markdown, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from phgcn.report.embeddings import draw_hops, draw_positions
from phgcn.report.style import colour_nodes, colours, legend, panels
from phgcn.train.graph import class_names

from .arrays import Floats
from .markdown import table
from .results import Row, write_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADINGS = (
    *("graph", "test accuracy %", "silhouette", "test nodes", "shuffled labels", "untrained"),
    *("Spearman", "explained"),
)


@dataclass(frozen=True, eq=False)
class Picture:
    data: Data
    positions: Tensor  # (N, H, D)
    steps: Floats  # (N, N), the number of edges between two nodes
    split: int


SILHOUETTES = ("all_silhouette", "test_silhouette", "all_shuffled", "untrained_silhouette")


def write(folder: Path, content: Row, drawn: Sequence[Picture]) -> list[str]:
    lines, figures = table_lines(content), {"": draw(drawn)}
    return write_results(folder, "embeddings", content, "What the embeddings show", lines, figures)


def table_lines(content: Row) -> list[str]:
    lines = []
    for graph in content["graphs"]:
        summary, accuracy = graph["summary"], graph["test_accuracy"]
        cells = [_cell(summary[key]) for key in SILHOUETTES]
        rho = summary["hops_rho"]
        spearman = f"{_cell(rho)} [{rho['lowest']:.2f}, {rho['highest']:.2f}]"
        first = (graph["graph"], f"{100 * accuracy['mean']:.1f} ± {100 * accuracy['std']:.1f}")
        lines.append((*first, *cells, spearman, f"{100 * summary['hops_explained']['mean']:.1f} %"))
    return table(HEADINGS, lines)


def _cell(spread: Row) -> str:
    return f"{spread['mean']:.2f}" + ("" if spread["std"] is None else f" ± {spread['std']:.2f}")


def draw(drawn: Sequence[Picture]) -> Figure:
    """Draws as in the paper: embeddings by class above, edges against embedding distance below, a
    column for each head.  Panels of one graph have the same axes.
    """
    columns = [(picture, head) for picture in drawn for head in range(picture.positions.size(1))]
    figure, axes = panels(2 * len(columns), columns=len(columns), width=2.05, height=2.3)
    most = max((class_names(picture.data) for picture in drawn), key=len)
    for number, (picture, head) in enumerate(columns):
        upper, lower = axes[number], axes[len(columns) + number]
        points, reach = picture.positions[:, head], 1.05 * float(picture.positions.abs().max())
        node_colours = colour_nodes(picture.data.y, most).nodes
        draw_positions(upper, points, node_colours, f"{picture.data.name}, head {head}")
        upper.set_aspect("equal", adjustable="box")
        upper.set(xlim=(-reach, reach), ylim=(-reach, reach))
        pairs = np.isfinite(picture.steps) & (picture.steps > 0)
        far, near = torch.cdist(points, points).numpy()[pairs], picture.steps[pairs].astype(int)
        draw_hops(lower, near, far, "")
        if head:
            lower.sharey(axes[len(columns) + number - 1])
            upper.set_ylabel("")
            lower.set_ylabel("")
    classes = [f"class {name}" for name in most]
    legend(figure, list(zip(classes, colours(len(most)), strict=True)))
    return figure
