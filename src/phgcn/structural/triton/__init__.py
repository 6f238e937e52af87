r"""Attention to neighbours in Triton, on a GPU."""

from .attend import backward, forward

__all__ = ["backward", "forward"]
