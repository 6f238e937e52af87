"""Graphs in a batch: called on the batch itself, layers and models keep its graphs apart."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from phgcn.nn import PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv

torch.manual_seed(0)
graphs = [Data(x=torch.randn(n, 16), edge_index=torch.randint(n, (2, 4 * n))) for n in (10, 20, 30)]
layers = {
    "PHGCNConv": PHGCNConv(16, 8, heads=2),
    "EDAConv": EDAConv(16, 8, heads=2),
    "GlobalAttention": GlobalAttention(16, 8, heads=2),
    "GlobalBlock": GlobalBlock(16),
    "GlobalGNN": GlobalGNN(16, 32, 3, global_layers=1).eval(),
    "PHGCN": PHGCN(16, 8, 3).eval(),
}
(batch,) = DataLoader(graphs, batch_size=3)
for name, layer in layers.items():
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.2)  # gates start at 0, where attention would not show
    with torch.no_grad():
        alone = torch.cat([layer(graph) for graph in graphs])
        together = layer(batch)  # takes x, edge_index and batch from it
        nodes = (
            layer(batch.x)
            if name in ("GlobalAttention", "GlobalBlock")
            else layer(batch.x, batch.edge_index)
        )
    difference, mixed = ((out - alone).norm() / alone.norm() for out in (together, nodes))
    # which has no global path that could mix graphs
    assert difference < 1e-5 and (mixed > 1e-3 or name == "EDAConv")
    print(f"{name}: off by {difference:.0e}, by {mixed:.1g} if batch is forgotten")
