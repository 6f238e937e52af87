r"""Poincaré embedding of a graph: a disc of hyperbolic space in which linked nodes are near, by gensim."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from ..extra import needed

EPOCHS = 50
BURN_IN = 10
NEGATIVE = 10
BATCH = 50


def poincare(edges: NDArray, count: int, seed: int) -> NDArray:
    r"""Computes positions of nodes in the unit disc (Nickel and Kiela, 2017); distances in it are those of
    :func:`hyperbolic_distance`.

    A node without edges has no place (NaN).  Components are placed together: what is not linked is pushed apart.

    Shapes:
        - **edges:** :math:`(E, 2)`, in both directions; **output:** :math:`(N, 2)`
    """
    needed("gensim", "gensim", "the embedding poincare")
    positions = np.full((count, 2), np.nan)
    if len(edges) == 0:
        return positions
    from gensim.models.poincare import PoincareModel

    logging.getLogger("gensim").setLevel(logging.WARNING)
    relations = [(int(a), int(b)) for a, b in edges]
    degree = np.bincount(edges[:, 0])
    strangers = int((degree > 0).sum() - degree.max())  # of the node with most links, itself included
    model = PoincareModel(relations, size=2, negative=min(NEGATIVE, strangers), burn_in=BURN_IN, seed=seed)
    model.train(epochs=EPOCHS, batch_size=BATCH)
    positions[np.array(model.kv.index_to_key)] = model.kv.vectors
    return positions


def hyperbolic_distance(first: NDArray, second: NDArray) -> NDArray:
    r"""Computes the distance in the Poincaré disc.

    .. math::
        d(\mathbf{u}, \mathbf{v}) = \operatorname{arcosh} \left( 1 + 2 \frac{\lVert \mathbf{u} - \mathbf{v} \rVert^2}
        {(1 - \lVert \mathbf{u} \rVert^2)(1 - \lVert \mathbf{v} \rVert^2)} \right)

    Shapes:
        - **first**, **second:** :math:`(K, 2)`; **output:** :math:`(K,)`
    """
    square = ((first - second) ** 2).sum(axis=1)
    room = (1 - (first**2).sum(axis=1)) * (1 - (second**2).sum(axis=1))
    return np.arccosh(1 + 2 * square / room)
