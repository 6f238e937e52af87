r"""Draws the embeddings that a layer learned: the nodes of each class, and distances against those in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from ..nn.models import NodeModel
from .style import COLOURS, class_colour, colours, headline, legend, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DOTS = 20_000
"""Nodes drawn; of a larger graph, so many at random."""

SOURCES = 300
"""Nodes whose distances to all others are drawn."""

Floats = NDArray[np.float64]


@torch.no_grad()
def layer_input(model: NodeModel, layer: int, x: Tensor, edge_index: Tensor) -> Tensor:
    """Runs the model and returns the input of one of its layers, (N, channels)."""
    convs = model.convs
    if not 0 <= layer < len(convs):
        raise ValueError(f"layer is {layer}; allowed: 0 to {len(convs) - 1}")
    inputs: list[Tensor] = []
    hook = convs[layer].register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    try:
        model(x, edge_index)
    finally:
        hook.remove()
    return inputs[0]


def plane(points: Floats) -> tuple[Floats, float]:
    r"""Projects points on their two principal axes, and computes the share of their variance that these explain.

    Two dimensions stay as they are; one gets random heights, so that dots do not hide each other.

    Shapes:
        - **points:** :math:`(N, D)`, **output:** :math:`(N, 2)`
    """
    if points.shape[1] == 1:
        return np.c_[points, np.random.default_rng(0).random(len(points))], 1.0
    if points.shape[1] == 2:
        return points, 1.0
    centred = points - points.mean(axis=0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    total = float((spread**2).sum())
    return centred @ axes[:2].T, float((spread[:2] ** 2).sum()) / total if total else 1.0


def draw_embeddings(positions: Tensor, y: Tensor, names: list[str], title: str) -> Figure:
    r"""Draws every node at its position, one panel per head, coloured by class.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **y:** :math:`(N,)`, -1 for an unlabelled node
    """
    figure, axes = panels(positions.size(1))
    palette = colours(len(names))
    for head, axis in enumerate(axes):
        draw_positions(axis, positions[:, head], y, palette, f"head {head}")
    legend(figure, names, palette)
    headline(figure, title)
    return figure


def draw_positions(axis: Axes, points: Tensor, y: Tensor, palette: list[str], title: str) -> None:
    r"""Draws every node at its position, coloured by class.

    Shapes:
        - **points:** :math:`(N, D)`, **y:** :math:`(N,)`, -1 for an unlabelled node
    """
    shown = np.random.default_rng(0).permutation(len(y))[:MAX_DOTS]  # in random order: no class lies on top
    dots = [class_colour(palette, label) for label in y[torch.from_numpy(shown)].tolist()]
    flat, share = plane(points.double().numpy())
    horizontal, vertical = flat[shown].T
    axis.scatter(horizontal, vertical, c=dots, s=8, linewidths=0, alpha=0.8, rasterized=True)
    axis.set_title(title + (f", {100 * share:.0f} % of the variance" if share < 1 else ""), fontsize=9)
    axis.tick_params(labelsize=7)


def hops(edge_index: Tensor, nodes: int, sources: NDArray[np.int64]) -> Floats:
    r"""Counts the edges on the shortest path from each source to every node; infinite if there is none.

    Shapes:
        - **edge_index:** :math:`(2, E)`, **sources:** :math:`(S,)`, **output:** :math:`(S, N)`
    """
    rows, columns = edge_index.numpy()
    adjacency = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(nodes, nodes))
    distances: Floats = shortest_path(adjacency, directed=False, unweighted=True, indices=sources)
    return distances


def draw_distances(positions: Tensor, edge_index: Tensor, title: str) -> Figure:
    r"""Draws distance in the embedding against distance in the graph: mean and standard deviation over pairs of nodes, one
    panel per head.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **edge_index:** :math:`(2, E)`
    """
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
        about = f"head {head}" + (f", correlation {np.corrcoef(pair_hops, distances)[0, 1]:.2f}" if varies else "")
        draw_hops(axis, pair_hops, distances, about)
    headline(figure, title)
    return figure


def draw_hops(axis: Axes, pair_hops: NDArray[np.int64], distances: Floats, title: str) -> None:
    r"""Draws mean and standard deviation of embedding distances, by how many edges two nodes are apart.

    Shapes:
        - **pair_hops**, **distances:** :math:`(P,)`, one entry per pair of nodes
    """
    pair_counts = np.bincount(pair_hops)
    occurring = np.flatnonzero(pair_counts)
    count = pair_counts[occurring]
    mean = np.bincount(pair_hops, distances)[occurring] / count
    deviation = np.sqrt(np.maximum(np.bincount(pair_hops, distances**2)[occurring] / count - mean**2, 0))
    axis.errorbar(occurring, mean, deviation, fmt="o-", color=COLOURS[0], markersize=3, capsize=2, linewidth=1)
    axis.set_title(title, fontsize=9)
    axis.set(xlabel="edges between two nodes", ylabel="embedding distance")
    axis.set_ylim(bottom=0)
