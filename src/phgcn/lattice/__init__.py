r"""The permutohedral lattice: knows points and values, nothing of graphs."""

from .scheme import MultiScale, Separable

__all__ = ["MultiScale", "Separable"]
