"""GPSConv: PyG's layer with GlobalAttention or GlobalBlock inside, which need no padding and take
time linear in the nodes.
"""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GPSConv, SAGEConv, global_mean_pool

from phgcn.nn import GlobalAttention, GlobalBlock


class GlobalGPSConv(GPSConv):
    """Local layer, global attention, and what GPSConv does with both: sums, norms and an MLP."""

    def __init__(self, channels, conv, attention):
        super().__init__(channels, conv)
        self.attn = attention

    def forward(self, x, edge_index, batch=None):
        everywhere = self.attn(x, batch=batch)
        if isinstance(self.attn, GlobalAttention):
            everywhere = x + everywhere  # a GlobalBlock adds its input by itself
        out = self.norm1(x + self.conv(x, edge_index)) + self.norm2(everywhere)
        return self.norm3(out + self.mlp(out))


class Net(torch.nn.Module):
    def __init__(self, attention, channels=16):
        super().__init__()
        self.embed, self.out = torch.nn.Linear(1, channels), torch.nn.Linear(channels, 2)
        self.conv = GlobalGPSConv(channels, SAGEConv(channels, channels), attention)

    def forward(self, data):
        x = self.conv(self.embed(data.x), data.edge_index, data.batch)
        return self.out(global_mean_pool(x, data.batch))


def make_graph(nodes=20):
    """Does a graph have nodes of both signs, or of one?"""
    both = torch.randint(2, (1,))
    sign = torch.where(
        both.bool(), torch.randint(2, (nodes, 1)) * 2 - 1, torch.randint(2, (1,)) * 2 - 1
    )
    return Data(x=sign.float(), edge_index=torch.randint(nodes, (2, nodes)), y=both)


torch.manual_seed(0)
graphs = [make_graph() for _ in range(200)]
layers = {
    "GlobalAttention": GlobalAttention(16, 4, heads=4, decay=1.0),
    "GlobalBlock": GlobalBlock(16, heads=4),
}
for name, attention in layers.items():
    model = Net(attention)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for batch in DataLoader(graphs, batch_size=20):
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
    (batch,) = DataLoader([make_graph() for _ in range(100)], batch_size=100)
    correct = float((model.eval()(batch).argmax(dim=1) == batch.y).float().mean())
    assert correct > 0.9
    print(f"{name}: accuracy {correct:.2f} on new graphs")
