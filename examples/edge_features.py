"""Edge features and weights: a node must listen to some of its neighbours, and only the edges tell
to which.
"""

import torch
from torch_geometric.data import Data

from phgcn.nn import PHGCN, EDAConv, GlobalGNN, PHGCNConv


def make_graph(nodes=200):
    """The target of a node is the mean of its neighbours' values along edges of kind 0; those of
    kind 1 lead astray.
    """
    x, edge_index = torch.randn(nodes, 1), torch.randint(nodes, (2, 8 * nodes))
    kind = torch.randint(2, (8 * nodes,))
    sums = torch.zeros(2, nodes, 1)
    heard = edge_index[:, kind == 0]
    sums[0].index_add_(0, heard[1], x[heard[0]])
    sums[1].index_add_(0, heard[1], torch.ones(heard.size(1), 1))
    y = sums[0] / sums[1].clamp(min=1)
    return Data(
        x=x, edge_index=edge_index, edge_attr=torch.nn.functional.one_hot(kind, 2).float(), y=y
    ), (kind == 0).float()


def train(layer, data, **edges):
    """Returns the part of the target's variance that is left."""
    model = torch.nn.ModuleList([layer, torch.nn.LazyLinear(1)])
    model[1](layer(data.x, data.edge_index, **edges))  # makes the weights
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        loss = (model[1](layer(data.x, data.edge_index, **edges)) - data.y).square().mean()
        loss.backward()
        optimizer.step()
    return float(loss.detach() / data.y.var())


torch.manual_seed(0)
data, weight = make_graph()
layers = {
    "PHGCNConv": lambda edge_dim: PHGCNConv(1, 8, heads=2, edge_dim=edge_dim),
    "EDAConv": lambda edge_dim: EDAConv(1, 8, heads=2, edge_dim=edge_dim),
    "GlobalGNN": lambda edge_dim: GlobalGNN(
        1, 16, 8, local="eda", edge_dim=edge_dim, num_layers=1, dropout=0.0, norm=None
    ),
    "PHGCN": lambda edge_dim: PHGCN(1, 8, 16, heads=2, dropout=0.0, edge_dim=edge_dim),
}
for name, make in layers.items():
    plain = train(make(None), data)
    features = train(make(2), data, edge_attr=data.edge_attr)
    weights = train(make(None), data, edge_weight=weight)
    print(
        f"{name}: variance left {plain:.2f}, with edge_attr {features:.2f}, with edge_weight "
        f"{weights:.2f}"
    )
    assert features < 0.6 * plain and weights < 0.6 * plain
