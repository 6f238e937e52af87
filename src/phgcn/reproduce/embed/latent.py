r"""Neighbours in latent space: nodes whose positions are less than a radius apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from .neighbourhood import Neighbourhood
from .poincare import hyperbolic_distance

if TYPE_CHECKING:
    from torch_geometric.data import Data

GROWTH = 1.25
"""By how much the radius grows until it holds enough pairs."""


def computed(data: Data, method: str, seed: int = 0) -> Neighbourhood:
    """Computes both neighbourhoods of a graph; the embedding may come from the cache."""
    from .cache import embedding

    edges = undirected(data)
    return neighbourhood(edges, embedding(edges, int(data.num_nodes), method, seed).positions, method)


def undirected(data: Data) -> NDArray:
    r"""Returns the edges of a graph in both directions, each once, without self-loops: :math:`(E, 2)`."""
    pairs = data.edge_index.cpu().numpy().T
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def neighbourhood(edges: NDArray, positions: NDArray, method: str) -> Neighbourhood:
    """Computes both neighbourhoods of a graph whose nodes have positions."""
    near, _ = latent_pairs(positions, len(edges), method)
    pairs = np.concatenate([edges, near])
    latent = np.arange(len(pairs)) >= len(edges)
    return Neighbourhood(pairs, latent, quadrants(positions, pairs))


def quadrants(positions: NDArray, pairs: NDArray) -> NDArray:
    r"""Computes the quadrant of the second node of a pair, seen from the first: 0 right and above, 1 left and above, 2 right
    and below, 3 left and below.  On an axis counts as right or above; a node without a position as one in the same place.

    Shapes:
        - **positions:** :math:`(N, 2)`, **pairs:** :math:`(K, 2)`, **output:** :math:`(K,)`
    """
    step = positions[pairs[:, 1]] - positions[pairs[:, 0]]
    return ((step[:, 0] < 0) + 2 * (step[:, 1] < 0)).astype(np.uint8)


def latent_pairs(positions: NDArray, wanted: int, method: str) -> tuple[NDArray, float]:
    r"""Selects the pairs of nodes that are less than a radius apart.  The radius is chosen as Geom-GCN does: so that it gives
    as many pairs as the graph has, ``wanted``.

    Pairs of the same distance are all in or all out: the number is the nearest to ``wanted`` that this allows.  Nodes in the
    very same place have no direction to each other, and are no neighbours.  A node without a position (NaN) has none.

    Shapes:
        - **positions:** :math:`(N, 2)`, **output:** :math:`(K, 2)`, in both directions and sorted, and the radius
    """
    placed = np.flatnonzero(~np.isnan(positions).any(axis=1))
    places, place = np.unique(positions[placed], axis=0, return_inverse=True)
    place = place.reshape(-1)
    many = np.bincount(place, minlength=len(places))  # nodes in one place
    pairs, apart = _nearest(places, many, wanted, method)
    order = np.argsort(apart, kind="stable")
    pairs, apart = pairs[order], apart[order]
    last = np.flatnonzero(np.append(np.diff(apart) > 0, len(apart) > 0))  # the last pair of each distance
    within = np.append(0, np.cumsum(many[pairs[:, 0]] * many[pairs[:, 1]])[last])
    best = int(np.argmin(np.abs(within - wanted)))
    taken = pairs[: last[best - 1] + 1] if best > 0 else pairs[:0]
    radius = float(apart[len(taken)]) if len(taken) < len(apart) else np.inf
    return _of_nodes(taken, placed, place, many), radius


def _of_nodes(pairs: NDArray, placed: NDArray, place: NDArray, many: NDArray) -> NDArray:
    """Expands pairs of places to the pairs of nodes in them."""
    members = np.split(placed[np.argsort(place, kind="stable")], np.cumsum(many)[:-1]) if len(many) else []
    node_pairs = [np.stack(np.meshgrid(members[a], members[b], indexing="ij"), -1).reshape(-1, 2) for a, b in pairs]
    nodes = np.concatenate([np.empty((0, 2), np.int64), *node_pairs])
    return nodes[np.lexsort((nodes[:, 1], nodes[:, 0]))]


def _nearest(places: NDArray, many: NDArray, wanted: int, method: str) -> tuple[NDArray, NDArray]:
    """Selects the pairs of places within a radius that holds at least ``wanted`` pairs of nodes, if there are that many;
    returns their distances too."""
    pairs, apart = np.empty((0, 2), np.int64), np.empty(0)
    if len(places) < 2 or wanted == 0:
        return pairs, apart
    ball, distance = (_hyperbolic_ball, hyperbolic_distance) if method == "poincare" else (_ball, _distance)
    tree = cKDTree(places)
    nearest = tree.query(places, k=2)[1][:, 1]
    radius = float(np.quantile(distance(places, places[nearest]), 0.05))
    total = int(many.sum() ** 2 - (many**2).sum())
    while (many[pairs[:, 0]] * many[pairs[:, 1]]).sum() < min(wanted, total):
        centres, reach = ball(places, radius)
        neighbours = tree.query_ball_point(centres, reach * (1 + 1e-9))
        first = np.repeat(np.arange(len(places)), [len(row) for row in neighbours])
        pairs = np.stack([first, np.concatenate(neighbours).astype(np.int64)], axis=1)
        apart = distance(places[pairs[:, 0]], places[pairs[:, 1]])
        inside = (pairs[:, 0] != pairs[:, 1]) & (apart <= radius)
        pairs, apart, radius = pairs[inside], apart[inside], radius * GROWTH
    return pairs, apart


def _distance(first: NDArray, second: NDArray) -> NDArray:
    return np.hypot(*(first - second).T)


def _ball(places: NDArray, radius: float) -> tuple[NDArray, NDArray]:
    return places, np.full(len(places), radius)


def _hyperbolic_ball(places: NDArray, radius: float) -> tuple[NDArray, NDArray]:
    """Computes centre and radius of the Euclidean disc that equals a disc of hyperbolic space."""
    reach, square = np.tanh(radius / 2), (places**2).sum(axis=1)
    room = 1 - reach**2 * square
    return places * ((1 - reach**2) / room)[:, None], reach * (1 - square) / room
