"""Explanations: which edges does a prediction rest on? PyG's explainers find the one neighbour that
decides.
"""

import torch
import torch.nn.functional as F
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer

from phgcn.nn import EDAConv, GlobalGNN, PHGCNConv


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.conv = layer(2, 8, heads=2)
        self.out = torch.nn.LazyLinear(2)

    def forward(self, x, edge_index):
        return self.out(self.conv(x, edge_index))


def make_graph(nodes=40):
    """Each node has three neighbours; its class is the sign of the one that is marked."""
    sign = torch.randint(2, (nodes, 1)) * 2.0 - 1
    marked = torch.rand(nodes, 1) < 0.4
    x = torch.cat([torch.where(marked, sign, 0), marked], dim=1).float()
    yes, no = marked[:, 0].nonzero()[:, 0], (~marked[:, 0]).nonzero()[:, 0]
    source = torch.stack(
        [yes[torch.randint(len(yes), (nodes,))], *no[torch.randint(len(no), (2, nodes))]]
    )
    edge_index = torch.stack([source.t().flatten(), torch.arange(nodes).repeat_interleave(3)])
    return x, edge_index, (sign[source[0], 0] > 0).long(), no


def explain(model, algorithm, index):
    """The mask of the three edges to a node, that of the marked neighbour first."""
    explainer = Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    return explainer(x, edge_index, index=index).edge_mask[3 * index : 3 * index + 3]


torch.manual_seed(0)
x, edge_index, y, unmarked = make_graph()
models = {
    "PHGCNConv": Net(PHGCNConv),
    "EDAConv": Net(EDAConv),
    "GlobalGNN": GlobalGNN(
        2, 16, 2, local="eda", num_layers=1, global_layers=1, dropout=0.0, norm=None
    ),
}
for name, model in models.items():
    model(x, edge_index)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index), y).backward()
        optimizer.step()
    model.eval()
    # what it says without edges, where there is nothing to explain
    by_default = model(x, edge_index[:, :0]).argmax(dim=1)
    nodes = [int(i) for i in unmarked if by_default[i] != y[i]][:5]
    found = sum(
        int(explain(model, GNNExplainer(epochs=50, lr=0.1), i).argmax()) == 0 for i in nodes
    )
    weight = sum(float(explain(model, AttentionExplainer(), i)[0]) for i in nodes) / len(nodes)
    assert found >= len(nodes) - 1 and 0 < weight < 1
    print(
        f"{name}: GNNExplainer finds the deciding neighbour of {found} of {len(nodes)} nodes; its "
        f"attention is {weight:.2f}"
    )
