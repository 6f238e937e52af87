import pytest
import torch

from phgcn.runtime.graphs import find_graphs, group_by_graph


def test_points_of_a_graph_come_together_in_their_order():
    groups = group_by_graph(5, torch.tensor([1, 0, 1, 3, 0]), None, None)
    found = [groups.key_order[k].tolist() for k, _ in groups.slices()]
    assert found == [[1, 4], [0, 2], [], [3]]


def test_keys_and_queries_of_a_graph_meet():
    groups = group_by_graph(3, torch.tensor([0, 2, 2]), 2, torch.tensor([2, 1]))
    found = [(groups.key_order[k].tolist(), groups.query_order[q].tolist()) for k, q in groups.slices()]
    assert found == [([0], []), ([], [1]), ([1, 2], [0])]


def test_far_graph_numbers_take_no_memory():
    groups = group_by_graph(3, torch.tensor([10**12, 5, 10**12]), 1, torch.tensor([10**12]))
    found = [(groups.key_order[k].tolist(), groups.query_order[q].tolist()) for k, q in groups.slices()]
    assert found == [([1], []), ([0, 2], [0])]


@pytest.mark.parametrize("counts", [(0, None), (0, 4), (4, 0)])
def test_no_points_are_one_empty_graph(counts):
    groups = group_by_graph(counts[0], None, counts[1], None)
    ((keys, queries),) = groups.slices()
    assert (keys.stop, queries.stop) == (counts[0], counts[0] if counts[1] is None else counts[1])


def test_graphs_are_taken_by_their_number_of_pairs():
    batch = torch.tensor([0, 1, 1, 2, 2, 2])
    groups, on_device = group_by_graph(6, batch, None, None), find_graphs(6, batch, None, None)
    assert [k.stop - k.start for k, _ in groups.slices(at_most=4)] == [1, 2]
    assert [k.stop - k.start for k, _ in groups.slices(more_than=4)] == [3]
    assert on_device.within(at_most=4) == [True, True, False]
    assert on_device.within(more_than=4) == [False, False, True]


@pytest.mark.parametrize(
    "batch, query_batch", [([1, 0, 1, 3, 0], None), ([0, 2, 2], [2, 1]), ([10**12, 5, 10**12], [10**12]), ([0, 2000, 0], None)]
)
def test_host_and_device_count_the_same(batch, query_batch):
    index, query_index = (None if b is None else torch.tensor(b) for b in (batch, query_batch))
    asked = None if query_batch is None else len(query_batch)
    groups, on_device = (make(len(batch), index, asked, query_index) for make in (group_by_graph, find_graphs))
    sizes = [(k.stop - k.start, q.stop - q.start) for k, q in groups.slices()]
    assert sizes == list(zip(on_device.keys, on_device.queries, strict=True))
