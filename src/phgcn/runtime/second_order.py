"""The gradient of a gradient, by autograd of an op's reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MaybeTensors = Sequence[Tensor | None]
# the inputs of an op, some :obj:`None` -> its outputs, computed in plain torch
Forward = Callable[..., MaybeTensors]


def differentiate_twice(
    forward: Forward, inputs: MaybeTensors, grads: MaybeTensors, upstream: MaybeTensors
) -> tuple[MaybeTensors, MaybeTensors]:
    r"""Computes, for :math:`\bar x = J(x)^\top \bar y` and a gradient :math:`u` of :math:`\bar x`,
    the gradients of :math:`\bar y` and of :math:`x`. Inputs keep their graph, so that the result
    can be differentiated again.

    Args:
        forward (Callable): Computes :math:`y(x)`.
        inputs: The :math:`x`.
        grads: The :math:`\bar y`, one for each output.
        upstream: The :math:`u`, one for each input.
    """
    again = torch.is_grad_enabled()  # true where the caller wants derivatives of the result
    none: list[Tensor | None] = [None] * (len(grads) + len(inputs))
    with torch.enable_grad():
        # Aliases: a tensor that is given in two places gets a gradient for each.
        aliases = [
            t if t is None or not t.requires_grad else t.view_as(t) for t in (*grads, *inputs)
        ]
        cotangents, places = aliases[: len(grads)], aliases[len(grads) :]
        outputs, of_outputs = _pair(forward(*places), cotangents)
        wanted, of_wanted = _pair(places, upstream)
        if not outputs or not wanted:
            return none[: len(grads)], none[len(grads) :]
        first = torch.autograd.grad(
            outputs, wanted, of_outputs, create_graph=True, allow_unused=True
        )
        second, of_second = _pair(first, of_wanted)
        needed = [t for t in aliases if t is not None and t.requires_grad]
        if not second or not needed:
            return none[: len(grads)], none[len(grads) :]
        found = iter(
            torch.autograd.grad(second, needed, of_second, create_graph=again, allow_unused=True)
        )
    of = [next(found) if t is not None and t.requires_grad else None for t in aliases]
    return of[: len(grads)], of[len(grads) :]


def _pair(tensors: MaybeTensors, others: MaybeTensors) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the tensors that have a gradient, each with its partner, where both exist."""
    pairs = [
        (t, other)
        for t, other in zip(tensors, others, strict=True)
        if t is not None and t.requires_grad and other is not None
    ]
    return [t for t, _ in pairs], [other for _, other in pairs]
