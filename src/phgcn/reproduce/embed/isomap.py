r"""Isomap of a graph: a plane in which distances are, as nearly as can be, numbers of hops.

What scikit-learn's ``Isomap`` does with points (shortest paths, then the two leading eigenvectors of the centred squares),
without its first step: the graph of neighbours is given.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, shortest_path

from ..extra import needed

MOST_EXACT = 8192
"""Larger components are placed by their distances to landmarks, as a matrix of all distances would not fit."""
LANDMARKS = 1024
DIGITS = 7
"""Nodes with the same neighbours have the same place; rounding, to this many digits, lets them have it exactly."""


def isomap(edges: NDArray, count: int, seed: int) -> NDArray:
    r"""Computes the positions of nodes.

    Nodes of different components have no distance.  Each component is placed on its own, the components then side by side,
    further from each other than any two nodes of one: nodes of different components are never near.  A node without edges
    has no place (NaN).

    Shapes:
        - **edges:** :math:`(E, 2)`, in both directions; **output:** :math:`(N, 2)`
    """
    needed("sklearn", "scikit-learn", "the embedding isomap")
    links = csr_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    _, label = connected_components(links, directed=False)
    positions = np.full((count, 2), np.nan)
    groups = [nodes for nodes in _members(label) if len(nodes) > 1]
    for nodes in groups:
        positions[nodes] = _component(links[nodes][:, nodes], seed)
    _side_by_side(positions, groups)
    return positions


def _members(label: NDArray) -> list[NDArray]:
    """Lists the nodes of each component."""
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if len(label) else []


def _component(links: csr_matrix, seed: int) -> NDArray:
    """Computes the positions of the nodes of one component, relative to its centre."""
    if links.shape[0] <= MOST_EXACT:
        positions = _planar(shortest_path(links, unweighted=True), seed)[0]
    else:
        positions = _by_landmarks(links, seed)
    scale = np.abs(positions).max() * 10.0**-DIGITS
    return np.round(positions / scale) * scale


def _planar(hops: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Computes the planar positions that keep distances best, and the two eigenvalues."""
    from sklearn.decomposition import KernelPCA

    leading = KernelPCA(n_components=2, kernel="precomputed", random_state=seed)
    return leading.fit_transform(-0.5 * hops**2), leading.eigenvalues_


def _by_landmarks(links: csr_matrix, seed: int) -> NDArray:
    """Positions from distances to landmarks (de Silva and Tenenbaum, 2004): those of the landmarks keep their distances best,
    every other node is where its distances to them put it."""
    landmarks = np.sort(np.random.default_rng(seed).choice(links.shape[0], LANDMARKS, replace=False))
    hops = shortest_path(links, unweighted=True, indices=landmarks)
    places, strength = _planar(hops[:, landmarks], seed)
    mean = (hops[:, landmarks] ** 2).mean(axis=1, keepdims=True)
    strength = np.where(strength > 0, strength, np.inf)  # a flat component has one dimension only
    return (-0.5 * (hops**2 - mean)).T @ (places / strength)


def _side_by_side(positions: NDArray, groups: list[NDArray]) -> None:
    """Moves the components apart, the largest first, along the first axis."""
    widths = [np.ptp(positions[nodes], axis=0) for nodes in groups]
    gap = 2 * max((float(np.hypot(*width)) for width in widths), default=0.0)
    place = 0.0
    for number in sorted(range(len(groups)), key=lambda number: -len(groups[number])):
        nodes = groups[number]
        positions[nodes, 0] += place - positions[nodes, 0].min()
        place += widths[number][0] + gap
