r"""The layers and models, as PyTorch Geometric users expect them."""

from .eda_conv import EDAConv
from .geom_gcn import GeomGCN
from .geom_gcn_conv import GeomGCNConv
from .global_attention import GlobalAttention
from .models import GAT, GATEDA, GCN, MLP, MODELS, PHGCN
from .phgcn_conv import PHGCNConv

MODELS.update({"geom-gcn-i": GeomGCN, "geom-gcn-p": GeomGCN, "geom-gcn-s": GeomGCN})

__all__ = [
    "GAT",
    "GATEDA",
    "GCN",
    "MLP",
    "MODELS",
    "PHGCN",
    "EDAConv",
    "GeomGCN",
    "GeomGCNConv",
    "GlobalAttention",
    "PHGCNConv",
]
