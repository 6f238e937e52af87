"""The permutohedral lattice: knows points and values, nothing of graphs."""

from .scheme import Ladder, Separable

__all__ = ["Ladder", "Separable"]
