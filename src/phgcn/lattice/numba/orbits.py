r"""What pairs of points have on each orbit of a stencil, for fits of its weights."""

from __future__ import annotations

from ...runtime.numba import kernel


@kernel(
    "int64, int64, int64[:, :, ::1], float64[:, ::1], int64[:, :, ::1], float64[:, ::1], int64[::1], int64[::1], "
    "float64[:, ::1]"
)
def add_orbits(begin, end, first, first_weight, second, second_weight, digits, orbit_number, products):
    """Adds the weight of each pair of corners to its orbit; see :func:`phgcn.lattice.pairs.orbit_products`."""
    corners, dim = first.shape[1:]
    for pair in range(begin, end):
        for l in range(corners):
            for m in range(corners):
                low = high = 0  # of the offset and the 0 behind it
                for j in range(dim):
                    step = second[pair, m, j] - first[pair, l, j]
                    low, high = min(low, step), max(high, step)
                if high - low >= len(digits):
                    continue
                code = digits[-low]
                for j in range(dim):
                    code += digits[second[pair, m, j] - first[pair, l, j] - low]
                products[pair, orbit_number[code]] += first_weight[pair, l] * second_weight[pair, m]
