"""The points of each graph of a batch, on the host and on a device, which is read when an index
is new."""

import pytest
import torch

from phgcn.runtime.graphs import FEW_GRAPHS, find_graphs, group_points
from phgcn.runtime.points import Points


def points(batch, query_batch=None):
    """Points of these graphs."""
    index, queries = (None if b is None else torch.as_tensor(b) for b in (batch, query_batch))
    asked = None if queries is None else torch.zeros(len(queries), 1, 1)
    keys = torch.zeros(len(index), 1, 1)
    return Points(keys, keys, asked, index, queries)


def grouped(batch, query_batch=None):
    groups = group_points(points(batch, query_batch))
    orders = groups.key_order, groups.query_order
    return [
        tuple(order[part].tolist() for order, part in zip(orders, pair, strict=True))
        for pair in groups.slices()
    ]


def test_points_of_a_graph_come_together_in_their_order():
    assert [keys for keys, _ in grouped([1, 0, 1, 3, 0])] == [[1, 4], [0, 2], [], [3]]


def test_keys_and_queries_of_a_graph_meet():
    assert grouped([0, 2, 2], [2, 1]) == [([0], []), ([], [1]), ([1, 2], [0])]


def test_far_graph_numbers_take_no_memory():
    assert grouped([10**12, 5, 10**12], [10**12]) == [([1], []), ([0, 2], [0])]
    found = find_graphs(points([7, 10**12, 7], [10**12, 9]))
    assert (found.keys, found.queries) == ([2, 0, 1], [0, 1, 1])
    assert found.of_keys.tolist() == [0, 2, 0] and found.of_queries.tolist() == [2, 1]


@pytest.mark.parametrize(("keys", "queries"), [(0, None), (0, 4), (4, 0)])
def test_no_points_are_one_empty_graph(keys, queries):
    asked = None if queries is None else torch.zeros(queries, 1, 1)
    given = Points(torch.zeros(keys, 1, 1), torch.zeros(keys, 1, 1), asked)
    ((key, query),) = group_points(given).slices()
    found = find_graphs(given)
    assert (key.stop, query.stop) == (keys, keys if queries is None else queries)
    assert ([key.stop], [query.stop]) == (found.keys, found.queries)


def test_graphs_are_taken_by_their_number_of_pairs():
    given = points([0, 1, 1, 2, 2, 2])
    groups, on_device = group_points(given), find_graphs(given)
    assert [k.stop - k.start for k, _ in groups.slices(at_most=4)] == [1, 2]
    assert [k.stop - k.start for k, _ in groups.slices(more_than=4)] == [3]
    assert on_device.within(at_most=4) == [True, True, False]
    assert on_device.within(more_than=4) == [False, False, True]


@pytest.mark.parametrize(
    ("batch", "query_batch", "sizes"),
    [
        ([2, 0, 2, 2, 0], None, [(2, 2), (0, 0), (3, 3)]),
        ([0, 0, 1], torch.tensor([3, 0]).int(), [(2, 1), (1, 0), (0, 0), (0, 1)]),
        (torch.tensor([]).long(), [1, 0], [(0, 1), (0, 1)]),
        ([10**12, 5, 10**12], [10**12], [(1, 0), (2, 1)]),
    ],
)
def test_host_and_device_count_the_same(batch, query_batch, sizes):
    groups, found = (make(points(batch, query_batch)) for make in (group_points, find_graphs))
    assert [(k.stop - k.start, q.stop - q.start) for k, q in groups.slices()] == sizes
    assert list(zip(found.keys, found.queries, strict=True)) == sizes
    assert query_batch is not None or found.of_keys is found.of_queries


@pytest.mark.parametrize("graphs", [FEW_GRAPHS - 1, FEW_GRAPHS, FEW_GRAPHS + 1])
def test_many_graphs_are_counted(graphs):
    assert find_graphs(points(torch.arange(3 * graphs) % graphs)).keys == [3] * graphs


def test_a_negative_number_is_refused_by_its_name_and_place():
    with pytest.raises(ValueError, match=r"query_batch\[1\] is -2; allowed: non-negative graph"):
        find_graphs(points([0, 0], [0, -2]))


def test_an_index_is_read_again_only_where_it_has_changed(monkeypatch):
    given, read, tolist = points([0, 1, 1]), [], torch.Tensor.tolist
    monkeypatch.setattr(
        torch.Tensor, "tolist", lambda tensor: (read.append(tensor), tolist(tensor))[1]
    )
    for change, sizes, reads in ((0, [1, 2], 1), (0, [1, 2], 1), (1, [0, 1, 2], 2)):
        if change:
            given.batch.add_(change)
        assert find_graphs(given).keys == sizes
        assert len(read) == reads
    assert find_graphs(given._replace(batch=given.batch.clone())).keys == [0, 1, 2]
    assert len(read) == 3


def test_without_a_version_an_index_is_read_each_time():
    with torch.inference_mode():
        given = points([0, 1, 1])
        assert find_graphs(given).keys == [1, 2]
        given.batch.add_(1)
        assert find_graphs(given).keys == [0, 1, 2]
