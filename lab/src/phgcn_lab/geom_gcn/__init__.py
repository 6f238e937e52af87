r"""Geom-GCN, the paper's rival: its layer, its model, and the published neighbourhoods."""

from .conv import GeomGCNConv
from .model import GeomGCN
from .neighbours import METHODS, Neighbourhood, as_edges, related_edges

__all__ = ["METHODS", "GeomGCN", "GeomGCNConv", "Neighbourhood", "as_edges", "related_edges"]
