r"""Copies: points in the very same place.  Their weight on each other is exactly 1, like that of a point on itself.

The kernels make the weight of a point on itself 1.  Copies are rare: what they get of each other is added afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, tl
from .clouds import Clouds
from .plan import Plan
from .rows import Rows
from .splat import PointRows, sum_runs

WINDOW = tl.constexpr(3)
"""How many sorted points with the same short hash are compared with each other; if there are more, they count as copies."""


def flag_copies(clouds: Clouds, flag: Tensor) -> None:
    """Sets a flag, (1,), which is 0, to 1 if some points have the same place, or seem to."""
    codes, order = _sort_codes(clouds, torch.int32)  # takes half the time of the long hash, which tells all places apart
    (count, dim), size = clouds.position.shape, block_size(256, len(order))
    _flag_copies[(cdiv(count, size),)](clouds.position, clouds.cloud, codes, order, flag, count, D=dim, BLOCK=size)


@kernel(do_not_specialize=["count"])
def _flag_copies(points, cloud, codes, order, flag, count, D: tl.constexpr, BLOCK: tl.constexpr):
    """Looks for points of one hash and one place among those that follow each point in sorted order."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(codes + e, mask=e < count, other=0)
    i = tl.load(order + e, mask=e < count, other=0)
    for step in tl.static_range(1, WINDOW + 1):
        alike = e + step < count
        alike = alike & (tl.load(codes + e + step, mask=alike, other=0) == code)
        if step < WINDOW:
            other = tl.load(order + e + step, mask=alike, other=0)
            alike = alike & (tl.load(cloud + i, mask=alike, other=0) == tl.load(cloud + other, mask=alike, other=0))
            for j in tl.static_range(D):
                x = tl.load(points + i * D + j, mask=alike, other=0.0)
                alike = alike & (tl.load(points + other * D + j, mask=alike, other=0.0) == x)
        tl.store(flag + e * 0, e * 0 + 1, mask=alike)


def _sort_codes(clouds: Clouds, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sorts the hashes of all points, of their cloud and coordinates; returns them, and which point each belongs to.  Hashes
    are int64, or int32, which different places may share."""
    count, dim = clouds.position.shape
    codes, size = torch.empty(count, dtype=dtype, device=clouds.position.device), block_size(256, count)
    _hash_places[(cdiv(count, size),)](clouds.position, clouds.cloud, codes, count, D=dim, BLOCK=size)
    ordered, order = torch.sort(codes, stable=True)
    return ordered, order


@kernel(do_not_specialize=["count"])
def _hash_places(points, cloud, codes, count, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    code = tl.load(cloud + i, mask=inside, other=0).to(tl.int64)
    for j in tl.static_range(D):
        x = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
        x = tl.where(x == 0, 0.0, x)  # -0 and 0 are one place
        code = (code ^ x.to(tl.int64, bitcast=True)) * 0x1E3779B97F4A7C15
        code = code ^ (code >> 29)
    if codes.dtype.element_ty == tl.int32:
        code = code >> 32
    tl.store(codes + i, code.to(codes.dtype.element_ty), mask=inside)


@dataclass
class Copies:
    """Points in the order of their places.

    Args:
        order (torch.Tensor): The points, those of one place side by side, int32, (P,).
        start (torch.Tensor): The first of each place, and the end of the last, int32.
        place (torch.Tensor): The place of each point, int64, (P,).
    """

    order: Tensor
    start: Tensor
    place: Tensor

    def sum_places(self, rows: Rows, like: Tensor) -> Rows:
        """Sums the rows of the points in each place, in the type of a tensor; in a fixed order."""
        return sum_runs(PointRows(rows), self.order, self.start, len(self.start) - 1, True, like)

    def sum(self, rows: Rows, like: Tensor) -> Rows:
        """Sums the rows of all points in the place of each, (P, C), in the type of a tensor."""
        sums = self.sum_places(rows, like)
        return Rows(
            torch.cat([sums.main[self.place].flatten(), sums.extra[self.place].flatten()]),
            rows.count,
            rows.channels,
            sums.extras,
        )


def find_copies(clouds: Clouds) -> Copies:
    """Finds points with the same coordinates."""
    codes, order = _sort_codes(clouds, torch.int64)
    position, cloud = clouds.position[order], clouds.cloud[order]
    new = (codes[1:] != codes[:-1]) | (position[1:] != position[:-1]).any(dim=1) | (cloud[1:] != cloud[:-1])
    new = torch.cat([new.new_ones(1), new])
    end = torch.tensor([len(order)], device=order.device)
    place = torch.empty_like(order)
    place[order] = torch.cumsum(new, 0) - 1
    return Copies(order.to(torch.int32), torch.cat([new.nonzero().squeeze(1), end]).to(torch.int32), place)


def _self_term(plan: Plan) -> Tensor:
    """Returns what the kernels added to each point's weight on itself, (P,); 0 for points that are not in a lattice."""
    terms = torch.stack([simplices.self_term[0] for simplices in plan.simplices]).mean(dim=0)
    return torch.where(plan.level >= 0, terms, 0.0)


def add_copies(found: Copies, plan: Plan, values: Rows, out: Tensor, norm: Tensor, normalise: bool) -> None:
    """Adds to output and normaliser what points get of their copies."""
    copies = found.sum(values, norm)
    term, flat = _self_term(plan), out.view(values.count, values.channels)
    added = term.unsqueeze(1) * (copies.main - values.main.to(copies.data.dtype))
    if not normalise:
        flat += added.to(out.dtype)
        return
    before = norm.view(-1)
    after = before + term * (copies.extra[:, 0] - 1)
    factor = torch.where(after != 0, 1 / torch.where(after != 0, after, 1.0), 0.0).unsqueeze(1)
    flat.copy_((flat.to(added.dtype) * before.unsqueeze(1) + added) * factor)
    norm.view(-1).copy_(after)


def add_copies_gradients(
    found: Copies, plan: Plan, lattice_map: tuple[Tensor, ...], rows: PointRows, grad_values: Tensor, grad_points: Tensor
) -> None:
    r"""Adds the gradients of :func:`add_copies`.

    Of the derivative :math:`-a'` of the self term, a pair of copies gives either point half:
    :math:`\tfrac12 (\langle f_j, g_i \rangle + \langle f_i, g_j \rangle)`.
    """
    values, grads = rows.values, rows.grads
    assert grads is not None
    dim = grad_points.size(1)
    of_values, of_grads = found.sum(values, grad_points), found.sum(grads, grad_points)
    value, grad = values.main.to(of_values.data.dtype), grads.main.to(of_grads.data.dtype)
    other_values, other_grads = of_values.main - value, of_grads.main - grad
    grad_values.view(value.shape).add_((_self_term(plan).unsqueeze(1) * other_grads).to(grad_values.dtype))
    product = (other_values * grad + value * other_grads).sum(dim=1)
    if of_values.extras > 0:
        product += (of_values.extra[:, 0] - 1) * grads.extra[:, 0] + of_grads.extra[:, 0] - grads.extra[:, 0]
    product = torch.where(plan.level >= 0, product, 0.0) / 2
    for simplices, constants in zip(plan.simplices, lattice_map, strict=True):
        matrix = constants[1 : 1 + dim * dim].view(dim, dim)
        lost = torch.where(plan.level >= 0, simplices.self_term[1:], 0.0).double()
        grad_points.sub_((constants[0] * (product * lost).T @ matrix).to(grad_points.dtype))
