r"""Geom-GCN, the paper's rival: its layer, its model."""

from ...nn.models import MODELS
from .conv import GeomGCNConv
from .model import GeomGCN

MODELS.update({"geom-gcn-i": GeomGCN, "geom-gcn-p": GeomGCN, "geom-gcn-s": GeomGCN})

__all__ = ["GeomGCN", "GeomGCNConv"]
