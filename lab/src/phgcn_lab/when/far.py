r"""Made-up graphs in which a far node holds the answer: one that is similar, and that no edge leads
to.

Half of the nodes are sources, which say their answer. Each other node is a copy of a source: nearly
the same key, and the same label, which its own features do not say. Edges are random. So a network
needs attention to all nodes, by the key."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch_geometric.data import Data


@dataclass(frozen=True)
class FarTask:
    nodes: int = 240  # half of them with a label
    classes: int = 2  # 0 for numbers
    key: int = 4  # features of the key
    distractors: int = 0  # features that are random
    noise: float = 0.05  # how much a copy's key differs from its source's, in deviations

    @property
    def name(self) -> str:
        kind = f"{self.classes} classes" if self.classes else "numbers"
        return f"{self.nodes} nodes, {kind}, key of {self.key}, {self.distractors} distractors"

    def draw(self, seed: int) -> Data:
        random = torch.Generator().manual_seed(seed)
        half = self.nodes // 2
        key = torch.randn(half, self.key, generator=random)
        copy = key + self.noise * torch.randn(half, self.key, generator=random)
        if self.classes:
            answer = torch.randint(self.classes, (half,), generator=random)
            said = F.one_hot(answer, self.classes).float() - 1 / self.classes
            unknown = torch.full((half,), -1)
        else:
            answer = torch.randn(half, generator=random)
            said, unknown = answer.unsqueeze(1), torch.full((half,), math.nan)
        keys, answers = torch.cat([key, copy]), torch.cat([said, torch.zeros_like(said)])
        order = torch.randperm(2 * half, generator=random)
        others = torch.randn(2 * half, self.distractors, generator=random)
        x = torch.cat([keys, answers, others], dim=1)[order]
        ends = torch.randint(2 * half, (2, 4 * half), generator=random)
        edges, y = torch.cat([ends, ends.flip(0)], dim=1), torch.cat([unknown, answer])[order]
        data = Data(x=x, y=y, edge_index=edges)
        data.num_nodes, data.name = 2 * half, "far"
        data.node_id = [f"n{number}" for number in range(2 * half)]
        data.classes = [f"c{number}" for number in range(self.classes)]
        data.num_classes = self.classes
        data.task = "classification" if self.classes else "regression"
        return data
