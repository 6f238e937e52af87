r"""Attention within buckets of locality-sensitive hashing, after Reformer, in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .low_rank import kernel
from .sums import ENTRIES, add_ones, divide, generator, in_part


def hashed(points: Tensor, values: Tensor, rounds: int, bucket: int) -> Tensor:
    """Sums over the pairs that share a bucket of at most ``bucket`` points in some round (Kitaev,
    Kaiser and Levskaya, 2020, `arXiv:2001.04451 <https://arxiv.org/abs/2001.04451>`_).

    Reformer hashes directions; for distances, buckets here are made by halving along random
    projections. A pair that shares buckets in several rounds counts once.
    """
    levels = max(0, math.ceil(math.log2(len(points) / bucket)))
    size = -(-len(points) // 2**levels)
    spare = size * 2**levels - len(points)
    padded_points = torch.cat([points, points.new_zeros(spare, points.size(1))])
    padded_rows = torch.cat([add_ones(values), values.new_zeros(spare, values.size(1) + 1)])
    random = generator(points.device)
    orders = [_order(points.detach(), spare, levels, random) for _ in range(rounds)]
    buckets = torch.stack([_bucket_of(order, size) for order in orders])
    sums, count = torch.zeros_like(padded_rows), max(1, ENTRIES // (rounds * size**2))
    for order in orders:
        parts = []
        for members in order.view(-1, size).split(count):
            of_part = padded_points[members], padded_rows[members], buckets[:, members]
            parts.append(in_part(_bucket_sums, *of_part).flatten(0, 1))
        sums = sums.index_add(0, order, torch.cat(parts))
    return divide(sums[: len(points)], values)


def _order(points: Tensor, spare: int, levels: int, random: torch.Generator) -> Tensor:
    """Orders points so that buckets are consecutive: halves all parts along a direction."""
    order = torch.arange(len(points) + spare, device=points.device)
    for level in range(levels):
        direction = torch.randn(points[0].shape, generator=random, device=points.device).to(points)
        along = torch.cat([points @ direction, points.new_full((spare,), torch.inf)])
        parts = order.view(2**level, -1)
        order = parts.gather(1, along[parts].argsort(dim=1)).flatten()
    return order


def _bucket_of(order: Tensor, size: int) -> Tensor:
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return place // size


def _bucket_sums(points: Tensor, rows: Tensor, buckets: Tensor) -> Tensor:
    """Sums points (B, m, D) and rows (B, m, C + 1) in buckets of all rounds (R, B, m)."""
    times = (buckets.unsqueeze(-1) == buckets.unsqueeze(-2)).sum(dim=0)
    return (kernel(points, points) / times) @ rows
