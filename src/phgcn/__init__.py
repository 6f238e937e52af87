r"""phgcn: global attention for graphs, at linear cost."""

from . import lattice
from .functional import global_attention, permutohedral_filter

__version__ = "0.1.0"

__all__ = ["global_attention", "lattice", "permutohedral_filter"]
