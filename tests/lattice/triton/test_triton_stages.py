"""Each stage of the Triton backend against its twin in the reference."""

from dataclasses import replace
from functools import cached_property

import pytest
import torch
from clouds import normal
from stages import ReferenceStages, StageCase, Stages

pytest.importorskip("triton")
from phgcn.lattice.filter_call import FilterCall
from phgcn.lattice.levels import mean_pairs_cell
from phgcn.lattice.scheme import named_scheme
from phgcn.lattice.triton import filter as filter_room
from phgcn.lattice.triton.blur import blur, neighbour_slabs
from phgcn.lattice.triton.cells import near_level, sort_by_cell
from phgcn.lattice.triton.constants import pack_grids
from phgcn.lattice.triton.index import coarsen
from phgcn.lattice.triton.keys import BITS, SHIFT, WORD
from phgcn.lattice.triton.levels import sum_pairs
from phgcn.lattice.triton.near import near_field, near_gradients
from phgcn.lattice.triton.rows import Rows, new_rows
from phgcn.lattice.triton.slice import slice_gradients, slice_rows
from phgcn.lattice.triton.splat import PointRows, splat
from phgcn.lattice.triton.survey import layouts, survey
from phgcn.runtime.points import Points
from phgcn.runtime.triton import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="Triton compiles for the GPU here: TRITON_INTERPRET is not 1")


def plain(rows):
    """Rows without an extra column."""
    return Rows(rows.contiguous(), *rows.shape)


class TritonStages(Stages):
    """One cloud; keys are read back into Kuhn coordinates."""

    def __init__(self, points, scheme, finest):
        super().__init__(points, scheme, finest)
        self.dim = points.size(1)
        self.fixed = replace(scheme, near_field=finest)
        self.found = self.facts(None)
        self.lattice = self.found.lattice(0)

    def facts(self, queries):
        """The plan of the points and, if given, of queries."""
        values = self.points.new_zeros(len(self.points), 1, 1)
        points = Points(self.points.unsqueeze(1), values, None if queries is None else queries.unsqueeze(1))
        filtered, clouds = filter_room.list_clouds(points, FilterCall(self.fixed, False))
        assert filtered == [True]
        plan, _ = filter_room.make_plan(clouds, self.fixed, True, torch.inf, None)
        return filter_room.Lattices(plan, self.fixed, clouds)

    @cached_property
    def coarser(self):
        return coarsen(self.lattice.vertices, self.lattice.counts, self.lattice.layout, self.found.constants, 1)

    def of_level(self, level):
        """The vertices that have those of a level, and the places of these among them."""
        vertices = self.coarser if level > self.finest else self.lattice.vertices
        begin, end = vertices.level_offset.tolist()[level : level + 2]
        return vertices, slice(begin, end)

    def coordinates(self, keys, level):
        """Reads Kuhn coordinates out of keys, (W, V)."""
        table = self.lattice.layout.table
        word, shift, bits = table[WORD.value, 1:], table[SHIFT.value, 1:], table[BITS.value, 1:]
        fields = torch.stack([(keys[w].long() >> s) & ((1 << b) - 1) for w, s, b in zip(word, shift, bits, strict=True)], dim=1)
        return fields - self.found.constants.free + (table[0, 1:] >> level)

    def simplices(self):
        cell, rank = self.lattice.points.simplices.cell.long(), self.lattice.points.simplices.rank
        place = torch.stack([(rank >> (4 * j)) & 15 for j in range(self.dim)], dim=1)
        steps = torch.stack([(place < corner).long() for corner in range(self.dim + 1)], dim=1)
        return cell.unsqueeze(1) + steps, self.lattice.points.simplices.weight

    def self_weights(self):
        target = self.found.constants.lattice_map[0][1 + self.dim * (self.dim + 1) + self.finest * (self.dim + 3) + 1]
        return target - self.lattice.points.simplices.self_term[0]

    def vertices(self, level):
        vertices, places = self.of_level(level)
        return self.coordinates(vertices.keys[:, places], level)

    def splat(self, rows):
        return splat(PointRows(plain(rows)), self.lattice.vertices).main

    def blur(self, level, table):
        vertices, places = self.of_level(level)
        rows = plain(table.new_zeros(vertices.count, table.size(1)))
        rows.main[places] = table
        out, (stencil,) = new_rows(table, vertices.count, table.size(1), 0), self.found.constants.stencils
        for neighbours in neighbour_slabs(vertices, stencil.rows, self.lattice.layout):
            blur(rows, neighbours, vertices, stencil, out)
        return out.main[places]

    def bare_points(self):
        """The located points without their self term."""
        points = self.lattice.points
        return points._replace(simplices=points.simplices._replace(self_term=points.simplices.self_term[:0]))

    def slice_rows(self, table):
        out = table.new_empty(len(self.points), table.size(1))
        slice_rows(plain(table), self.bare_points(), out, None, None, out, None, False)
        return out

    def slice_gradients(self, table, grad_table, rows, grads):
        of_rows, of_points = torch.empty_like(rows), torch.empty_like(self.points)
        table = plain(torch.cat([table, grad_table], dim=1))
        slice_gradients(table, self.bare_points(), PointRows(plain(rows), plain(grads)), None, False, of_rows, of_points)
        return of_rows, of_points

    def cells(self, queries):
        """The level's near field, and targets and sources sorted by cell."""
        found = self.found if queries is None else self.facts(queries)
        level = near_level(found.constants, self.finest, found.layouts[1 + self.finest])
        parts = [slice(0, found.clouds.sources)] + ([] if queries is None else [found.clouds.queries])
        every = [sort_by_cell(level, found.clouds, found.plan.level, part) for part in parts]
        return level, every[-1], every[0]

    def near_field(self, queries, rows):
        level, targets, sources = self.cells(queries)
        out = plain(rows.new_zeros(targets.point.size(0), rows.size(1)))
        near_field(targets, sources, plain(rows), level, out)
        return out.main

    def near_gradients(self, queries, rows, grads):
        level, targets, sources = self.cells(queries)
        of_points, of_rows = torch.zeros_like(self.points), plain(torch.zeros_like(rows))
        near_gradients(sources, targets, plain(grads), plain(rows), level, of_rows, of_points)
        if queries is None:
            return of_points, of_rows.main, None
        of_queries = torch.zeros_like(queries)
        near_gradients(targets, sources, plain(rows), plain(grads), level, None, of_queries)
        return of_points, of_rows.main, of_queries

    def mean_pairs(self, queries, radius):
        clouds = (self.found if queries is None else self.facts(queries)).clouds
        cells = [0.0, mean_pairs_cell(self.dim, radius)]
        grids = pack_grids(self.dim, 2, self.found.constants.free, cells, [0.0, radius], self.points.device)
        constants = replace(self.found.constants, levels=2, grids=grids)
        found, widths = survey(clouds, None, constants, [1, 1, 1], 0, torch.inf), [1, 1, 1]
        sides = torch.tensor(cells, dtype=torch.float64)
        sums = sum_pairs(clouds, sides, found.mean, layouts(found.key_layout, widths)[1])
        return float(sums[-1]) / (clouds.queries.stop - clouds.queries.start)


MADE = {}


class TestTriton(StageCase):
    """Few points, and each lattice built once: the interpreter is slow."""

    dims, count, channels = (1, 2), 8, 2

    @staticmethod
    def stages(points, scheme, finest):
        place = points.size(1), finest
        if place not in MADE:
            MADE[place] = TritonStages(points, scheme, finest)
        assert torch.equal(MADE[place].points, points)
        return MADE[place]

    def test_stages_of_four_dimensions(self):
        """Of the stages that loop over the dimensions; the others take the interpreter too long."""
        for name in ("locate", "self_weights", "index", "splat", "slice_rows", "slice_gradients"):
            made = normal(self.count, 4, seed=4) * 2, named_scheme("lattice", 4), 1
            getattr(self, f"test_{name}")((self.stages(*made), ReferenceStages(*made)))
