r"""Small generated graphs for the tests of training and of the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from torch_geometric.data import Data

CLASSES = ("blue", "green", "red")


def small_graph(nodes: int = 60, features: int = 5, seed: int = 0, classes: int = 3) -> Data:
    """Groups of nodes whose features and edges tell the class, not too plainly."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(7))
    x = 1.5 * centres[y] + torch.randn(nodes, features, generator=random)
    pairs = torch.randint(nodes, (2, 6 * nodes), generator=random)
    keep = (y[pairs[0]] == y[pairs[1]]) | (torch.rand(pairs.size(1), generator=random) < 0.2)
    edge_index = pairs[:, keep & (pairs[0] != pairs[1])]
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)
    data = Data(x=x, y=y, edge_index=edge_index)
    data.num_nodes, data.num_classes, data.name = nodes, classes, "small"
    data.node_id, data.classes = [f"n{number}" for number in range(nodes)], list(CLASSES[:classes])
    return data


def write_tables(data: Data, folder: Path, labels: bool = True) -> Path:
    """A graph as a folder of CSV files."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "edges.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows([data.node_id[a], data.node_id[b]] for a, b in data.edge_index.T.tolist())
    with open(folder / "nodes.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", *(f"f{number}" for number in range(data.x.size(1)))])
        for node, label, row in zip(data.node_id, data.y.tolist(), data.x.tolist(), strict=True):
            writer.writerow([node, data.classes[label] if labels else "", *row])
    return folder
