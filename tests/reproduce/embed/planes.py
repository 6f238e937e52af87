"""Small graphs and distances for the tests of embeddings."""

import numpy as np


def both_ways(pairs):
    """Edges in both directions, each once, without self-loops, sorted."""
    pairs = np.asarray(pairs)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def line(count):
    """A path of nodes."""
    nodes = np.arange(count)
    return both_ways(np.stack([nodes[:-1], nodes[1:]], axis=1))


def distances(positions):
    """Of all pairs, as a matrix."""
    return np.linalg.norm(positions[:, None] - positions, axis=-1)
