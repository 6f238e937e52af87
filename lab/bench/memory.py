r"""Training on parts of a graph with a memory of all its nodes, beside training on the whole graph.

Three networks of the same layers, weights and number of steps on each split: the whole graph in
every step; a quarter of its nodes, drawn by PyG's RandomNodeLoader, that attend to the whole graph
through a GlobalMemory; and the same quarters, each of which attends to itself only.  The epoch with
the best validation accuracy counts; all are evaluated on the whole graph.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from registry import measurement
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader
from torch_geometric.nn import SAGEConv

from phgcn.data import load_graph
from phgcn.data.splits import splits
from phgcn.nn import GlobalAttention, GlobalMemory
from phgcn_lab.markdown import table
from phgcn_lab.results import chosen

GRAPH, SPLITS, PARTS, EPOCHS = "pubmed", 5, 4, 50
CHANNELS, HEADS = 16, 2
WAYS = ("whole graph", "parts with memory", "parts alone")


class Net(torch.nn.Module):
    """A local layer and global attention side by side, then a local layer."""

    def __init__(self, in_channels: int, out_channels: int, num_nodes: int) -> None:
        super().__init__()
        self.local = SAGEConv(in_channels, HEADS * CHANNELS)
        self.attention = GlobalAttention(in_channels, CHANNELS, heads=HEADS)
        self.memory = GlobalMemory(num_nodes, CHANNELS, heads=HEADS)
        self.out = SAGEConv(2 * HEADS * CHANNELS, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, n_id: Tensor | None = None) -> Tensor:
        memory = None if n_id is None else self.memory
        x = F.dropout(x, 0.5, self.training)
        paths = [self.local(x, edge_index), self.attention(x, memory=memory, n_id=n_id)]
        return self.out(F.dropout(F.elu(torch.cat(paths, dim=1)), 0.5, self.training), edge_index)


def train(data: Data, way: str, seed: int) -> dict:
    torch.manual_seed(seed)
    model = Net(data.num_features, int(data.y.max()) + 1, data.num_nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    parts = RandomNodeLoader(data, num_parts=PARTS, shuffle=True)
    loader = [data] * PARTS if way == "whole graph" else parts
    best = {"val": 0.0, "test": 0.0, "epoch": 0}
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for part in loader:
            optimizer.zero_grad()
            out = model(part.x, part.edge_index, part.n_id if way == "parts with memory" else None)
            F.cross_entropy(out[part.train], part.y[part.train]).backward()
            optimizer.step()
        with torch.no_grad():
            correct = model.eval()(data.x, data.edge_index).argmax(dim=1) == data.y
        val, test = (float(correct[mask].float().mean()) for mask in (data.val, data.test))
        if val > best["val"]:
            best = {"val": val, "test": test, "epoch": epoch}
    return best


def rows_of(measured: dict) -> list[str]:
    rows = []
    for way in measured["test"]:
        found = [100 * row["test"] for row in chosen(measured["rows"], way=way)]
        rows.append([way, f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"])
    about = f"test accuracy, {measured['splits']} splits, {measured['steps']} steps each"
    return table(["trained on", about], rows)


@measurement(tables=rows_of)
def memory(options: argparse.Namespace) -> Iterator[dict]:
    """Training on parts of pubmed with a memory of all nodes, beside training on the whole
    graph."""
    graph = load_graph(GRAPH, sparse=True)
    x = graph.x.to_dense() if graph.x.layout != torch.strided else graph.x
    about = {"graph": GRAPH, "parts": PARTS, "epochs": EPOCHS, "splits": SPLITS}
    rows: list[dict] = []
    for number, split in enumerate(splits(graph.y, "paper", SPLITS)):
        masks = {"train": split.train, "val": split.val, "test": split.test}
        data = Data(x=x, edge_index=graph.edge_index, y=graph.y, n_id=torch.arange(len(x)), **masks)
        for way in WAYS:
            begin = time.perf_counter()
            row = train(data, way, number)
            rows.append(row | {"way": way, "split": number, "seconds": time.perf_counter() - begin})
        means = {way: statistics.mean(row["test"] for row in chosen(rows, way=way)) for way in WAYS}
        yield {**about, "steps": PARTS * EPOCHS, "test": means, "rows": rows}
