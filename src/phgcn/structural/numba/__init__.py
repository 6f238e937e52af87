r"""Attention to neighbours in Numba, on all cores."""

from .attend import backward, forward

__all__ = ["backward", "forward"]
