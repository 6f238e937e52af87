r"""A small graph in the place of texas, for the tests of the benchmark and of ``when``."""

from __future__ import annotations

import pytest
import torch
from small_graphs import small_graph
from torch_geometric.data import Data

from phgcn_lab.benchmark import training


def graph_with_splits(nodes: int = 60, splits: int = 10) -> Data:
    """Adds ten random splits: half of the nodes train, a quarter each validates and tests."""
    data = small_graph(nodes)
    random = torch.Generator().manual_seed(1)
    order = torch.stack([torch.randperm(nodes, generator=random) for _ in range(splits)], dim=1)
    data.train_mask, data.val_mask, data.test_mask = (
        order < nodes // 2,
        (order >= nodes // 2) & (order < 3 * nodes // 4),
        order >= 3 * nodes // 4,
    )
    return data


def use_as_texas(monkeypatch: pytest.MonkeyPatch, data: Data) -> None:
    """Lets the benchmark load this graph, whatever it asks for."""
    training._tasks.cache_clear()
    monkeypatch.setattr(training, "load", lambda graph: data)
