"""Hop positions: distances along edges, components, refusals."""

import pytest
import torch
from torch_geometric.data import Data

from phgcn.data.hops import AddHopPositions, hop_distances


def path(count, first=0):
    return torch.stack([torch.arange(count - 1), torch.arange(1, count)]) + first


def test_hops_to_landmarks_on_a_path():
    hops = hop_distances(path(5), 5, 3)
    assert hops[:, 0].tolist() == [0, 1, 2, 3, 4] and hops[:, 1].tolist() == [4, 3, 2, 1, 0]
    assert hops[:, 2].tolist() == [2, 1, 0, 1, 2]  # the farthest from both ends


def test_distances_of_positions_follow_the_hops_of_a_path():
    data = AddHopPositions(2, 8, "positions")(Data(edge_index=path(40), num_nodes=40))
    distances = torch.cdist(data.positions, data.positions)[0]
    assert bool((distances[1:] > distances[:-1]).all())
    assert data.positions.dtype == torch.float32 and data.positions.shape == (40, 2)


def test_positions_do_not_follow_the_order_or_direction_of_edges():
    edges, order = path(30), torch.randperm(29, generator=torch.Generator().manual_seed(0))
    first = AddHopPositions(attr_name="p")(Data(edge_index=edges, num_nodes=30)).p
    other = AddHopPositions(attr_name="p")(Data(edge_index=edges.flip(0)[:, order], num_nodes=30)).p
    assert torch.equal(first, other)


def test_components_are_apart_and_lone_nodes_too():
    edges = torch.cat([path(6), path(6, first=6)], dim=1)
    data = AddHopPositions(4, 6, "p")(Data(edge_index=edges, num_nodes=13))
    distances = torch.cdist(data.p, data.p)
    assert float(distances[:6, 6:12].min()) > 1 and float(distances[12, :12].min()) > 1


def test_positions_are_appended_to_features_and_padded():
    data = AddHopPositions(4)(Data(x=torch.ones(2, 3), edge_index=path(2)))
    assert data.x.shape == (2, 7) and bool((data.x[:, 5:] == 0).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "channels is 0; allowed: a positive integer"),
        ((4, 3), "landmarks is 3; allowed: at least channels, 4"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        AddHopPositions(*arguments)
