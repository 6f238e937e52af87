"""A network's path for the labels of other nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..checks import check_choice
from .distance_attention import Decay
from .label_attention import LabelAttention

# the scales of coordinates in the heads that attend on the map, at the start
MAP_SCALES = (1.0, 3.0, 9.0, 27.0)


TASKS = ("classification", "regression", "multilabel")
FLOOR = 0.01  # the least share of a class in its logit: no class is impossible


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
        """Resets the scale."""
        torch.nn.init.constant_(self.scale, self.start)

    def forward(self, means: Tensor) -> Tensor:
        """Runs the forward pass of the module."""
        if self.task == "classification":
            # rounding of a lattice: shares that do not quite sum to 1
            means = F.normalize(means, p=1, dim=1)
            return self.scale * torch.log((1 - FLOOR) * means.clamp(min=0) + FLOOR / means.size(1))
        if self.task == "multilabel":
            return self.scale * torch.logit((1 - 2 * FLOOR) * means.clamp(0, 1) + FLOOR)
        return self.scale * means

    def extra_repr(self) -> str:
        return f"{self.task!r}"


class LabelPath(torch.nn.Module):
    """Attends to labelled nodes by features and, on a map, by ``coordinates``, the columns with
    these. Turns their mean labels into outputs of a ``task``. The heads on the map learn their
    scales; ``settings`` are of :class:`LabelAttention`."""

    def __init__(
        self,
        channels: int,
        out_channels: int,
        task: str,
        scale: float = 1.0,
        coordinates: Sequence[int] = (),
        heads: int = 4,
        embedding_dim: int = 4,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.coordinates = list(coordinates)
        sizes = [(channels, out_channels, heads, embedding_dim)]
        if dims := len(self.coordinates):
            sizes.append((dims, out_channels, len(MAP_SCALES), dims))
        self.attentions = torch.nn.ModuleList(LabelAttention(*size, **settings) for size in sizes)
        self.shares = Parameter(torch.empty(len(self.attentions)))
        self.outputs = LabelOutputs(task, scale)
        self.memories = torch.nn.ModuleList()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in self._layers():
            layer.reset_parameters()
        self.outputs.reset_parameters()
        torch.nn.init.zeros_(self.shares)
        if self.coordinates:
            axes = torch.eye(len(self.coordinates))
            scaled = torch.cat([scale * axes for scale in MAP_SCALES])
            self._layers()[1].lin_position.weight.data.copy_(scaled)

    def _layers(self) -> list[LabelAttention]:
        return [cast(LabelAttention, layer) for layer in self.attentions]

    def attention_shares(self) -> list[float]:
        """Returns the share of each layer of attention in the mean label."""
        shares: list[float] = F.softmax(self.shares.detach(), dim=0).tolist()
        return shares

    def draw_keys(self, labelled: Tensor) -> Tensor:
        return self._layers()[0].draw_keys(labelled)

    def remember(self, num_nodes: int) -> None:
        """Gives each layer a memory of all nodes of one graph, for calls with ``n_id``."""
        memories = [layer.make_memory(num_nodes) for layer in self._layers()]
        self.memories = torch.nn.ModuleList(memories).to(self.shares)

    def forward(
        self,
        features: Tensor,
        x: Tensor,
        y: Tensor | None,
        labelled: Tensor | None,
        batch: Tensor | None = None,
        *,
        keys: Tensor | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        """Computes outputs (N, C), 0 for ``keys``, from the ``features`` that decide which labels a
        node gets and the columns ``x`` with the coordinates; see :class:`LabelAttention`."""
        inputs = [features, *([self._on_map(x)] if self.coordinates else [])]
        memories = [None] * len(inputs) if n_id is None else list(self.memories)
        means = [
            layer(read, y, labelled, batch, keys=keys, memory=memory, n_id=n_id)
            for layer, read, memory in zip(self._layers(), inputs, memories, strict=True)
        ]
        shares = F.softmax(self.shares, dim=0)
        out: Tensor = self.outputs(torch.einsum("anc,a->nc", torch.stack(means), shares))
        return out if keys is None else torch.where(keys.unsqueeze(1), 0.0, out)

    def _on_map(self, x: Tensor) -> Tensor:
        if x.layout == torch.strided:
            return x[:, self.coordinates]
        columns = torch.tensor(self.coordinates, device=x.device)
        on_map: Tensor = x.to_sparse_coo().index_select(1, columns).to_dense()
        return on_map

    def undecayed_parameters(self) -> Iterator[Parameter]:
        """Yields the parameters without weight decay: decays, shares and scales."""
        yield self.shares
        for module in self.modules():
            if isinstance(module, LabelAttention):
                yield module.head_shares
            elif isinstance(module, (Decay, LabelOutputs)):
                yield from module.parameters()


def check_columns(name: str, columns: Sequence[int], count: int) -> list[int]:
    """Refuses indices of columns that are not below ``count``, if it is known (not -1)."""
    for column in columns:
        if not 0 <= column < (count if count >= 0 else column + 1):
            raise ValueError(f"{name} has {column}; allowed: columns from 0 to {count - 1}")
    return list(columns)
