import pytest
import torch
from torch_geometric.utils import contains_self_loops, is_undirected, k_hop_subgraph

from phgcn_lab.motif_graphs import BLUE, GREEN, RED, VARIANTS, motif_graphs


def neighbour_colours(data, node):
    colour = data.x.argmax(1)
    return sorted(colour[data.edge_index[0, data.edge_index[1] == node]].tolist())


def test_labels_follow_the_more_frequent_motif():
    data = motif_graphs(20, seed=1)
    for graph in range(20):
        red = ((data.batch == graph) & (data.x[:, RED] == 1)).nonzero().flatten().tolist()
        blue = [node for node in red if neighbour_colours(data, node) == [BLUE, BLUE]]
        green = [node for node in red if neighbour_colours(data, node) == [GREEN, GREEN]]
        assert len(blue) + len(green) == len(red)
        assert len(blue) != len(green) and blue and green
        assert data.y[blue].tolist() == [int(len(blue) > len(green))] * len(blue)
        assert data.y[green].tolist() == [int(len(green) > len(blue))] * len(green)
    assert bool((data.y[data.x[:, RED] == 0] == -1).all())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_nodes_asked_for_are_one_of_each_motif_and_label(variant):
    data = motif_graphs(50, elements=7, variant=variant, seed=2)
    asked = data.asked.reshape(50, 2)
    assert bool((data.x[asked, RED] == 1).all())
    assert bool((data.batch[asked] == torch.arange(50)[:, None]).all())
    assert data.y[asked].sum(dim=1).tolist() == [1] * 50


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_hops_from_a_red_node_do_not_leave_its_motif(variant):
    """So that a local network of three layers sees the same wherever the motif is."""
    data = motif_graphs(10, variant=variant, seed=3)
    seen = set()
    for node in data.asked.tolist():
        around, edges, _, _ = k_hop_subgraph(node, 3, data.edge_index)
        seen.add((tuple(sorted(data.x[around].argmax(1).tolist())), edges.size(1)))
    assert len(seen) == 2


def test_graphs_are_chains_without_links_between_them():
    data = motif_graphs(5, elements=10, seed=4)
    assert is_undirected(data.edge_index) and not contains_self_loops(data.edge_index)
    assert bool((data.batch[data.edge_index[0]] == data.batch[data.edge_index[1]]).all())
    # trees: chains whose elements are paths
    assert data.edge_index.size(1) == 2 * (len(data.x) - 5)
    assert data.edge_index.min() == 0 and data.edge_index.max() == len(data.x) - 1


def test_the_harder_variant_differs_in_wiring_only():
    data = motif_graphs(10, variant="wiring", seed=5)
    degree = torch.bincount(data.edge_index[0])
    blue = data.x[:, BLUE] == 1
    assert set(degree[blue].tolist()) == {2, 3}
    assert not bool((data.x[:, GREEN] == 1).any())


def test_the_seed_decides():
    one = motif_graphs(4, seed=6)
    same = motif_graphs(4, seed=6)
    other = motif_graphs(4, seed=(6, 1))
    assert torch.equal(one.x, same.x) and torch.equal(one.asked, same.asked)
    assert one.x.shape != other.x.shape or not torch.equal(one.x, other.x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "size"}, "variant is 'size'"),
        ({"elements": 2}, "elements is 2"),
        ({"count": 0}, "count is 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        motif_graphs(**{"count": 1, **arguments})


def test_the_lead_is_that_of_the_first_motif():
    data = motif_graphs(30, seed=8)
    for graph in range(30):
        blue, green = (
            int(((data.batch == graph) & (data.x[:, colour] == 1)).sum())
            for colour in (BLUE, GREEN)
        )
        assert 2 * int(data.lead[graph]) == blue - green
