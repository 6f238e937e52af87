r"""A small network with a global path that can be switched, for tests of the loop; not
registered."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import dropout


class Switchable(torch.nn.Module):
    """A linear layer of the node and its neighbours' mean; behind a gate, the mean of all nodes."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own, self.near, self.far = (
            torch.nn.Linear(in_channels, out_channels) for _ in range(3)
        )
        self.gate = torch.nn.Parameter(torch.zeros(out_channels))
        self.use_global = True
        self.seen_edges: list[int] = []

    def set_global(self, on: bool) -> None:
        self.use_global = on

    def undecayed_parameters(self):
        yield self.gate

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.seen_edges.append(edge_index.size(1))
        x = dropout(x, 0.3, self.training)
        sums = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        out = self.own(x) + self.near(sums) / 5
        return out + self.gate * torch.tanh(self.far(x.mean(dim=0))) if self.use_global else out

    def global_statistics(self, x: Tensor, edge_index: Tensor):
        count = float(len(x))
        heads = {
            "decay": [1.0, 2.0],
            "spread": [0.5, 0.25],
            "effective_nodes": [count, count / 2],
            "self_share": [0.1, 0.2],
        }
        return [{**heads, "gate": float(self.gate.detach().square().mean().sqrt())}]
