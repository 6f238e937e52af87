r"""The permutohedral lattice: knows points and values, nothing of graphs."""

from .scheme import Ladder, MultiScale, Separable

__all__ = ["Ladder", "MultiScale", "Separable"]
