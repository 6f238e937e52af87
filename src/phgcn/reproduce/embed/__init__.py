r"""Embeddings of a graph's nodes in the plane, and the neighbourhoods that Geom-GCN takes from them."""

from .neighbourhood import METHODS, SOURCES, Neighbourhood, as_edges, related_edges

__all__ = ["METHODS", "SOURCES", "Neighbourhood", "as_edges", "related_edges"]
