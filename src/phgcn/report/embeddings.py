r"""The embeddings that a layer learned: where nodes of each class lie, and whether distances follow those in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from ..nn.models import NodeModel
from .style import COLOURS, colours, headline, legend, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DOTS = 20_000
SOURCES = 300


@torch.no_grad()
def layer_input(model: NodeModel, layer: int, x: Tensor, edge_index: Tensor) -> Tensor:
    """What reaches a layer of the model."""
    convs = model.convs
    if not 0 <= layer < len(convs):
        raise ValueError(f"layer is {layer}; allowed: 0 to {len(convs) - 1}")
    found: list[Tensor] = []
    hook = convs[layer].register_forward_pre_hook(lambda _, arguments: found.append(arguments[0]))
    try:
        model(x, edge_index)
    finally:
        hook.remove()
    return found[0]


def plane(points: NDArray) -> tuple[NDArray, float]:
    r"""Points on their two principal axes, and the share of their variance that is left; two dimensions stay as they are.

    Shapes:
        - **points:** :math:`(N, D)`, **output:** :math:`(N, 2)`
    """
    if points.shape[1] == 1:  # side by side at random, so that they do not hide each other
        return np.c_[points, np.random.default_rng(0).random(len(points))], 1.0
    if points.shape[1] == 2:
        return points, 1.0
    centred = points - points.mean(axis=0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    total = float((spread**2).sum())
    return centred @ axes[:2].T, float((spread[:2] ** 2).sum()) / total if total else 1.0


def draw_embeddings(positions: Tensor, y: Tensor, names: list[str], title: str) -> Figure:
    r"""Every node at its position, one panel per head, coloured by class.

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
    r"""Every node at its position, coloured by class.

    Shapes:
        - **points:** :math:`(N, D)`, **y:** :math:`(N,)`, -1 for an unlabelled node
    """
    shown = np.random.default_rng(0).permutation(len(y))[:MOST_DOTS]  # in random order: no class lies on top
    dots = [palette[label] if label >= 0 else "#cccccc" for label in y[torch.from_numpy(shown)].tolist()]
    flat, share = plane(points.double().numpy())
    across, up = flat[shown].T
    axis.scatter(across, up, c=dots, s=8, linewidths=0, alpha=0.8, rasterized=True)
    axis.set_title(title + (f", {100 * share:.0f} % of the variance" if share < 1 else ""), fontsize=9)
    axis.tick_params(labelsize=7)


def hops(edge_index: Tensor, nodes: int, sources: NDArray) -> NDArray:
    """The number of edges between the sources and every node; infinite where there is no way."""
    rows, columns = edge_index.numpy()
    adjacency = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(nodes, nodes))
    return shortest_path(adjacency, directed=False, unweighted=True, indices=sources)


def draw_distances(positions: Tensor, edge_index: Tensor, title: str) -> Figure:
    r"""Distance in the embedding against distance in the graph: mean and standard deviation over pairs of nodes, one panel
    per head.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **edge_index:** :math:`(2, E)`
    """
    count = positions.size(0)
    sources = np.sort(np.random.default_rng(0).permutation(count)[:SOURCES])
    steps = hops(edge_index, count, sources)
    pairs = np.isfinite(steps) & (steps > 0)
    figure, axes = panels(positions.size(1))
    for head, axis in enumerate(axes):
        points = positions[:, head].double()
        apart = torch.cdist(points[torch.from_numpy(sources)], points).numpy()
        far, near = apart[pairs], steps[pairs].astype(int)
        varies = len(np.unique(near)) > 1 and float(far.std()) > 0
        about = f"head {head}" + (f", correlation {np.corrcoef(near, far)[0, 1]:.2f}" if varies else "")
        draw_hops(axis, near, far, about)
    headline(figure, title)
    return figure


def draw_hops(axis: Axes, near: NDArray, far: NDArray, title: str) -> None:
    """Mean and standard deviation of the distances ``far`` of pairs of nodes that are ``near`` edges apart."""
    numbers = np.bincount(near)
    at = np.flatnonzero(numbers)
    mean = np.bincount(near, far)[at] / numbers[at]
    deviation = np.sqrt(np.maximum(np.bincount(near, far**2)[at] / numbers[at] - mean**2, 0))
    axis.errorbar(at, mean, deviation, fmt="o-", color=COLOURS[0], markersize=3, capsize=2, linewidth=1)
    axis.set_title(title, fontsize=9)
    axis.set(xlabel="edges between two nodes", ylabel="embedding distance")
    axis.set_ylim(bottom=0)
