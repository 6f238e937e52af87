"""How many points each graph of a batch has: read from the device when an index is new."""

import pytest
import torch

from phgcn.runtime.graphs import FEW_GRAPHS, find_graphs


def test_sizes_are_those_of_each_graph_in_any_order():
    found = find_graphs(5, torch.tensor([2, 0, 2, 2, 0]), None, None)
    assert (found.keys, found.queries) == ([2, 0, 3], [2, 0, 3])
    assert found.of_keys is found.of_queries


def test_keys_and_queries_have_the_same_graphs():
    found = find_graphs(3, torch.tensor([0, 0, 1]), 2, torch.tensor([3, 0], dtype=torch.int32))
    assert (found.keys, found.queries) == ([2, 1, 0, 0], [1, 0, 0, 1])
    found = find_graphs(0, torch.tensor([], dtype=torch.long), 2, torch.tensor([1, 0]))
    assert (found.keys, found.queries) == ([0, 0], [1, 1])


@pytest.mark.parametrize("graphs", [FEW_GRAPHS - 1, FEW_GRAPHS, FEW_GRAPHS + 1])
def test_many_graphs_are_counted(graphs):
    index = torch.arange(3 * graphs) % graphs
    assert find_graphs(len(index), index, None, None).keys == [3] * graphs


def test_far_numbers_are_numbered_anew():
    batch, query_batch = torch.tensor([7, 10**12, 7]), torch.tensor([10**12, 9])
    found = find_graphs(3, batch, 2, query_batch)
    assert (found.keys, found.queries) == ([2, 0, 1], [0, 1, 1])
    assert found.of_keys.tolist() == [0, 2, 0] and found.of_queries.tolist() == [2, 1]


def test_a_negative_number_is_refused_by_its_name_and_place():
    with pytest.raises(ValueError, match=r"query_batch\[1\] is -2; allowed: non-negative graph numbers"):
        find_graphs(2, torch.tensor([0, 0]), 2, torch.tensor([0, -2]))


def test_an_index_is_read_again_only_where_it_has_changed(monkeypatch):
    read = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: (read.append(tensor), tolist(tensor))[1])
    index = torch.tensor([0, 1, 1])
    for change, sizes, reads in ((0, [1, 2], 1), (0, [1, 2], 1), (1, [0, 1, 2], 2)):
        if change:
            index += change
        assert find_graphs(3, index, None, None).keys == sizes
        assert len(read) == reads
    assert find_graphs(3, index.clone(), None, None).keys == [0, 1, 2]
    assert len(read) == 3


def test_without_a_version_an_index_is_read_each_time():
    with torch.inference_mode():
        index = torch.tensor([0, 1, 1])
        assert find_graphs(3, index, None, None).keys == [1, 2]
        index += 1
        assert find_graphs(3, index, None, None).keys == [0, 1, 2]
