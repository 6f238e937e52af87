"""The non-linearity of layers and models, by PyG's names."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.resolver import activation_resolver

Activation = Callable[[Tensor], Tensor]


class ELU(torch.nn.ELU):
    """:class:`torch.nn.ELU`, with the same bits for any number of threads."""

    def forward(self, x: Tensor) -> Tensor:
        # On a CPU, F.elu rounds the last few numbers of each thread's share differently; expm1 does
        # not.
        return F.elu(x) if x.is_cuda else torch.relu(x) + torch.expm1(x.clamp(max=0))


def make_activation(act: str | Activation) -> Activation:
    """Makes an activation from PyG's name for it; returns a function as it is."""
    activation: Activation = ELU() if act == "elu" else activation_resolver(act)
    return activation
