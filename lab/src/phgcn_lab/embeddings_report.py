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
from phgcn.report.style import colour_nodes, colours, headline, legend, panels
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


HEADLINE = (
    "Embeddings of the first layer: nodes by class, and edges between nodes against the distance "
    "of "
    "embeddings"
)
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
    """Embeddings by class above, edges against embedding distance below, a column for each head."""
    columns = [(picture, head) for picture in drawn for head in range(picture.positions.size(1))]
    figure, axes = panels(2 * len(columns), columns=len(columns), width=3.3, height=3.1)
    most = max((class_names(picture.data) for picture in drawn), key=len)
    for number, (picture, head) in enumerate(columns):
        points, title = picture.positions[:, head], f"{picture.data.name}, head {head}"
        node_colours = colour_nodes(picture.data.y, most).nodes
        draw_positions(axes[number], points, node_colours, f"{title}, split {picture.split}")
        pairs = np.isfinite(picture.steps) & (picture.steps > 0)
        far, near = torch.cdist(points, points).numpy()[pairs], picture.steps[pairs].astype(int)
        draw_hops(axes[len(columns) + number], near, far, title)
    classes = [f"class {name}" for name in most]
    legend(figure, list(zip(classes, colours(len(most)), strict=True)))
    headline(figure, HEADLINE)
    return figure
