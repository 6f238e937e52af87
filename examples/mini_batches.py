"""Parts of one large graph: batches of a PyG loader attend to the whole graph through a memory of
all its nodes.
"""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader

from phgcn.nn import GlobalAttention, GlobalBlock, GlobalGNN, GlobalMemory

torch.manual_seed(0)
nodes = 400
data = Data(
    x=torch.randn(nodes, 16),
    edge_index=torch.randint(nodes, (2, 4 * nodes)),
    y=torch.randint(3, (nodes,)),
)
# a part then knows the numbers of its nodes; NeighborLoader does that by itself
data.n_id = torch.arange(nodes)
loader = RandomNodeLoader(data, num_parts=8, shuffle=True)

for name, layer in {
    "GlobalAttention": GlobalAttention(16, 4, heads=4),
    "GlobalBlock": GlobalBlock(16, heads=4),
}.items():
    for p in layer.parameters():
        torch.nn.init.normal_(p)  # the gate starts at 0, where attention would not show
    memory = GlobalMemory(nodes, 4, heads=4)
    whole, out = layer(data).detach(), torch.zeros(nodes, 16)
    for _ in range(2):  # once to fill the memory, then to read it
        for part in loader:
            out[part.n_id] = layer(part, memory=memory).detach()
    alone = layer(next(iter(loader)))  # without the memory, a part attends to itself
    assert torch.allclose(out, whole, atol=1e-4) and not torch.allclose(
        alone, whole[: len(alone)], atol=1e-2
    )
    print(f"{name}: in parts as on the whole graph, up to {float((out - whole).abs().max()):.0e}")

model = GlobalGNN(16, 32, 3, global_layers=2)
model.remember(nodes)  # a memory for each of its blocks
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(12):
    for part in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(part), part.y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
first, last = sum(losses[:8]) / 8, sum(losses[-8:]) / 8
assert last < first
print(f"GlobalGNN: loss {first:.2f} to {last:.2f} in {len(losses)} steps on parts")
