"""GlobalBlock in two PyG networks: after each layer of a GraphSAGE loop, and in place of the
attention of GPSConv.
"""

import torch
import torch.nn.functional as F
from torch_geometric.nn import GPSConv, SAGEConv

from phgcn.nn import GlobalBlock


class SAGE(torch.nn.Module):
    def __init__(self, channels=32, use_global=False):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(1, channels), SAGEConv(channels, channels)])
        self.blocks = torch.nn.ModuleList(
            [GlobalBlock(channels) for _ in self.convs] if use_global else []
        )
        self.out = torch.nn.Linear(channels, 2)

    def forward(self, x, edge_index, batch):
        for i, conv in enumerate(self.convs):
            x = F.relu(conv(x, edge_index))
            if self.blocks:
                # the one line to add: as many channels out as in, and x itself at the start
                x = self.blocks[i](x, batch)
        return self.out(x)


class GlobalGPSConv(GPSConv):
    """PyG's layer with a GlobalBlock as its attention, which needs no padding and takes time linear
    in the nodes.
    """

    def __init__(self, channels, conv, heads=4):
        super().__init__(channels, conv, heads=heads)
        self.attn = GlobalBlock(channels, heads)

    def forward(self, x, edge_index, batch=None):
        out = self.norm1(x + self.conv(x, edge_index)) + self.norm2(self.attn(x, batch))
        return self.norm3(out + self.mlp(out))


class GPS(torch.nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.embed, self.out = torch.nn.Linear(1, channels), torch.nn.Linear(channels, 2)
        self.convs = torch.nn.ModuleList(
            [GlobalGPSConv(channels, SAGEConv(channels, channels)) for _ in range(2)]
        )

    def forward(self, x, edge_index, batch):
        x = self.embed(x)
        for conv in self.convs:
            x = conv(x, edge_index, batch)
        return self.out(x)


def make_graphs(count=20, nodes=30):
    """Graphs with random edges; is a node above the mean of its graph? Two layers of neighbours see
    a few nodes of it.
    """
    batch = torch.arange(count * nodes) // nodes
    x = 3 * torch.randn(count, 1)[batch] + torch.randn(count * nodes, 1)
    mean = x.view(count, nodes).mean(dim=1)
    source = torch.arange(count * nodes)
    target = batch * nodes + torch.randint(nodes, (count * nodes,))
    return x, torch.stack([source, target]), batch, (x[:, 0] > mean[batch]).long()


def accuracy(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    for _ in range(150):
        x, edge_index, batch, y = make_graphs()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index, batch), y).backward()
        optimizer.step()
    x, edge_index, batch, y = make_graphs(count=100)
    return float((model.eval()(x, edge_index, batch).argmax(dim=1) == y).float().mean())


torch.manual_seed(0)
print(f"GraphSAGE                accuracy {accuracy(SAGE()):.3f}")
print(f"GraphSAGE + GlobalBlock  accuracy {accuracy(SAGE(use_global=True)):.3f}")
print(f"GPSConv + GlobalBlock    accuracy {accuracy(GPS()):.3f}")
