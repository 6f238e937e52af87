"""A PyG script for node classification, and what changes when GATConv becomes PHGCNConv."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv

from phgcn.nn import PHGCNConv


class Net(torch.nn.Module):
    def __init__(self, conv, in_channels, out_channels, paths=1):
        super().__init__()
        self.conv1 = conv(in_channels, 8, heads=4)
        # PHGCNConv has two paths: twice the width
        self.conv2 = conv(paths * 8 * 4, out_channels, concat=False)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index))
        return self.conv2(F.dropout(x, 0.5, self.training), edge_index)


def make_graph(nodes=600, classes=3):
    """A graph in which like does not link to like: edges say nothing of the class, and features not
    much.
    """
    y = torch.arange(nodes) % classes
    x = 0.8 * F.one_hot(y, classes) @ torch.randn(classes, 16) + torch.randn(nodes, 16)
    return Data(
        x=x, y=y, edge_index=torch.randint(0, nodes, (2, 4 * nodes)), train=torch.rand(nodes) < 0.5
    )


def accuracy(model, data):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(100):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index)[data.train], data.y[data.train]).backward()
        optimizer.step()
    predicted = model.eval()(data.x, data.edge_index).argmax(dim=1)
    return float((predicted == data.y)[~data.train].float().mean())


torch.manual_seed(0)
data = make_graph()
gat = Net(GATConv, 16, 3)
phgcn = Net(lambda *args, **kwargs: PHGCNConv(*args, act=None, **kwargs), 16, 3, paths=2)
print(f"GATConv    accuracy {accuracy(gat, data):.3f}")
print(f"PHGCNConv  accuracy {accuracy(phgcn, data):.3f}")
