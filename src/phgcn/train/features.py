"""Fills missing numbers and scales columns of features.

A transform is fitted to the training nodes of a split, kept with the weights, and applied to other
graphs. Categories are columns of 0 and 1 already (:mod:`phgcn.data.encode`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ..distributed.collectives import OneRank, Ranks
from ..nn.models import replace_values


@dataclass(frozen=True, eq=False)
class FeatureTransform:
    r"""Computes :math:`(x - c) \cdot s` of every column, and appends columns that mark missing
    numbers.

    Args:
        fill (torch.Tensor): The mean of the training nodes, in place of a missing number,
            :math:`(F,)`.
        marked (torch.Tensor): The columns with a mark column, 1 where the number was missing: all
            that miss a number in the graph, :math:`(M,)`, int64.
        centre (torch.Tensor): :math:`c`, :math:`(F,)`; 0 of sparse features, which stay sparse.
        factor (torch.Tensor): :math:`s`, :math:`(F,)`; 0 of a category without training nodes.

    Shapes:
        - **x:** :math:`(N, F)`, dense with NaN for a missing number, or CSR without
        - **output:** :math:`(N, F + M)`
    """

    fill: Tensor
    marked: Tensor
    centre: Tensor
    factor: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Transforms the features of any graph with the same columns."""
        if self.changes_nothing and not (x.layout == torch.strided and bool(x.isnan().any())):
            return x
        if x.layout != torch.strided:
            return replace_values(x, x.values() * self.factor[x.col_indices()])
        missing = x.isnan()
        filled = (torch.where(missing, self.fill, x) - self.centre) * self.factor
        return torch.cat([filled, missing[:, self.marked].to(x.dtype)], dim=1)

    @property
    def changes_nothing(self) -> bool:
        """Whether features without missing numbers stay as they are."""
        scales = bool(self.centre.any()) or not bool((self.factor == 1).all())
        return not len(self.marked) and not scales

    @property
    def width(self) -> int:
        """The number of columns of the output, F + M."""
        return len(self.fill) + len(self.marked)

    def tensors(self) -> dict[str, Tensor]:
        """Returns the fitted values, to be kept with the weights."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], features: int) -> FeatureTransform:
        """Makes the transform from :meth:`tensors`; without tensors it changes nothing."""
        return cls(**tensors) if tensors else unchanged(features)


def unchanged(features: int) -> FeatureTransform:
    zeros = torch.zeros(features)
    return FeatureTransform(zeros, torch.zeros(0, dtype=torch.int64), zeros, torch.ones(features))


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Returns rows (M, F) of dense or CSR features, as dense features."""
    return (
        x[rows] if x.layout == torch.strided else x.to_sparse_coo().index_select(0, rows).to_dense()
    )


def fit_features(
    x: Tensor,
    train: Tensor,
    scaling: str,
    indicators: Tensor,
    processes: OneRank | Ranks | None = None,
) -> FeatureTransform:
    """Fits a transform to the training nodes.

    Args:
        x (torch.Tensor): The features of all nodes of this process, :math:`(N, F)`.
        train (torch.Tensor): The indices of the training nodes among them.
        scaling (str): ``"none"``, ``"standard"`` (mean 0, deviation 1) or ``"range"`` (0 to 1).
            Sparse features are only divided, by their deviation from 0 or their largest value.
        indicators (torch.Tensor): Mask of the columns of categories, which are not scaled,
            :math:`(F,)`.
        processes (optional): Processes that share the nodes; all get the same transform. (default:
            this process)
    """
    fit = _fit_dense if x.layout == torch.strided else _fit_sparse
    transform, seen = fit(x, train, scaling, OneRank() if processes is None else processes)
    centre = torch.where(indicators, 0.0, transform.centre)
    factor = torch.where(indicators, seen.to(x.dtype), transform.factor)
    return replace(transform, centre=centre, factor=factor)


# Sums are in float64, so that it hardly matters how many processes the nodes are divided among.


def _fit_dense(
    x: Tensor, train: Tensor, scaling: str, processes: OneRank | Ranks
) -> tuple[FeatureTransform, Tensor]:
    """Fits to dense features. Returns the transform and a mask (F,) of the columns in which some
    training node is not 0."""
    rows = x[train]
    known = ~rows.isnan()
    nodes = x.new_full((x.size(1),), len(rows), dtype=torch.float64)
    sums = [known.sum(dim=0).double(), rows.nansum(dim=0, dtype=torch.float64), nodes]
    count, total, nodes = processes.sum(torch.stack(sums))
    extremes = [_greatest(rows, known), _greatest(-rows, known), x.isnan().any(dim=0).to(x.dtype)]
    high, low, gaps = processes.max(torch.stack(extremes))
    # 0 where no training node has a number
    high, low = (torch.where(count > 0, side, 0.0) for side in (high, -low))
    # A mean that rounding puts outside of the numbers would give a constant column a width.
    fill = (total / count.clamp(min=1)).to(x.dtype).clamp(low, high)
    centre, width = torch.zeros_like(fill), torch.ones_like(fill)
    if scaling == "standard":  # of the filled columns: gaps hold the mean
        squares = processes.sum((rows - fill).square().nansum(dim=0, dtype=torch.float64))
        centre, width = fill, (squares / nodes).sqrt().to(x.dtype)
    elif scaling == "range":
        centre, width = low, high - low
    transform = FeatureTransform(fill, gaps.nonzero().flatten(), centre, _inverse(width))
    return transform, (low != 0) | (high != 0)


def _greatest(rows: Tensor, known: Tensor) -> Tensor:
    """Returns the greatest known number of each column, minus infinity if there is none."""
    none = rows.new_full((1, rows.size(1)), -torch.inf)
    return torch.cat([torch.where(known, rows, -torch.inf), none]).amax(dim=0)


def _fit_sparse(
    x: Tensor, train: Tensor, scaling: str, processes: OneRank | Ranks
) -> tuple[FeatureTransform, Tensor]:
    """Fits to CSR features; see :func:`_fit_dense`."""
    in_train = torch.zeros(x.size(0), dtype=torch.bool)
    in_train[train] = True
    kept = in_train.repeat_interleave(x.crow_indices().diff())
    columns, values = x.col_indices()[kept], x.values()[kept]
    zeros = torch.zeros(x.size(1), dtype=torch.float64)
    squares = processes.sum(zeros.index_add(0, columns, values.double().square()))
    largest = processes.max(zeros.to(x.dtype).scatter_reduce(0, columns, values.abs(), "amax"))
    nodes = processes.sum(torch.tensor([len(train)]))
    deviation = (squares / nodes).sqrt().to(x.dtype)
    width = {"none": torch.ones_like(largest), "standard": deviation, "range": largest}[scaling]
    return replace(unchanged(x.size(1)), factor=_inverse(width)), largest > 0


def _inverse(width: Tensor) -> Tensor:
    """Returns 1 over the width of each column; 1 for a constant column."""
    return torch.where(width > 0, 1 / width.clamp(min=torch.finfo(width.dtype).tiny), 1.0)
