r"""struc2vec of a graph: nodes are near whose surroundings have the same degrees, wherever they are (Ribeiro et al., 2017).

The surroundings of a node are its rings: the nodes one hop away, two hops, and so on.  In layer k of a graph of layers, two
nodes are linked the stronger, the more the sorted degrees of their rings 0 to k agree.  Random walks through the layers give
sentences of nodes, and gensim's word2vec gives each node a place by the nodes it is seen with.

As the authors' code does for large graphs: rings are kept as (degree, how often), each node is compared with those nodes
only whose degree is nearest, and rings end after a few hops.
"""

from __future__ import annotations

import logging
import math

import numpy as np
from scipy.sparse import csr_matrix

from ..arrays import Floats, Ints
from ..extra import needed
from .walks import compare, rings, running_weights, walks

WALKS = 10
LENGTH = 80
WINDOW = 10
EPOCHS = 5


def struc2vec(edges: Ints, count: int, seed: int) -> Floats:
    r"""Computes the positions of nodes; nodes without edges are placed beside each other, as their ring 0 has degree 0.

    Shapes:
        - **edges:** :math:`(E, 2)`, in both directions; **output:** :math:`(N, 2)`
    """
    needed("gensim", "gensim", "the embedding struc2vec")
    if count < 2:
        return np.zeros((count, 2))  # gensim waits for ever where there is one word only
    links = csr_matrix((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(count, count))
    starts, others = links.indptr.astype(np.int64), links.indices.astype(np.int64)
    degree = np.diff(starts)
    pairs = candidates(degree)
    begin, degrees, often = rings(starts, others, degree)
    cost = compare(begin, degrees, often, pairs)
    sentences = walks(*_layers(pairs, cost, count), WALKS, LENGTH, seed)
    return _places(sentences, count, seed)


def candidates(degree: Ints) -> Ints:
    r"""Selects the pairs of nodes to compare: each node with the :math:`2 \log_2 N` nodes of the nearest degree.

    Shapes:
        - **degree:** :math:`(N,)`, **output:** :math:`(P, 2)`, the smaller node first, sorted
    """
    count = len(degree)
    reach = min(math.ceil(math.log2(max(count, 2))), count - 1)
    order = np.argsort(degree, kind="stable")
    shifts = [np.stack([order[:-step], order[step:]], axis=1) for step in range(1, reach + 1)]
    pairs = np.sort(np.concatenate([np.empty((0, 2), np.int64), *shifts]), axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _layers(pairs: Ints, cost: Floats, count: int) -> tuple[Ints, Ints, Floats, Floats]:
    """Concatenates the layers into the arrays that :func:`walks` takes."""
    rows = [_layer(pairs[linked], cost[linked, hop], count) for hop, linked in enumerate(np.isfinite(cost).T)]
    ends = np.cumsum([0, *(len(others) for _, others, _, _ in rows)])
    starts = np.stack([row[0] + end for row, end in zip(rows, ends, strict=False)])
    others, sums = (np.concatenate([row[part] for row in rows]) for part in (1, 2))
    return starts, others, sums, np.stack([row[3] for row in rows])


def _layer(pairs: Ints, cost: Floats, count: int) -> tuple[Ints, Ints, Floats, Floats]:
    """Computes where each node's links begin, their targets, the prefix sums of their weights, and the probability of going
    up, which grows with the number of a node's links that are stronger than the mean."""
    both, cost = np.concatenate([pairs, pairs[:, ::-1]]), np.concatenate([cost, cost])
    order = np.lexsort((both[:, 1], both[:, 0]))
    both, cost = both[order], cost[order]
    starts = np.searchsorted(both[:, 0], np.arange(count + 1))
    weight = np.exp(-cost)
    strong = np.bincount(both[:, 0], weight > weight.mean() if len(weight) else None, minlength=count)
    up = np.log(strong + np.e)
    return starts, both[:, 1], running_weights(starts, cost), up / (up + 1)


def _places(sentences: Ints, count: int, seed: int) -> Floats:
    """Trains word2vec on sentences of nodes; returns a position per node."""
    from gensim.models import Word2Vec

    logging.getLogger("gensim").setLevel(logging.WARNING)
    words = [[str(node) for node in sentence] for sentence in sentences.tolist()]
    model = Word2Vec(
        words, vector_size=2, window=WINDOW, min_count=0, sg=1, hs=1, negative=0, epochs=EPOCHS, seed=seed, workers=1
    )
    positions: Floats = model.wv[[str(node) for node in range(count)]].astype(np.float64)
    return positions
