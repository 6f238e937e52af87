"""Stencils of levels that reach differently far."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from phgcn.lattice.scheme import MultiScale
from phgcn.lattice.triton.constants import constants
from phgcn.lattice.triton.filter import _finest_stencils

CPU = torch.device("cpu")


def of_level(stencil, level):
    """The weights of a level by offset, without those that are 0."""
    rows, found = stencil.rows, {}
    weight = stencil.weight.reshape(stencil.levels, rows.count, rows.longest)[level]
    for first, length, row in zip(rows.first.tolist(), rows.length.tolist(), weight.tolist(), strict=True):
        for q in range(length):
            if row[q] != 0:
                found[(*first[:-1], first[-1] + q)] = row[q]
    return found


def test_each_level_reads_its_own_offsets_when_it_is_the_finest():
    scheme = MultiScale(0.5, (1, 1, 2), near_field=0, weights=((1.0, 0.5), (0.9, 0.4), (0.8, 0.3, 0.2, 0.1)))
    made = constants(scheme, 2, torch.float64, CPU)
    (widest,) = made.stencils
    assert [int(stencil.rows.length.sum()) for stencil in made.finest] == [7, 7, 19]
    assert made.finest[2] is widest
    for level in range(3):
        assert of_level(made.finest[level], level) == of_level(widest, level)


def test_vertices_of_different_finest_levels_read_different_stencils():
    wide, narrow = object(), object()
    lattice = SimpleNamespace(
        constants=SimpleNamespace(finest=(narrow, narrow, wide, narrow)),
        counts=SimpleNamespace(level_offset=[0, 3, 5, 9, 9]),
    )
    assert list(_finest_stencils(lattice)) == [(narrow, range(5)), (wide, range(5, 9))]
