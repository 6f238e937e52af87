"""Collectives between the processes of a group, and their gradients.

**Scale of gradients.**  The loss is the *sum* of the scalars that the ranks call ``backward()`` on.
Each function below has the gradient of that sum: what goes to several ranks gets the sum of their
gradients, never a mean. A parameter that every rank has a copy of gets each rank's share;
:func:`sum_gradients` adds them up.

Every sum over ranks adds in the same order on each call, so that the same number of ranks gives the
same bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


class RankError(RuntimeError):
    """Another process of the group ended, or did not answer in time."""


class OneRank:
    """A process that has everything, with the methods of :class:`Ranks`."""

    rank, size = 0, 1

    def gather(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        return tensor


class Ranks:
    """The processes of a group, as one of them sees them.

    Args:
        group (ProcessGroup): The group; this process must be part of it.

    Attributes:
        rank (int): The number of this process in the group.
        size (int): How many there are.
        devices (tuple of str): The types of device whose tensors the group exchanges.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError(
                "group does not contain this process; allowed: a process group that it is part of"
            )
        config = str(dist.get_backend_config(group))  # such as "cpu:gloo,cuda:nccl"
        # gloo says that it takes tensors of a GPU, but not all collectives do.
        self.devices = tuple(
            part.partition(":")[0] for part in config.split(",") if part != "cuda:gloo"
        )

    def gather_equal(self, tensor: Tensor) -> Tensor:
        """Gathers a small tensor of one shape on all ranks, ``(ranks, *shape)``."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        with self._waiting():
            dist.all_gather(parts, tensor.contiguous(), group=self.group)
        return torch.stack(parts)

    def gather(self, tensor: Tensor, counts: Sequence[int] | None = None) -> list[Tensor]:
        """Gathers the rows of all ranks.

        Args:
            tensor (torch.Tensor): The rows of this rank, :math:`(N_r, *)`.
            counts (sequence of int, optional): The :math:`N_r` of all ranks. (default: :obj:`None`,
                exchanged first)
        """
        if counts is None:
            counts = (
                self.gather_equal(torch.tensor([len(tensor)], device=tensor.device))
                .flatten()
                .tolist()
            )
        parts = [tensor.new_empty(count, *tensor.shape[1:]) for count in counts]
        parts[self.rank] = tensor.contiguous()
        self.fill(parts)
        return parts

    def fill(self, parts: Sequence[Tensor | Sequence[Tensor]]) -> None:
        """Overwrites ``parts[r]``, a contiguous tensor or a list of them, by rank r's."""
        with self._waiting():
            # One broadcast per rank: rows need no padding, and gloo's own all-gather takes five
            # times as long.
            sent = [
                dist.broadcast(tensor, group=self.group, group_src=source, async_op=True)
                for source, part in enumerate(parts)
                for tensor in ([part] if isinstance(part, Tensor) else part)
                if tensor.numel() > 0
            ]
            for work in sent:
                work.wait()

    def sum(self, tensor: Tensor) -> Tensor:
        """Returns the sum over ranks of a tensor of one shape."""
        return self.sum_in_place(tensor.clone(memory_format=torch.contiguous_format))

    def sum_in_place(self, tensor: Tensor) -> Tensor:
        """Overwrites a contiguous tensor by the sum over ranks, and returns it."""
        with self._waiting():
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        """Returns the maximum over ranks of a tensor of one shape."""
        greatest = tensor.clone(memory_format=torch.contiguous_format)
        with self._waiting():
            dist.all_reduce(greatest, dist.ReduceOp.MAX, group=self.group)
        return greatest

    def exchange(self, rows: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """Sends the first ``send[0]`` rows to rank 0, the next ``send[1]`` to rank 1 and so on.
        Returns ``receive[r]`` rows from each rank r, in order."""
        arrived = rows.new_empty(sum(receive), *rows.shape[1:])
        with self._waiting():
            dist.all_to_all_single(
                arrived, rows.contiguous(), list(receive), list(send), group=self.group
            )
        return arrived

    def sum_to_owners(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Sums rows, laid out as :meth:`gather` returns them, over ranks in order, and returns this
        rank's."""
        mine = counts[self.rank]
        arrived = self.exchange(rows, counts, [mine] * self.size)
        total = arrived[:mine].clone()
        for source in range(1, self.size):
            total += arrived[source * mine : (source + 1) * mine]
        return total

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Overwrites a tensor by the one of rank ``source``, and returns it."""
        with self._waiting():
            dist.broadcast(tensor, group=self.group, group_src=source)
        return tensor

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Turns a failed collective into one line: another process is gone, or silent."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise RankError(
                f"rank {self.rank} of {self.size}: another process ended, or did not answer within "
                f"the timeout ({reason})"
            ) from None


# Differentiable


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum(grads[0]), None


def sum_over_ranks(tensor: Tensor, ranks: Ranks) -> Tensor:
    r"""Returns :math:`\sum_r x_r`. Gradient: :math:`\bar x_r = \sum_s \bar y_s`, as every output
    depends on every input.
    """
    out: Tensor = _Sum.apply(tensor, ranks)  # type: ignore[no-untyped-call]
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks, counts: list[int]) -> Tensor:
        ctx.ranks, ctx.counts = ranks, counts
        return torch.cat(ranks.gather(tensor, counts))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ranks.sum_to_owners(grads[0], ctx.counts), None, None


def gather_rows(tensor: Tensor, ranks: Ranks, counts: list[int]) -> Tensor:
    """Returns the rows of all ranks, in the order of the ranks. Gradient: a row gets the sum of
    what its copies get.

    Args:
        tensor (torch.Tensor): The rows of this rank, :math:`(N_r, *)`.
        ranks (Ranks): The processes.
        counts (list of int): The :math:`N_r`.
    """
    out: Tensor = _Gather.apply(tensor, ranks, counts)  # type: ignore[no-untyped-call]
    return out


class _GatherShared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks, counts: list[int]) -> Tensor:
        ctx.begin, ctx.end = sum(counts[: ranks.rank]), sum(counts[: ranks.rank + 1])
        return torch.cat(ranks.gather(tensor, counts))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0][ctx.begin : ctx.end], None, None


def gather_for_shared_loss(tensor: Tensor, ranks: Ranks, counts: list[int]) -> Tensor:
    """Gathers rows as :func:`gather_rows` does, for outputs from which every rank computes the
    *same* scalar loss once.

    Gradient: a row gets the gradient of its copy on its own rank, as the copies on other ranks get
    the same."""
    out: Tensor = _GatherShared.apply(tensor, ranks, counts)  # type: ignore[no-untyped-call]
    return out


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, index: Tensor, send: list[int], receive: list[int], ranks: Ranks
    ) -> Tensor:
        ctx.ranks, ctx.send, ctx.receive, ctx.count = ranks, send, receive, len(rows)
        ctx.save_for_backward(index)
        return ranks.exchange(rows[index], send, receive)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = ctx.saved_tensors
        returned = ctx.ranks.exchange(grads[0], ctx.receive, ctx.send)
        of_rows = returned.new_zeros(ctx.count, *returned.shape[1:])
        for part, indices in zip(returned.split(ctx.send), index.split(ctx.send), strict=True):
            # no row goes twice to one rank, so the order of the sum is that of the ranks
            of_rows[indices] += part
        return of_rows, None, None, None, None


def exchange_rows(
    rows: Tensor, index: Tensor, send: list[int], receive: list[int], ranks: Ranks
) -> Tensor:
    """Sends some rows to each rank, and returns those that arrive. Gradient: a row gets the sum
    of what its copies get.

    Args:
        rows (torch.Tensor): The rows of this rank, :math:`(N_r, *)`.
        index (torch.Tensor): Which rows go to rank 0, then which to rank 1 and so on; none twice to
            one rank.
        send, receive (list of int): How many rows go to, and come from, each rank.
        ranks (Ranks): The processes.
    """
    out: Tensor = _Exchange.apply(rows, index, send, receive, ranks)  # type: ignore[no-untyped-call]
    return out


# Parameters


def sum_gradients(parameters: Iterable[Tensor], ranks: Ranks) -> None:
    """Adds up the ranks' shares of the gradients of parameters that all of them have a copy of, in
    one collective.

    A parameter without a gradient on every rank keeps none; where some rank has one, it counts as 0
    on the others."""
    listed = list(parameters)
    if not listed:
        return
    flat = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in listed]
    )
    used = torch.tensor([p.grad is not None for p in listed], dtype=flat.dtype, device=flat.device)
    total = ranks.sum(torch.cat([flat, used]))
    used, begin = total[flat.numel() :] > 0, 0
    for parameter, needed in zip(listed, used.tolist(), strict=True):
        if needed:
            parameter.grad = total[begin : begin + parameter.numel()].view_as(parameter).clone()
        begin += parameter.numel()
