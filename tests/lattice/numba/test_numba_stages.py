import numpy as np
import torch
from stages import StageCase, Stages

from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.numba.blur import blur, direct_rows
from phgcn.lattice.numba.cells import find_cells
from phgcn.lattice.numba.index import coarsen, index, lay_out, planned_vertices
from phgcn.lattice.numba.levels import mean_pairs
from phgcn.lattice.numba.locate import kuhn_coordinates, locate, planned_simplices, self_weights, with_extent
from phgcn.lattice.numba.near import near_field
from phgcn.lattice.numba.plan import plan_of_cloud, plan_shapes, zeros
from phgcn.lattice.numba.slice import add_position_gradients, slice_gradients, slice_rows
from phgcn.lattice.numba.splat import splat


class NumbaStages(Stages):
    """Points in the order of their cubes and vertices at sites, turned into the reference's order."""

    def __init__(self, points, scheme, finest):
        super().__init__(points, scheme, finest)
        self.dim, self.array = points.size(1), points.numpy()
        self.fitted = multiscale_weights(scheme, self.dim)
        self.frame = kuhn_coordinates(self.array, scheme.spacing, scheme.hops, 0)
        plan = plan_of_cloud(zeros(plan_shapes(points.unsqueeze(1), 1, len(points), scheme)), 0, 0, 0, len(points))
        locate(self.frame, finest, plan)
        self.located = planned_simplices(plan)
        index(self.frame, self.located, finest, plan)
        self.corners, vertices = planned_vertices(plan)
        self.levels = {finest: lay_out(vertices, self.frame.keys(finest), 4)}
        for level in range(finest + 1, len(scheme.hops)):
            keys = self.frame.keys(level)
            self.levels[level] = lay_out(coarsen(self.levels[level - 1].vertices, keys), keys, 4)

    def coordinates(self, level):
        """Kuhn coordinates of the vertices, in the backend's order, counted from the origin."""
        return self.levels[level].vertices.coordinate + (self.frame.base / 2**level).astype(int)

    def to_table(self, level, rows):
        """Rows of vertices in lexicographic order to rows of sites, padded to 8 columns."""
        order = np.lexsort(self.coordinates(level).T[::-1])
        table = np.zeros((self.levels[level].sites, 8))
        table[self.levels[level].site[order], : rows.size(1)] = rows.numpy()
        return table

    def from_table(self, level, table, width):
        order = np.lexsort(self.coordinates(level).T[::-1])
        return torch.from_numpy(table[self.levels[level].site[order], :width])

    def simplices(self):
        level = self.levels[self.finest]
        vertex_of_site = np.full(level.sites, -1)
        vertex_of_site[level.site] = np.arange(len(level.site))
        vertex, weight = np.empty((len(self.array), self.dim + 1, self.dim), np.int64), np.empty(self.located.weight.shape)
        sites = level.source_site[self.corners.number]
        vertex[self.located.point] = self.coordinates(self.finest)[vertex_of_site[sites]]
        weight[self.located.point] = self.located.weight
        return torch.from_numpy(vertex), torch.from_numpy(weight)

    def self_weights(self):
        tables = self.fitted.simplex_tables(self.dim)
        return torch.from_numpy(self_weights(self.frame, tables, self.finest, np.dtype(np.float64)))

    def vertices(self, level):
        found = self.coordinates(level)
        return torch.from_numpy(found[np.lexsort(found.T[::-1])]).long()

    def splat(self, rows):
        given = padded(rows)
        table = splat(given, given[:0, :0], 0, self.located, self.corners, self.levels[self.finest])
        return self.from_table(self.finest, table, rows.size(1))

    def blur(self, level, table):
        rows = direct_rows(self.dim, self.scheme.hops[level])
        given = self.to_table(level, table)
        blurred = np.empty_like(given)
        blur(given, self.levels[level], rows, self.fitted.weights[level], blurred)
        return self.from_table(level, blurred, table.size(1))

    def slice_rows(self, table):
        out = np.zeros((len(self.array), 8))
        slice_rows(self.to_table(self.finest, table), self.located, self.corners, self.levels[self.finest], 0, out)
        return torch.from_numpy(out[:, : table.size(1)])

    def slice_gradients(self, table, grad_table, rows, grads):
        of_rows, of_points = np.zeros((len(rows), 8)), np.zeros_like(self.array)
        tables = (self.to_table(self.finest, t) for t in (table, grad_table))
        place = self.located, self.corners, self.levels[self.finest]
        slope = slice_gradients(*tables, 0, *place, padded(rows), padded(grads), 0, of_rows)
        add_position_gradients(slope, self.frame.matrix * 0.5**self.finest, of_points)
        return torch.from_numpy(of_rows[:, : rows.size(1)]), torch.from_numpy(of_points)

    def cells(self, queries):
        points = self.array if queries is None else np.concatenate([self.array, queries.numpy()])
        first_query = 0 if queries is None else len(self.array)
        return find_cells(with_extent(points), first_query, self.fitted, self.finest)

    def near_field(self, queries, rows):
        out = np.zeros((len(self.array if queries is None else queries), 8))
        near = self.cells(queries)
        near_field(near, near.source.take(padded(rows)), out)
        return torch.from_numpy(out[:, : rows.size(1)])

    def near_gradients(self, queries, rows, grads):
        near, width = self.cells(queries), rows.size(1)
        rows, grads = padded(rows), padded(grads)
        of_points, of_rows = np.zeros_like(self.array), np.zeros_like(rows)
        if queries is None:
            products = near.target.take(grads, rows), near.source.take(rows, grads)
            near_field(near, near.source.take(grads), of_rows, *products, of_points)
            return torch.from_numpy(of_points), torch.from_numpy(of_rows[:, :width]), None
        of_queries = np.zeros(queries.shape)
        rows, grads = near.source.take(rows), near.target.take(grads)
        near_field(near, target_rows=grads, source_rows=rows, grad=of_queries)
        near_field(near.swapped(), grads, of_rows, rows, grads, of_points)
        return torch.from_numpy(of_points), torch.from_numpy(of_rows[:, :width]), torch.from_numpy(of_queries)

    def mean_pairs(self, queries, radius):
        points = self.array if queries is None else np.concatenate([self.array, queries.numpy()])
        return mean_pairs(with_extent(points), 0 if queries is None else len(self.array), radius)


def padded(rows):
    return np.pad(rows.numpy(), ((0, 0), (0, 8 - rows.size(1))))


class TestNumba(StageCase):
    stages = NumbaStages
