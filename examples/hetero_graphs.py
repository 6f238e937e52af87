"""Several kinds of nodes: HeteroConv with a layer for each kind of edge, and to_hetero of a whole
network.
"""

import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, to_hetero

from phgcn.nn import EDAConv, GlobalAttention, GlobalBlock, PHGCNConv

torch.manual_seed(0)
data = HeteroData()
data["author"].x, data["paper"].x = torch.randn(30, 8), torch.randn(50, 16)
writes = torch.stack([torch.randint(30, (90,)), torch.randint(50, (90,))])
data["author", "writes", "paper"].edge_index = writes
data["paper", "written_by", "author"].edge_index = writes.flip(0)
data["paper", "cites", "paper"].edge_index = torch.randint(50, (2, 100))

for name, layer in {"PHGCNConv": PHGCNConv, "EDAConv": EDAConv}.items():
    # Between nodes of different kinds, neighbours are attended to; the global path of PHGCNConv is
    # among the targets.
    conv = HeteroConv(
        {
            ("author", "writes", "paper"): layer((8, 16), 8, heads=2, add_self_loops=False),
            ("paper", "written_by", "author"): layer((16, 8), 8, heads=2, add_self_loops=False),
            ("paper", "cites", "paper"): layer(16, 8, heads=2),
        }
    )
    out = conv(data.x_dict, data.edge_index_dict)
    print(
        f"{name}: HeteroConv gives papers {tuple(out['paper'].shape)} and authors "
        f"{tuple(out['author'].shape)}"
    )


class Net(torch.nn.Module):
    """For nodes of one kind; to_hetero makes a copy of each layer for each kind of node or edge."""

    def __init__(self, layer):
        super().__init__()
        self.conv = layer((-1, -1), 16, add_self_loops=False)
        self.attention = GlobalAttention(-1, 8, heads=2)
        self.block = GlobalBlock(16)

    def forward(self, x, edge_index):
        return self.block(self.attention(self.conv(x, edge_index)))


for layer in (PHGCNConv, EDAConv):
    out = to_hetero(Net(layer), data.metadata())(data.x_dict, data.edge_index_dict)
    assert {kind: tuple(x.shape) for kind, x in out.items()} == {
        "author": (30, 16),
        "paper": (50, 16),
    }
print("GlobalBlock: among the nodes of each kind, by to_hetero")

attention = GlobalAttention((8, 16), 8, heads=2)
out = attention((data["author"].x, data["paper"].x))  # every paper attends to every author
print(
    f"GlobalAttention: from authors to papers {tuple(out.shape)}, and among the nodes of each "
    f"kind, by to_hetero"
)
