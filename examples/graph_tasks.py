"""Whole graphs: a class, and a number, for each graph of a DataLoader, by pooling what GlobalGNN
makes of its nodes.
"""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool

from phgcn.nn import GlobalGNN


class GraphModel(torch.nn.Module):
    """Embeds the nodes of each graph, takes their mean, and maps that to ``out_channels``
    numbers."""

    def __init__(self, in_channels, out_channels, hidden_channels=32):
        super().__init__()
        # Attention stays within a graph, whatever else is in the batch; `norm="layer"` too, "batch"
        # would not.
        self.nodes = GlobalGNN(
            in_channels,
            hidden_channels,
            hidden_channels,
            local="gin",
            norm="layer",
            dropout=0.0,
            global_layers=1,
        )
        self.out = torch.nn.Linear(hidden_channels, out_channels)

    def forward(self, x, edge_index, batch):
        return self.out(global_mean_pool(F.relu(self.nodes(x, edge_index, batch)), batch))


def make_graphs(count):
    """Rings and stars of random sizes with a number at each node: is it a ring, and how far are its
    numbers apart?
    """
    graphs = []
    for _ in range(count):
        nodes, ring = int(torch.randint(6, 20, ())), bool(torch.rand(()) < 0.5)
        here = torch.arange(nodes)
        ends = (
            torch.stack([here, (here + 1) % nodes])
            if ring
            else torch.stack([here[1:], torch.zeros_like(here[1:])])
        )
        x = torch.rand(()) * torch.randn(nodes, 1)
        graphs.append(
            Data(
                x=x,
                edge_index=torch.cat([ends, ends.flip(0)], dim=1),
                ring=int(ring),
                spread=float(x.std()),
            )
        )
    return graphs


def train(model, graphs, loss_of, epochs=10):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch in DataLoader(graphs, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss_of(model(batch.x, batch.edge_index, batch.batch), batch).backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def outputs(model, graphs):
    (batch,) = DataLoader(graphs, batch_size=len(graphs))
    return model(batch.x, batch.edge_index, batch.batch), batch


torch.manual_seed(0)
known, new = make_graphs(160), make_graphs(100)

classifier = train(GraphModel(1, 2), known, lambda out, batch: F.cross_entropy(out, batch.ring))
out, batch = outputs(classifier, new)
print(f"ring or star: accuracy {float((out.argmax(dim=1) == batch.ring).float().mean()):.3f}")

regressor = train(
    GraphModel(1, 1), known, lambda out, batch: F.mse_loss(out[:, 0], batch.spread), epochs=20
)
out, batch = outputs(regressor, new)
error = float((out[:, 0] - batch.spread).abs().mean())
print(
    f"spread of numbers: error {error:.3f}, that of the mean "
    f"{float((batch.spread - batch.spread.mean()).abs().mean()):.3f}"
)
