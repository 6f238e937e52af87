"""The paper's filter of all clouds together; the specification is
:func:`phgcn.lattice.reference.filter.separable`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..geometry import origin
from ..scheme import Separable
from ..separable import separable_weights
from .clouds import Clouds
from .kernels import Kernels, Peers, Side
from .keys import bit_widths
from .lattice import Floats, Frame, count_bytes, find_corners, lay_frame, locate
from .moves import blur_passes, window


class Passes:
    """The lattices of the clouds ``part``, with the touched vertices of all processes."""

    def __init__(
        self,
        clouds: Clouds,
        part: range,
        box: tuple[Floats, Floats],
        scheme: Separable,
        kernels: Kernels,
        peers: Peers,
    ) -> None:
        self.kernels, self.peers = kernels, peers
        self.key_part, self.query_part = (
            some.part(part.start, part.stop) for some in (clouds.keys, clouds.queries)
        )
        keys, box = (
            clouds.keys.side,
            (box[0][part.start : part.stop], box[1][part.start : part.stop]),
        )
        chosen = (keys, self.key_part), (clouds.queries.side, self.query_part)
        sides = [Side(side.position[p], side.cloud[p] - part.start) for side, p in chosen]
        self.to_itself, self.cloud = clouds.to_itself, [side.cloud for side in sides]
        dim, device = keys.position.size(1), keys.position.device
        self.weights = separable_weights(scheme, dim)
        frame = _frame(box, self.weights.spacing)
        self.spacing = torch.from_numpy(frame.spacing).to(device)
        self.grid = window(frame.low, frame.high, device, len(self.weights.weights))
        self.located = [
            locate(side, frame, self.grid) for side in sides[: 1 if self.to_itself else 2]
        ]
        self.key = peers.union(
            torch.unique(torch.cat([located.key.flatten() for located in self.located]))
        )
        self.corners = [
            find_corners(located, self.key, keys.position.dtype) for located in self.located
        ]

    @property
    def size(self) -> int:
        return count_bytes([self.located, self.key, self.corners])

    @staticmethod
    def key_bits(box: tuple[Floats, Floats], scheme: Separable) -> list[int]:
        """Returns the bits of each cloud's keys."""
        weights = separable_weights(scheme, box[0].shape[1])
        frame = _frame(box, weights.spacing)
        bits: list[int] = (
            bit_widths(np.ceil(frame.high - frame.low) + 2 * len(weights.weights) + 4)
            .sum(axis=1)
            .tolist()
        )
        return bits

    def blur(self, table: Tensor, backwards: bool) -> Tensor:
        table = self.peers.sum(table)
        blurred = blur_passes(
            table, self.key, self.grid, self.weights.weights, backwards, self.kernels
        )
        return blurred.mul_(self.weights.scale)

    def sum(self, rows: Tensor) -> Tensor:
        """Sums the rows of the keys, (M, W)."""
        return self.corners[-1].slice(
            self.blur(self.corners[0].splat(rows, self.kernels), False), self.kernels
        )

    def gradients(self, rows: Tensor, grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the gradients of :meth:`sum` by rows and by positions of keys and queries,
        float64. Passes over touched vertices do not commute: gradients take them in reverse."""
        of_keys, of_queries = self.corners[0], self.corners[-1]
        values = self.blur(of_keys.splat(rows, self.kernels), False)
        table = self.blur(of_queries.splat(grads, self.kernels), True)
        products = (
            of_keys.products(table, rows, self.kernels),
            of_queries.products(values, grads, self.kernels),
        )
        key_slopes, query_slopes = (
            located.slopes(product, cloud, self.spacing)
            for located, product, cloud in zip(
                (self.located[0], self.located[-1]), products, self.cloud, strict=True
            )
        )
        if self.to_itself:
            key_slopes = key_slopes + query_slopes
        return of_keys.slice(table, self.kernels), key_slopes, query_slopes


def _frame(box: tuple[Floats, Floats], spacing: float) -> Frame:
    count, dim = box[0].shape
    return lay_frame(*box, np.full(count, spacing), np.tile(origin(dim).numpy(), (count, 1)))
