"""The paper in one file: the lattice filter, the layer and a training on cora, in plain torch and
PyG, without phgcn.

    python examples/minimal.py

reads cora.npz in the folder that PHGCN_DATA names, and takes ten seconds on two cores."""

import math
import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import add_self_loops, softmax

# 1. The filter: sum_j exp(-|p_i - p_j|) f_j for all i, in time linear in the number of points
#
# Values are splatted onto the vertices of a lattice around each point, blurred from vertex to
# vertex, and sliced, that is read off again at the points. The lattice is the permutohedral one:
# its cells are simplices, so that a point has D + 1 vertices where a grid has 2^D. A linear map
# sends it to the grid of whole numbers, its simplices to those that cut each unit cube along the
# orderings of the coordinates. To find the simplex of a point is then a floor and a sort.

SPACING = 1.4
"""The shortest distance of two vertices."""
WEIGHTS = (1.0, 0.3598, 0.0838, 0.1521)
"""What a vertex takes of itself and of those one, two and three hops away, along one direction: the
paper's width of 7. Fitted, with the spacing, to exp(-r) in four dimensions."""


def lattice_to_grid(dim: int) -> Tensor:
    """Builds the matrix (D, D) that sends the lattice to the grid of whole numbers."""
    # of the hyperplane that the lattice lies in
    basis = torch.zeros(dim + 1, dim, dtype=torch.float64)
    for i in range(dim):
        basis[: i + 1, i], basis[i + 1, i] = 1.0, -(i + 1.0)
        basis[:, i] /= math.sqrt((i + 1) * (i + 2))
    return -math.sqrt(dim * (dim + 1)) * (basis[:dim] - basis[dim]) / (dim + 1)


def locate(points: Tensor) -> tuple[Tensor, Tensor]:
    """Finds the simplex around each point (N, D): vertices (N, D+1, D), weights (N, D+1)."""
    dim = points.size(1)
    # No vertex at 0, where embeddings begin and a weight has no derivative.
    shift = torch.arange(1, dim + 1, dtype=torch.float64).mul((math.sqrt(5) - 1) / 2).frac() / 2
    w = points.double() @ lattice_to_grid(dim).T / SPACING + shift
    corner = w.detach().floor()
    fraction, order = (w - corner).sort(dim=1, descending=True)
    # the way through the cube: one coordinate after the other, the largest first
    steps = F.one_hot(order, dim).cumsum(dim=1)
    vertices = torch.cat([torch.zeros_like(steps[:, :1]), steps], dim=1) + corner.long()[:, None]
    ends = F.pad(fraction, (1, 0), value=1.0), F.pad(fraction, (0, 1), value=0.0)
    return vertices, ends[0] - ends[1]


def number(vertices: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Numbers the vertices that points touch: returns the index (N, D+1) of each vertex, the sorted
    keys (V,) of all, and the step of a key along each coordinate (D,)."""
    flat, hops = vertices.flatten(0, 1), len(WEIGHTS) - 1
    low, high = flat.amin(dim=0) - hops, flat.amax(dim=0) + hops  # room for a step over the edge
    radix = [1]
    for extent in (high - low + 1).tolist()[:-1]:
        radix.append(radix[-1] * extent)
    keys, index = ((flat - low) * torch.tensor(radix)).sum(dim=1).unique(return_inverse=True)
    return index.view(vertices.shape[:2]), keys, radix


def blur(table: Tensor, keys: Tensor, radix: list[int]) -> Tensor:
    """Blurs the rows (V, C) of all vertices along the D + 1 directions, one after the other."""
    for step in (*radix, sum(radix)):
        # a row of zeros stands for untouched vertices
        blurred, padded = WEIGHTS[0] * table, F.pad(table, (0, 0, 0, 1))
        for hop, weight in enumerate(WEIGHTS[1:], 1):
            for key in (keys - hop * step, keys + hop * step):
                found = torch.searchsorted(keys, key).clamp(max=len(keys) - 1)
                row = torch.where(keys[found] == key, found, len(keys))
                blurred = blurred + weight * padded.index_select(0, row)
        table = blurred
    return table


def lattice_filter(points: Tensor, values: Tensor) -> Tensor:
    """Sums values (N, C) with weights exp(-|p_i - p_j|) of points (N, D), up to a factor."""
    vertices, weights = locate(points)
    index, keys, radix = number(vertices)
    weights = weights.to(values.dtype)[:, :, None]
    table = values.new_zeros(len(keys), values.size(1))
    table = table.index_add(0, index.flatten(), (weights * values[:, None]).flatten(0, 1))  # splat
    table = blur(table, keys, radix)
    # slice
    return (weights * table.index_select(0, index.flatten()).view(*index.shape, -1)).sum(dim=1)


def global_attention(points: Tensor, values: Tensor) -> Tensor:
    """Averages values (N, H, C) by weights exp(-|p_i - p_j|) of points (N, H, D), head by head."""
    heads = []
    for p, f in zip(points.unbind(1), values.unbind(1), strict=True):
        # the column of ones sums the weights
        summed = lattice_filter(p, F.pad(f, (0, 1), value=1.0))
        heads.append(summed[:, :-1] / summed[:, -1:])
    return torch.stack(heads, dim=1)


# 2. The layer


class PHGCNConv(nn.Module):
    """Attends to neighbours and to all nodes by distances of learned embeddings, and joins both.

    f = W x;  p = Phi f;  neighbours j of i: softmax of -|p_i - p_j|;  all nodes j: softmax of -10
    |p_i - p_j|."""

    def __init__(
        self, in_channels: int, out_channels: int, heads: int, concat: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.concat = (-1, heads, out_channels), concat
        self.project = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.embed = nn.Parameter(torch.empty(heads, out_channels, 4))
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.xavier_uniform_(self.embed)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        values = self.project(x).view(self.shape)
        points = torch.einsum("nhc,hcd->nhd", values, self.embed)
        paths = [self.structural(points, values, edge_index), global_attention(10 * points, values)]
        if self.concat:
            return torch.cat(paths, dim=-1).flatten(1)
        return torch.stack(paths).mean(dim=(0, 2))

    @staticmethod
    def structural(points: Tensor, values: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        apart = points.index_select(0, source) - points.index_select(0, target)
        distance = apart.square().sum(dim=-1).clamp(min=1e-12).sqrt()
        share = softmax(-distance, target, num_nodes=len(points))
        messages = share[..., None] * values.index_select(0, source)
        return torch.zeros_like(values).index_add(0, target, messages)


class PHGCN(nn.Module):
    """Two layers, with ELU and dropout between them."""

    def __init__(self, in_channels: int, classes: int, hidden: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.first = PHGCNConv(in_channels, hidden, heads)
        self.second = PHGCNConv(2 * heads * hidden, classes, 1, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.elu(self.first(F.dropout(x, 0.6, self.training), edge_index))
        return self.second(F.dropout(hidden, 0.6, self.training), edge_index)


# 3. Training


def load_cora(split: int = 0) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Reads features with rows of sum 1, edges with self-loops, labels and the masks of a split."""
    with np.load(Path(os.environ["PHGCN_DATA"]) / "cora.npz", allow_pickle=False) as arrays:
        edges = torch.from_numpy(arrays["edges"]).T.contiguous()
        labels = torch.from_numpy(arrays["node_labels"])
        x = torch.zeros(*arrays["features_shape"].tolist())
        rows = np.repeat(np.arange(len(x)), np.diff(arrays["features_indptr"]))
        x[rows, arrays["features_indices"].astype(np.int64)] = 1.0
        parts = ("train", "val", "test")
        masks = {part: torch.from_numpy(arrays[f"{part}_masks"][split]) for part in parts}
    return x / x.sum(dim=1, keepdim=True).clamp(min=1), add_self_loops(edges)[0], labels, masks


def train(epochs: int = 100) -> float:
    """Trains on cora; returns the test accuracy at the epoch of the smallest validation loss."""
    torch.manual_seed(0)
    x, edge_index, labels, masks = load_cora()
    model = PHGCN(x.size(1), int(labels.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    least, accuracy = math.inf, 0.0
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[masks["train"]], labels[masks["train"]]).backward()
        optimizer.step()
        if epoch % 10 == 0:
            model.eval()
            with torch.no_grad():
                out = model(x, edge_index)
            loss = float(F.cross_entropy(out[masks["val"]], labels[masks["val"]]))
            right = float((out.argmax(dim=1) == labels)[masks["test"]].float().mean())
            print(f"epoch {epoch:3}: validation loss {loss:.3f}, test accuracy {right:.3f}")
            if loss < least:
                least, accuracy = loss, right
    return accuracy


if __name__ == "__main__":
    print(f"test accuracy {train():.3f}")
