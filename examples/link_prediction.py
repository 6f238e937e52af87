"""Links: which pairs of nodes have an edge? GlobalGNN embeds the nodes, and the product of two
embeddings scores a pair.
"""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

from phgcn.nn import GlobalGNN
from phgcn.train.metrics import roc_auc


def make_graph(nodes=300, groups=6):
    """People of some groups, who know each other within a group; their features tell the group,
    with noise.
    """
    group = torch.arange(nodes) % groups
    x = F.one_hot(group, groups) + 0.7 * torch.randn(nodes, groups)
    pairs = torch.randint(nodes, (2, 30 * nodes))
    pairs = pairs[:, (group[pairs[0]] == group[pairs[1]]) & (pairs[0] < pairs[1])].unique(dim=1)
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))


def score(z, pairs):
    """Scores pairs of nodes by the product of their embeddings."""
    return (z[pairs[0]] * z[pairs[1]]).sum(dim=1)


def area(scores, labels):
    """The area under the ROC curve: how often an edge has a higher score than a pair without
    one."""
    return float(roc_auc(torch.stack([-scores, scores], dim=1), labels.long()))


torch.manual_seed(0)
# Edges to predict are taken out of those that messages are passed along, in both directions.
split = RandomLinkSplit(
    num_val=0.0, num_test=0.2, is_undirected=True, add_negative_train_samples=True
)
train, _, test = split(make_graph())
model = GlobalGNN(train.num_features, 32, 16, norm="layer", dropout=0.2, global_layers=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(80):
    optimizer.zero_grad()
    scores = score(model(train.x, train.edge_index), train.edge_label_index)
    F.binary_cross_entropy_with_logits(scores, train.edge_label).backward()
    optimizer.step()
with torch.no_grad():
    scores = score(model.eval()(test.x, test.edge_index), test.edge_label_index)
    alone = score(test.x, test.edge_label_index)
print(
    f"links: area under the ROC curve {area(scores, test.edge_label):.3f}, of features alone "
    f"{area(alone, test.edge_label):.3f}"
)
