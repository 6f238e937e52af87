r"""Prepares features by what the training nodes show: missing numbers are filled, columns are scaled.

It is fitted on the training nodes of a split, kept with the weights, and applied again to the features of other graphs.
Categories became columns of 0 and 1 when the graph was read (:mod:`phgcn.data.encode`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ..distributed.collectives import Ranks


@dataclass(frozen=True, eq=False)
class FeatureTransform:
    r"""Computes :math:`(x - c) \cdot s` of every column, and appends a column that marks what was missing.

    Args:
        fill (torch.Tensor): What stands in for a missing number: the mean of the training nodes, :math:`(F,)`.
        marked (torch.Tensor): The columns with a mark column, which is 1 where the number was missing: those that miss a
            number anywhere in the graph, :math:`(M,)`, int64.
        centre (torch.Tensor): :math:`c`, :math:`(F,)`; 0 of sparse features, which stay sparse.
        factor (torch.Tensor): :math:`s`, :math:`(F,)`; 0 of a category that no training node has, since nothing is learned
            about it.

    Shapes:
        - **x:** :math:`(N, F)`, dense with NaN for a missing number, or CSR without
        - **output:** :math:`(N, F + M)`
    """

    fill: Tensor
    marked: Tensor
    centre: Tensor
    factor: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Transforms the features of the graph that it was fitted to, or of another with the same columns."""
        if self.changes_nothing and not (x.layout == torch.strided and bool(x.isnan().any())):
            return x
        if x.layout != torch.strided:
            values = x.values() * self.factor[x.col_indices()]
            return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)
        missing = x.isnan()
        filled = (torch.where(missing, self.fill, x) - self.centre) * self.factor
        return torch.cat([filled, missing[:, self.marked].to(x.dtype)], dim=1)

    @property
    def changes_nothing(self) -> bool:
        """Whether it gives what it takes, where nothing is missing."""
        return not len(self.marked) and not bool(self.centre.any()) and bool((self.factor == 1).all())

    @property
    def width(self) -> int:
        """How many columns it gives, F + M."""
        return len(self.fill) + len(self.marked)

    def tensors(self) -> dict[str, Tensor]:
        """Returns what was fitted, to be kept with the weights."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], features: int) -> FeatureTransform:
        """Returns the transform that :meth:`tensors` gave; without any, the one that leaves so many features as they are."""
        return cls(**tensors) if tensors else unchanged(features)


def unchanged(features: int) -> FeatureTransform:
    """Returns the transform that changes nothing."""
    zeros = torch.zeros(features)
    return FeatureTransform(zeros, torch.zeros(0, dtype=torch.int64), zeros, torch.ones(features))


class OneProcess:
    """Stands in for :class:`phgcn.distributed.collectives.Ranks` where there is one process: sums and maxima are its own."""

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        return tensor


Processes = OneProcess | Ranks


def fit_features(
    x: Tensor, train: Tensor, scaling: str, indicators: Tensor, processes: Processes | None = None
) -> FeatureTransform:
    r"""Fits a transform to the training nodes.

    Args:
        x (torch.Tensor): The features of all nodes, or of those that this process has.
        train (torch.Tensor): The indices of the training nodes among them.
        scaling (str): ``"none"``, ``"standard"`` (mean 0, deviation 1) or ``"range"`` (0 to 1).  Sparse features are divided
            alone, by their deviation from 0 or by the largest of them.
        indicators (torch.Tensor): Which columns say whether a node has a category; these are not scaled.
        processes (optional): Those that share the nodes out among them: all get the same transform. (default: :obj:`None`,
            this one alone)

    Shapes:
        - **x:** :math:`(N, F)`, **train:** :math:`(N_{train},)`, **indicators:** :math:`(F,)`, bool
    """
    fit = _fit_dense if x.layout == torch.strided else _fit_sparse
    transform, seen = fit(x, train, scaling, OneProcess() if processes is None else processes)
    centre = torch.where(indicators, 0.0, transform.centre)
    factor = torch.where(indicators, seen.to(x.dtype), transform.factor)
    return replace(transform, centre=centre, factor=factor)


# Sums are in float64, so that it hardly matters how many processes the nodes are divided among.


def _fit_dense(x: Tensor, train: Tensor, scaling: str, processes: Processes) -> tuple[FeatureTransform, Tensor]:
    """Fits to dense features, whatever their columns are; returns too which columns some training node has, (F,)."""
    rows = x[train]
    known = ~rows.isnan()
    numbers = [known.sum(dim=0).double(), rows.nansum(dim=0, dtype=torch.float64), x.new_full((x.size(1),), len(rows)).double()]
    count, total, nodes = processes.sum(torch.stack(numbers))
    extremes = [_greatest(rows, known), _greatest(-rows, known), x.isnan().any(dim=0).to(x.dtype)]
    high, low, gaps = processes.max(torch.stack(extremes))
    high, low = (torch.where(count > 0, side, 0.0) for side in (high, -low))  # 0 where no training node has a number
    # A mean that rounding puts outside of the numbers would give a constant column a width.
    fill = (total / count.clamp(min=1)).to(x.dtype).clamp(low, high)
    centre, width = torch.zeros_like(fill), torch.ones_like(fill)
    if scaling == "standard":  # of the filled columns: gaps hold the mean
        squares = processes.sum((rows - fill).square().nansum(dim=0, dtype=torch.float64))
        centre, width = fill, (squares / nodes).sqrt().to(x.dtype)
    elif scaling == "range":
        centre, width = low, high - low
    return FeatureTransform(fill, gaps.nonzero().flatten(), centre, _inverse(width)), (low != 0) | (high != 0)


def _greatest(rows: Tensor, known: Tensor) -> Tensor:
    """Returns the greatest known number of each column; minus infinity where there is none, or no row."""
    none = rows.new_full((1, rows.size(1)), -torch.inf)
    return torch.cat([torch.where(known, rows, -torch.inf), none]).amax(dim=0)


def _fit_sparse(x: Tensor, train: Tensor, scaling: str, processes: Processes) -> tuple[FeatureTransform, Tensor]:
    """Fits to CSR features; returns the same."""
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
    """Returns 1 over the width of each column; 1 for a column of one value alone."""
    return torch.where(width > 0, 1 / width.clamp(min=torch.finfo(width.dtype).tiny), 1.0)
