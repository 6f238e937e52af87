"""GlobalAttention on clouds of points: which of two clumps is a point in, the larger or the
smaller?
"""

import torch
import torch.nn.functional as F

from phgcn.nn import GlobalAttention


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = GlobalAttention(3, 8, heads=2, decay=1.0)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(3 + 16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
        )

    def forward(self, x, batch):
        # attention never crosses clouds
        return self.mlp(torch.cat([x, self.attention(x, batch=batch)], dim=1))


def make_clouds(count=64):
    """Clouds of two clumps, of 24 and of 8 points, at random places; all points of all clouds in
    one tensor, shuffled.
    """
    y = (torch.arange(count * 32) % 32 < 24).long()
    batch = torch.arange(count * 32) // 32
    centres = torch.randn(count, 2, 3)
    x = centres[batch, y] + 0.1 * torch.randn(len(y), 3)
    order = torch.randperm(len(y))
    return x[order], y[order], batch[order]


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(200):
    x, y, batch = make_clouds()
    optimizer.zero_grad()
    F.cross_entropy(model(x, batch), y).backward()
    optimizer.step()

x, y, batch = make_clouds()
correct = model(x, batch).argmax(dim=1) == y
print(
    f"accuracy {float(correct.float().mean()):.3f}, where always saying 'the larger' gets "
    f"{float(y.float().mean()):.3f}"
)
