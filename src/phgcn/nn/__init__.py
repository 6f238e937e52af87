r"""The layers and models, as PyTorch Geometric users expect them."""

from .eda_conv import EDAConv
from .global_attention import GlobalAttention
from .models import GAT, GATEDA, GCN, MLP, MODELS, PHGCN
from .phgcn_conv import PHGCNConv

__all__ = ["GAT", "GATEDA", "GCN", "MLP", "MODELS", "PHGCN", "EDAConv", "GlobalAttention", "PHGCNConv"]
