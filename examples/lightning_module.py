"""Lightning: a LightningModule whose batches are PyG's, trained by its Trainer. Needs the package
lightning.
"""

import lightning
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from phgcn.nn import PHGCN, GlobalGNN


class NodeClassifier(lightning.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.losses = []

    def training_step(self, batch, _):
        loss = F.cross_entropy(self.model(batch), batch.y)
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_graph(nodes=20):
    """Is a node above the mean of its graph?"""
    x = torch.randn(1, 1) * 3 + torch.randn(nodes, 1)
    return Data(x=x, edge_index=torch.randint(nodes, (2, nodes)), y=(x > x.mean()).long()[:, 0])


torch.manual_seed(0)
loader = DataLoader([make_graph() for _ in range(80)], batch_size=8)
models = {
    "PHGCN": PHGCN(1, 8, 2, heads=2, dropout=0.0, decay_global=1.0),
    "GlobalGNN": GlobalGNN(1, 16, 2, global_layers=1),
}
for name, model in models.items():
    module = NodeClassifier(model)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    assert module.losses[-1] < module.losses[0]
    print(f"{name}: loss {module.losses[0]:.2f} to {module.losses[-1]:.2f}")
