"""Draws the embeddings of a layer: nodes by class, and embedding distances against graph
distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from .style import COLOURS, PANEL, colour_nodes, few_ticks, headline, legend, panels, say_instead

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DOTS = 10_000  # nodes drawn as dots; more become a density, in which none hides another
TITLE_LINES = 0.9  # inches that titles and names of axes take, above and below a square panel
CELLS = 100  # cells of a density along each axis
SOURCES = 300  # nodes whose distances to all others are drawn

Floats = NDArray[np.float64]


def plane(points: Floats) -> tuple[Floats, float]:
    """Projects points (N, D) on their two principal axes, (N, 2), and returns their share of the
    variance. Points of one dimension get random heights, so that dots do not hide each other."""
    if points.shape[1] == 1:
        return np.c_[points, np.random.default_rng(0).random(len(points))], 1.0
    if points.shape[1] == 2:
        return points, 1.0
    centred = points - points.mean(axis=0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    total = float((spread**2).sum())
    return centred @ axes[:2].T, float((spread[:2] ** 2).sum()) / total if total else 1.0


def draw_embeddings(positions: Tensor, y: Tensor, names: list[str], title: str) -> Figure:
    """Draws nodes at their positions (N, H, D), one panel per head, coloured by label."""
    titles = TITLE_LINES if len(positions) > MAX_DOTS else 0.3
    figure, axes = panels(positions.size(1), height=PANEL + titles)
    nodes, entries = colour_nodes(y, names)
    for head, axis in enumerate(axes):
        draw_positions(axis, positions[:, head], nodes, f"head {head}")
    legend(figure, entries)
    headline(figure, title)
    return figure


def draw_positions(axis: Axes, points: Tensor, colours: list[str], title: str) -> None:
    """Draws nodes at their positions (N, D), many as a density."""
    flat, share = plane(points.double().numpy())
    if len(flat) > MAX_DOTS:
        draw_density(axis, flat, colours, square=points.size(1) > 1)
        title += f"\ndensity of {len(flat):,} nodes"
    else:
        # in random order: no class lies on top
        shown = np.random.default_rng(0).permutation(len(flat))
        dots: dict[str, Any] = {
            "c": [colours[node] for node in shown],
            "s": 8,
            "linewidths": 0,
            "alpha": 0.8,
        }
        axis.scatter(*flat[shown].T, rasterized=True, **dots)
    if points.size(1) > 1:
        axis.set_aspect("equal", adjustable="box" if len(flat) > MAX_DOTS else "datalim")
    if share < 1:
        title += f"\n{100 * share:.0f} % of the variance"
    axis.set_title(title, fontsize=9)
    across, up = axis_names(points.size(1))
    axis.set_xlabel(across, fontsize=8)
    axis.set_ylabel(up, fontsize=8)
    few_ticks(axis)


def axis_names(dim: int) -> tuple[str, str]:
    """Returns the axis titles of :func:`plane` for points of ``dim`` dimensions."""
    if dim == 1:
        return "dimension 1", "at random"
    return ("dimension 1", "dimension 2") if dim == 2 else ("principal axis 1", "principal axis 2")


def draw_density(axis: Axes, points: Floats, colours: list[str], square: bool = True) -> None:
    """Draws points (N, 2) as cells in the mean colour of their nodes, the denser (by logarithm) the
    less transparent. Cells are ``square`` where both axes have one unit."""
    from matplotlib.colors import to_rgb

    low, high = points.min(axis=0), points.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    if square:
        width = np.full(2, width.max())
        low = (low + high - width) / 2
    column, row = np.minimum((points - low) / width * CELLS, CELLS - 1).astype(np.int64).T
    cell = row * CELLS + column
    palette = {colour: to_rgb(colour) for colour in set(colours)}
    parts = np.array([palette[colour] for colour in colours])
    count = np.bincount(cell, minlength=CELLS**2)
    image = np.zeros((CELLS**2, 4))
    for part in range(3):
        image[:, part] = np.bincount(cell, parts[:, part], CELLS**2) / np.maximum(count, 1)
    image[:, 3] = np.log1p(count) / np.log1p(count.max())
    extent = (low[0], low[0] + width[0], low[1], low[1] + width[1])
    cells = image.reshape(CELLS, CELLS, 4)
    axis.imshow(cells, origin="lower", extent=extent, interpolation="nearest", aspect="auto")
    axis.autoscale(False)


def hops(edge_index: Tensor, nodes: int, sources: NDArray[np.int64]) -> Floats:
    """Counts the edges from sources (S,) to every node, (S, N); infinite without a path."""
    rows, columns = edge_index.numpy()
    adjacency = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(nodes, nodes))
    distances: Floats = shortest_path(adjacency, directed=False, unweighted=True, indices=sources)
    return distances


def draw_distances(positions: Tensor, edge_index: Tensor, title: str) -> Figure:
    """Draws distances in the embedding (N, H, D) against graph distances: mean and deviation over
    pairs of nodes, one panel per head."""
    if not bool((edge_index[0] != edge_index[1]).any()):
        return say_instead("no edges: there are no distances in the graph", title)
    count = positions.size(0)
    sources = np.sort(np.random.default_rng(0).permutation(count)[:SOURCES])
    path_lengths = hops(edge_index, count, sources)
    connected = np.isfinite(path_lengths) & (path_lengths > 0)
    figure, axes = panels(positions.size(1))
    for head, axis in enumerate(axes):
        points = positions[:, head].double()
        pair_hops = path_lengths[connected].astype(np.int64)
        distances = torch.cdist(points[torch.from_numpy(sources)], points).numpy()[connected]
        varies = len(np.unique(pair_hops)) > 1 and float(distances.std()) > 0
        about = f"head {head}"
        if varies:
            correlation = round(np.corrcoef(pair_hops, distances)[0, 1], 2) + 0  # no -0.00
            about += f", correlation {correlation:.2f}"
        draw_hops(axis, pair_hops, distances, about)
    headline(figure, title)
    return figure


def draw_hops(axis: Axes, pair_hops: NDArray[np.int64], distances: Floats, title: str) -> None:
    """Draws mean and deviation of distances (P,) by the hops between two nodes (P,)."""
    pair_counts = np.bincount(pair_hops)
    occurring = np.flatnonzero(pair_counts)
    count = pair_counts[occurring]
    mean = np.bincount(pair_hops, distances)[occurring] / count
    variance = np.bincount(pair_hops, distances**2)[occurring] / count - mean**2
    deviation = np.sqrt(np.maximum(variance, 0))
    style: dict[str, Any] = {"color": COLOURS[0], "markersize": 3, "capsize": 2, "linewidth": 1}
    axis.errorbar(occurring, mean, deviation, fmt="o-", **style)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("edges between two nodes", fontsize=8)
    axis.set_ylabel("embedding distance", fontsize=8)
    axis.set_ylim(bottom=0)
    few_ticks(axis)
    axis.locator_params(axis="x", integer=True)
