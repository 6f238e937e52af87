"""Sites and segments, which threads find part by part."""

import numpy as np
import pytest

from phgcn.lattice.numba.index import GRAIN, Vertices, lay_out, merge
from phgcn.lattice.numba.keys import choose_keys
from phgcn.lattice.numba.splat import splat_coarser

GAP = 4


def some_vertices(count, memory=None):
    """About so many vertices of a plane, and how their keys are made."""
    coordinate = np.random.default_rng(count).integers(0, (40, 4 * count // 40 + 1), (count, 2)).astype(np.int32)
    keys = choose_keys(coordinate.max(axis=0))
    return merge(coordinate.astype(np.uint64) @ keys.multiplier, coordinate, keys, memory), keys


@pytest.mark.parametrize("count", [1, 40, 3 * GRAIN])
def test_sites_and_segments(count, threads):
    threads(2)
    vertices, keys = some_vertices(count)
    level = lay_out(vertices, keys, GAP)
    line, along = vertices.coordinate.T
    step = np.diff(along, prepend=along[0] - GAP - 1)
    head = np.flatnonzero((step < 0) | (step > GAP) | (np.diff(line, prepend=-1) != 0))
    step[head] = 1
    site, key = np.cumsum(step) - 1, vertices.coordinate.astype(np.uint64) @ keys.multiplier
    tail = np.append(head[1:], len(site)) - 1
    for got, want in ((level.site, site), (level.place, site[head]), (level.first, key[head]), (level.last, key[tail])):
        np.testing.assert_array_equal(got, want)
    assert level.sites == site[-1] + 1
    source_site = np.empty(count, np.int64)
    source_site[vertices.source] = np.repeat(site, np.diff(vertices.start))
    np.testing.assert_array_equal(level.source_site, source_site)


def test_sites_without_a_vertex_hold_zeros():
    vertices, keys = some_vertices(300)
    level = lay_out(vertices, keys, GAP)
    assert level.sites > len(level.site)
    children = Vertices(np.zeros((150, 2), np.int32), vertices.source, vertices.start)  # 2v and 2v + 1 are child v
    finer = level._replace(vertices=children, site=np.arange(150, dtype=np.int32))
    table = splat_coarser(np.ones((150, 4)), finer, level)
    want = np.zeros((level.sites, 4))
    want[level.site] = 0.5 * np.diff(vertices.start)[:, None]
    np.testing.assert_array_equal(table, want)


def test_coordinates_are_written_into_given_memory():
    memory = np.zeros((50, 2), np.int32)
    vertices, _ = some_vertices(50, memory)
    assert np.shares_memory(vertices.coordinate, memory)
    np.testing.assert_array_equal(vertices.coordinate, some_vertices(50)[0].coordinate)
