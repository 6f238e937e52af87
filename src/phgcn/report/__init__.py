"""Figures of trained runs."""

from .plot import plot

__all__ = ["plot"]
