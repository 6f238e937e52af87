"""Positions of nodes by their distances along edges."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import to_scipy_sparse_matrix

from ..checks import check_positive


@functional_transform("add_hop_positions")
class AddHopPositions(BaseTransform):  # type: ignore[misc]
    r"""Adds positions whose distances follow the number of edges between nodes.

    Position :math:`i` has the numbers of hops from node :math:`i` to some landmarks
    :math:`l_1, \ldots, l_L`, projected to their first principal components and divided by
    :math:`\sqrt{L}`. Each landmark is the node that is farthest from those before it, so that
    every component of the graph has landmarks. A node that cannot reach a landmark is one hop
    farther from it than all others.

    Use them as coordinates for attention where what counts is the distance along edges, as on
    streets. No label is looked at. Edges count in both directions.

    Args:
        channels (int, optional): Number of principal components. (default: :obj:`4`)
        landmarks (int, optional): Number of landmarks. (default: :obj:`32`)
        attr_name (str, optional): The attribute that gets the positions :math:`(N, C)`. If
            :obj:`None`, they are appended to ``x``. (default: :obj:`None`)
    """

    def __init__(
        self, channels: int = 4, landmarks: int = 32, attr_name: str | None = None
    ) -> None:
        check_positive(channels=channels, landmarks=landmarks)
        if landmarks < channels:
            raise ValueError(f"landmarks is {landmarks}; allowed: at least channels, {channels}")
        self.channels = channels
        self.landmarks = landmarks
        self.attr_name = attr_name

    def forward(self, data: Data) -> Data:
        """Adds the positions."""
        hops = hop_distances(data.edge_index, int(data.num_nodes), self.landmarks)
        centred = hops - hops.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
        found = centred @ axes[: self.channels].T / np.sqrt(hops.shape[1])
        missing = self.channels - found.shape[1]  # in a graph of fewer nodes than channels
        positions = torch.from_numpy(np.pad(found, ((0, 0), (0, missing)))).float()
        if self.attr_name is not None:
            data[self.attr_name] = positions
        else:
            x = data.x if data.x.layout == torch.strided else data.x.to_dense()
            data.x = torch.cat([x, positions.to(x)], dim=1)
        return data


def hop_distances(edge_index: Tensor, nodes: int, landmarks: int) -> NDArray[np.float64]:
    """Counts the hops from all nodes to landmarks, (N, L), each the farthest from those before."""
    from scipy.sparse.csgraph import dijkstra

    graph = to_scipy_sparse_matrix(edge_index.cpu(), num_nodes=nodes).tocsr()
    columns: list[NDArray[np.float64]] = []
    nearest = np.full(nodes, np.inf)
    for _ in range(min(landmarks, nodes)):
        start = int(nearest.argmax())
        hops = dijkstra(graph, directed=False, indices=start, unweighted=True)
        nearest = np.minimum(nearest, hops)
        reached = np.isfinite(hops)
        columns.append(np.where(reached, hops, hops[reached].max() + 1))
    return np.stack(columns, axis=1)
