r"""Small contents of pages, without training."""

from __future__ import annotations

import numpy as np
import torch
from small_graphs import small_graph

from phgcn.data import Split
from phgcn.explore import Column, Content, Side, View, gather_graph, gather_views
from phgcn.explore.gather import prediction_columns, split_column
from phgcn.nn import PHGCN, GlobalGNN

NODES = 60


def model(kind: str = "phgcn", dim: int = 3) -> torch.nn.Module:
    """A model with random weights that attends to some nodes, not to all and not to itself
    alone."""
    torch.manual_seed(3)
    if kind == "phgcn":
        return PHGCN(5, 4, 3, heads=2, embedding_dim=dim, decay_global=2.0).eval()
    return GlobalGNN(5, 8, 3, global_layers=1, heads=2, embedding_dim=dim, decay=2.0).eval()


@torch.no_grad()
def side(network: torch.nn.Module, data, title: str = "model") -> Side:
    inputs = data.x, data.edge_index
    output = network(*inputs)
    number = torch.arange(NODES)
    columns = [
        *prediction_columns(output.argmax(dim=1), output.softmax(dim=1), data.y, data.classes),
        split_column(Split(number < 36, (number >= 36) & (number < 48), number >= 48)),
    ]
    curves = {"epoch": [1.0, 2.0, 3.0], "train_loss": [3.0, 2.0, 1.0]}
    curves["val_metric"] = [0.1, 0.2, 0.3]
    return Side(title, gather_views(network, inputs, output), columns, {"model": title}, curves, 3)


def content(*networks: torch.nn.Module) -> Content:
    """The small graph with one or two models."""
    data, shown = small_graph(NODES), enumerate(networks or [model()])
    sides = [side(network, data, f"model {number}") for number, network in shown]
    return Content("small: what the network attends to", *gather_graph(data), sides)


def plain_content(ids: list[str], classes: list[str], labels: list[int], **more) -> Content:
    """Nodes on a line, each an edge away from the next, with one view of two dimensions."""
    count = len(ids)
    positions = np.stack([np.arange(count), np.zeros(count)], axis=1).astype(np.float32)[:, None]
    ends = [(node - 1, node + 1) for node in range(count)]
    pairs = [[other for other in pair if 0 <= other < count] for pair in ends]
    starts = np.cumsum([0, *map(len, pairs)]).astype(np.int32)
    sources = np.array([other for pair in pairs for other in pair], np.int32)
    one = Side("model", [View("layer 0", positions, [1.0], [1.0])], more.get("columns", ()))
    column = Column("class", np.array(labels, np.int32), classes)
    return Content(more.get("title", "line"), ids, starts, sources, [column], [one])
