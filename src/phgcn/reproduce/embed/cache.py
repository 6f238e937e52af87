r"""Embeddings that were computed before."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.check import bad
from ...data.load import user_cache
from ...data.npz import DAMAGE
from ...files import replacing
from .isomap import isomap
from .neighbourhood import METHODS
from .poincare import poincare
from .struc2vec import struc2vec

EMBED: dict[str, Callable[[NDArray, int, int], NDArray]] = {"isomap": isomap, "poincare": poincare, "struc2vec": struc2vec}
VERSION = 1
"""To be counted up where an embedding changes."""


@dataclass(frozen=True)
class Embedding:
    r"""The positions of a graph's nodes.

    Shapes:
        - **positions:** :math:`(N, 2)`
    """

    positions: NDArray
    seconds: float
    path: Path


def embedding(edges: NDArray, count: int, method: str, seed: int = 0, again: bool = False) -> Embedding:
    """Reads the embedding of a graph from the cache, or computes and caches it.

    Args:
        edges (array): The edges in both directions, each once, sorted, without self-loops.
        count (int): The number of nodes.
        method (str): ``"isomap"``, ``"poincare"`` or ``"struc2vec"``.
        seed (int, optional): What random numbers follow from. (default: :obj:`0`)
        again (bool, optional): Computes it even if it is in the cache. (default: :obj:`False`)
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed is {seed}; allowed: 0 to {2**31 - 1}")
    path = cached_file(edges, count, method, seed)
    if path.is_file() and not again:
        return _read(path, count)
    begin = time.perf_counter()
    positions = EMBED[method](edges, count, seed)
    seconds = time.perf_counter() - begin
    _write(path, positions=positions, seconds=seconds)
    return Embedding(positions, seconds, path)


def cached_file(edges: NDArray, count: int, method: str, seed: int) -> Path:
    """Returns the file of an embedding, in ``<user's cache>/phgcn/embeddings``: by method, the graph's edges, and the seed."""
    digest = hashlib.sha256(f"{VERSION} {count} ".encode() + np.ascontiguousarray(edges, np.int64).tobytes()).hexdigest()[:16]
    return user_cache().parent / "embeddings" / f"{method}-{digest}-{seed}.npz"


def _write(path: Path, **arrays: Any) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _read(path: Path, count: int) -> Embedding:
    try:
        with np.load(path, allow_pickle=False) as archive:
            positions, seconds = archive["positions"], float(archive["seconds"])
    except DAMAGE as error:
        raise bad(path, f"no embedding, or a damaged one ({error}); remove it, or embed with --again") from None
    if positions.shape != (count, 2):
        raise bad(path, f"positions has shape {positions.shape}", allowed=f"({count}, 2)")
    return Embedding(positions, seconds, path)
