r"""Training on parts of a graph with a memory of all its nodes, beside training on the whole graph.

python benchmarks/memory.py    # writes benchmarks/results/memory.json, about a quarter of an hour; needs pubmed

Three networks of the same layers, weights and number of steps on each split: the whole graph in every step; a quarter of its
nodes, drawn by PyG's RandomNodeLoader, that attend to the whole graph through a GlobalMemory; and the same quarters, each of
which attends to itself alone.  The epoch with the best validation accuracy counts; all are evaluated on the whole graph.
"""

from __future__ import annotations

import statistics

import common
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader
from torch_geometric.nn import SAGEConv

from phgcn.data import load_graph
from phgcn.data.splits import splits
from phgcn.nn import GlobalAttention, GlobalMemory

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
    """Trains a network; returns the accuracies of the best epoch."""
    torch.manual_seed(seed)
    model = Net(data.num_features, int(data.y.max()) + 1, data.num_nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    loader = [data] * PARTS if way == "whole graph" else RandomNodeLoader(data, num_parts=PARTS, shuffle=True)
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


def main() -> None:
    about = common.provenance()  # of the code that runs, whatever is committed meanwhile
    graph = load_graph(GRAPH, sparse=True)
    x = graph.x.to_dense() if graph.x.layout != torch.strided else graph.x
    rows = []
    for number, split in enumerate(splits(graph.y, "paper", SPLITS)):
        masks = {"train": split.train, "val": split.val, "test": split.test}
        data = Data(x=x, edge_index=graph.edge_index, y=graph.y, n_id=torch.arange(len(x)), **masks)
        for way in WAYS:
            taken = common.seconds(lambda data=data, way=way, number=number: rows.append(train(data, way, number)))
            rows[-1] |= {"way": way, "split": number, "seconds": taken}
            print(rows[-1], flush=True)
    means = {way: statistics.mean(row["test"] for row in rows if row["way"] == way) for way in WAYS}
    settings = {"graph": GRAPH, "parts": PARTS, "epochs": EPOCHS, "steps": PARTS * EPOCHS, "splits": SPLITS}
    found = {"provenance": about, **settings, "test": means, "rows": rows}
    common.write_json(common.RESULTS / "memory.json", found)


if __name__ == "__main__":
    main()
