r"""Geom-GCN, the paper's rival: its layer and its model."""

from .conv import GeomGCNConv
from .model import GeomGCN

__all__ = ["GeomGCN", "GeomGCNConv"]
