"""Global attention and full-graph training over several processes of :mod:`torch.distributed`; see
``docs/distributed.md``.
"""

from .boundary import PartEdges
from .collectives import RankError, Ranks, exchange_rows, gather_rows, sum_gradients, sum_over_ranks

__all__ = [
    "PartEdges",
    "RankError",
    "Ranks",
    "exchange_rows",
    "gather_rows",
    "sum_gradients",
    "sum_over_ranks",
]
