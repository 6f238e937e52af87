r"""How much of the variance of node features lies within classes, before and after attention, in the first layer of PH-GCN.

python benchmarks/within_class.py    # writes benchmarks/results/within_class.json, some minutes; needs the graphs

The paper says that global attention reduces the variance within a class.  Measured on trained networks and, for comparison, on
the same networks before training, on test nodes: the share of the total variance that lies within classes.
"""

from __future__ import annotations

import statistics

import common
import torch
from torch import Tensor

from phgcn.data import load_graph
from phgcn.functional import global_attention
from phgcn.nn import PHGCNConv
from phgcn.nn.graph_input import GraphInput
from phgcn.train import Plan, Task, resolve
from phgcn.train.prepare import prepare, seeded, start

GRAPHS = ("cornell", "texas", "wisconsin")
SPLITS = 10


def share_within(features: Tensor, y: Tensor) -> float:
    """Returns the variance within classes over the total variance, of features (N, H, C), all channels together."""
    flat = features.flatten(start_dim=1).double()
    means = torch.stack([flat[y == c].mean(dim=0) if (y == c).any() else flat.mean(dim=0) for c in range(int(y.max()) + 1)])
    return float((flat - means[y]).square().sum() / (flat - flat.mean(dim=0)).square().sum())


@torch.no_grad()
def shares(layer: PHGCNConv, task: Task) -> dict[str, float]:
    """Returns the shares of the layer's values, and of what its two paths make of them."""
    nodes = layer.project_nodes(task.x)
    values = nodes.values
    structural, _ = layer.attend_structural(nodes, GraphInput(task.x, task.edge_index), layer.decay_local(), False)
    everywhere = global_attention(nodes.positions, values, decay=layer.decay_global(), method=layer.method)
    paths = {"values": values, "structural": structural, "global": everywhere}
    return {name: share_within(features[task.test], task.y[task.test]) for name, features in paths.items()}


def measure(graph: str) -> list[dict]:
    """Trains PH-GCN on every split with its tuned settings, and measures before and after."""
    data = load_graph(graph, sparse=True)
    plan = Plan(graph, "phgcn", splits=SPLITS, settings=resolve("phgcn", graph).settings)
    rows = []
    for trial, task in zip(plan.trials(), prepare(plan, data), strict=True):
        with seeded(trial.seed, task):
            training = start(plan, task)
            layer = training.model.convs[0]
            before = shares(layer.eval(), task)
            while not training.done:
                training.epoch()
        training.model.load_state_dict(training.state.best_weights)
        rows.append({"graph": graph, "split": trial.split, "before": before, "after": shares(layer.eval(), task)})
    return rows


def main() -> None:
    rows = []
    for graph in GRAPHS:
        rows += measure(graph)
        of_graph = [row for row in rows if row["graph"] == graph]
        for when in ("before", "after"):
            print(graph, when, {name: round(statistics.mean(r[when][name] for r in of_graph), 3) for name in of_graph[0][when]})
    common.write_json(common.RESULTS / "within_class.json", {"provenance": common.provenance(), "rows": rows})


if __name__ == "__main__":
    main()
