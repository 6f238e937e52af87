"""Batch norm over the nodes of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from .collectives import Ranks, sum_over_ranks


class RankBatchNorm(torch.nn.BatchNorm1d):
    """Batch norm whose mean and variance are of the rows of all ranks.

    Torch's :class:`~torch.nn.SyncBatchNorm` is for GPUs only. Parameters, buffers and files are
    those of :class:`~torch.nn.BatchNorm1d`.

    Args:
        like (BatchNorm1d): The norm that it replaces; its parameters are shared.
        group (ProcessGroup): The processes.
    """

    def __init__(self, like: torch.nn.BatchNorm1d, group: ProcessGroup) -> None:
        super().__init__(
            like.num_features, like.eps, like.momentum, like.affine, like.track_running_stats
        )
        if like.affine:
            self.weight, self.bias = like.weight, like.bias
        self.running_mean, self.running_var = like.running_mean, like.running_var
        self.num_batches_tracked = like.num_batches_tracked
        self.group = group

    def forward(self, input: Tensor) -> Tensor:
        if not self.training and self.track_running_stats:
            return super().forward(input)
        ranks = Ranks(self.group)
        count = input.new_tensor([float(len(input))])
        *sums, total = sum_over_ranks(torch.cat([input.sum(dim=0), count]), ranks).unbind()
        mean = torch.stack(sums) / total
        away = input - mean
        variance = sum_over_ranks(away.square().sum(dim=0), ranks) / total
        if self.training and self.track_running_stats:
            self._follow(mean.detach(), variance.detach() * total / (total - 1).clamp(min=1))
        out = away * torch.rsqrt(variance + self.eps)
        return out * self.weight + self.bias if self.affine else out

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Updates the running statistics with the unbiased variance, as torch does."""
        assert (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        )
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def synchronise_norms(module: torch.nn.Module, group: ProcessGroup) -> None:
    """Replaces the batch norms in a module by norms over the rows of all ranks."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.BatchNorm1d) and not isinstance(child, RankBatchNorm):
            setattr(module, name, RankBatchNorm(child, group))
        else:
            synchronise_norms(child, group)
