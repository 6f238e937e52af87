r"""How much training a machine can afford by default: fewer splits and epochs for a graph that is large for a CPU.

At 100,000 nodes and a million edges an epoch of ``global-gnn`` takes seconds on two cores.  Ten splits of a thousand epochs
would be a day or more, which nobody means who types ``phgcn train my-graph/``.  Whoever does says so: ``--splits``, ``--set``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch_geometric.data import Data

from .graph import count_edges
from .suited import Suited

SPLITS = 3
"""Splits of a graph that is not large."""

MOST_LAYERS = 3
"""Layers of ``global-gnn`` at most on a large graph: each adds about as much time."""


class Affordable(NamedTuple):
    """The default number of splits, upper bounds of settings by default, and why they are what they are."""

    splits: int
    bounds: dict[str, Any]
    reason: str

    def limit(self, suited: Suited | None) -> Suited | None:
        """Returns settings that suit the graph, or the defaults if :obj:`None`, within the bounds."""
        if not self.bounds:
            return suited
        if suited is None:
            return Suited({key: self.bounds[key] for key in ("epochs", "patience")}, self.reason)
        values = {key: min(suited.values.get(key, bound), bound) for key, bound in self.bounds.items()}
        return Suited(suited.values | values, f"{suited.reason}; {self.reason}")


def afford(data: Data, device: str) -> Affordable:
    """Returns what can be afforded by default on a device, by the numbers of nodes and edges.

    Args:
        data (torch_geometric.data.Data): The graph.
        device (str): Where it is trained; there are no bounds but on the CPU.
    """
    nodes, edges = int(data.num_nodes), count_edges(data)
    reason = f"limited for {nodes:,} nodes and {edges:,} edges on {device}"
    if device != "cpu" or nodes + edges < 300_000:
        return Affordable(SPLITS, {}, "")
    if nodes + edges < 800_000:
        return Affordable(3, {"epochs": 300, "local_epochs": 150, "patience": 50, "num_layers": MOST_LAYERS}, reason)
    return Affordable(1, {"epochs": 200, "local_epochs": 100, "patience": 50, "num_layers": MOST_LAYERS}, reason)
