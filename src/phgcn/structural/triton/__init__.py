"""Attention to neighbours, and sums over them, in Triton, on a GPU."""

from .attend import backward, forward
from .edges import sort_edges, sum_rows

__all__ = ["backward", "forward", "sort_edges", "sum_rows"]
