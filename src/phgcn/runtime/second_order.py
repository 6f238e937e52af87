r"""The gradient of a gradient, by autograd, for ops whose reference autograd can differentiate any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MaybeTensors = Sequence[Tensor | None]
Forward = Callable[..., MaybeTensors]
"""The inputs of an op, some :obj:`None` -> its outputs, computed in plain torch."""


def differentiate_twice(
    forward: Forward, inputs: MaybeTensors, grads: MaybeTensors, upstream: MaybeTensors
) -> tuple[MaybeTensors, MaybeTensors]:
    r"""Computes, for :math:`\bar x = J(x)^\top \bar y` and a gradient :math:`u` of :math:`\bar x`, the gradients of
    :math:`\bar y` and of :math:`x`.

    Inputs are taken with the graph that they came from, so that the result can be differentiated again.

    Args:
        forward (Callable): Computes :math:`y(x)`.
        inputs: The :math:`x`.
        grads: The :math:`\bar y`, one for each output.
        upstream: The :math:`u`, one for each input.

    Returns:
        The gradients of ``grads`` and of ``inputs``, :obj:`None` where there is none.
    """
    again = torch.is_grad_enabled()  # true where the caller wants derivatives of the result
    with torch.enable_grad():
        # Aliases: a tensor that is given in two places gets a gradient for each.
        cotangents, places = [_alias(g) for g in grads], [_alias(x) for x in inputs]
        outputs = _pairs(forward(*places), cotangents)
        weights = _pairs(places, upstream)
        if not outputs or not weights:
            return [None] * len(grads), [None] * len(inputs)
        first = torch.autograd.grad(*_lists(outputs, [x for x, _ in weights]), create_graph=True, allow_unused=True)
        both = [*cotangents, *places]
        second = _pairs(first, [u for _, u in weights])
        needed = [t for t in both if t is not None and t.requires_grad]
        if not second or not needed:
            return [None] * len(grads), [None] * len(inputs)
        found = iter(torch.autograd.grad(*_lists(second, needed), create_graph=again, allow_unused=True))
    of = [next(found) if t is not None and t.requires_grad else None for t in both]
    return of[: len(grads)], of[len(grads) :]


def _alias(tensor: Tensor | None) -> Tensor | None:
    return tensor.view_as(tensor) if tensor is not None and tensor.requires_grad else tensor


def _pairs(tensors: MaybeTensors, others: MaybeTensors) -> list[tuple[Tensor, Tensor]]:
    """Returns pairs of a tensor that depends on others and what belongs to it, where there are both."""
    pairs = zip(tensors, others, strict=True)
    return [(t, other) for t, other in pairs if t is not None and t.requires_grad and other is not None]


def _lists(pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Returns the arguments of :func:`torch.autograd.grad`: outputs, inputs, gradients of the outputs."""
    return [output for output, _ in pairs], inputs, [grad for _, grad in pairs]
