"""Attention to neighbours, and sums over them, in Numba, on all cores."""

from .attend import backward, forward
from .edges import sort_edges, sum_rows

__all__ = ["backward", "forward", "sort_edges", "sum_rows"]
