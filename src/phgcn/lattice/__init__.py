r"""The permutohedral lattice: knows points and values, nothing of graphs."""

from .scheme import Exact, MultiScale, Separable

__all__ = ["Exact", "MultiScale", "Separable"]
