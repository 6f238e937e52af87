"""The layers and models, as PyTorch Geometric users expect them."""

from ..registry import ModelClasses
from .attention_statistics import attention_statistics
from .eda_conv import EDAConv
from .global_attention import GlobalAttention
from .global_block import GlobalBlock
from .global_gnn import GlobalGNN
from .global_memory import GlobalMemory
from .label_attention import LabelAttention
from .label_path import LabelOutputs
from .models import GAT, GATEDA, GCN, MLP, PHGCN
from .periodic_features import PeriodicFeatures
from .phgcn_conv import PHGCNConv
from .table_network import TableNetwork

MODELS = ModelClasses()
"""The model classes by the names that the command line and the tables use."""

__all__ = [
    "GAT",
    "GATEDA",
    "GCN",
    "MLP",
    "MODELS",
    "PHGCN",
    "EDAConv",
    "GlobalAttention",
    "GlobalBlock",
    "GlobalGNN",
    "GlobalMemory",
    "LabelAttention",
    "LabelOutputs",
    "PHGCNConv",
    "PeriodicFeatures",
    "TableNetwork",
    "attention_statistics",
]
