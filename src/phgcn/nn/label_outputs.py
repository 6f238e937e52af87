r"""From the mean labels of a node's keys to outputs of a network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..checks import check_choice

TASKS = ("classification", "regression", "multilabel")
FLOOR = 0.01
"""The least share of a class in its logit, so that no label of a key can make a class
impossible."""


class LabelOutputs(torch.nn.Module):
    r"""Turns mean labels :math:`\mathbf{a}` into outputs, times a learned scale :math:`s`: for
    classes logits :math:`s \log(.99 \, \mathbf{a} + .01 / C)`, for several labels per node
    :math:`s \, \mathrm{logit}(.98 \, \mathbf{a} + .01)`, for numbers :math:`s \, \mathbf{a}`.

    Args:
        task (str): ``"classification"``, ``"regression"`` or ``"multilabel"``.
        scale (float, optional): The scale at the start. (default: :obj:`1.0`)

    Shapes:
        - **input**, **output:** :math:`(N, C)`
    """

    def __init__(self, task: str, scale: float = 1.0) -> None:
        super().__init__()
        check_choice("task", task, TASKS)
        self.task = task
        self.start = float(scale)
        self.scale = Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets the scale."""
        torch.nn.init.constant_(self.scale, self.start)

    def forward(self, means: Tensor) -> Tensor:
        r"""Runs the forward pass of the module."""
        if self.task == "classification":
            means = F.normalize(means, p=1, dim=1)  # rounding of a lattice: shares that do not quite sum to 1
            return self.scale * torch.log((1 - FLOOR) * means.clamp(min=0) + FLOOR / means.size(1))
        if self.task == "multilabel":
            return self.scale * torch.logit((1 - 2 * FLOOR) * means.clamp(0, 1) + FLOOR)
        return self.scale * means

    def extra_repr(self) -> str:
        return f"{self.task!r}"
