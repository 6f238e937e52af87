r"""How much one program of this room's kernels takes.

Sizes that change from call to call are marked ``do_not_specialize``: Triton would compile a kernel anew for a size that is 1
and for one that is a multiple of 16.
"""

from __future__ import annotations

from ...kernels.triton import INTERPRETED, cdiv, kernel, power_of_2, tl, triton

__all__ = ["block", "cdiv", "kernel", "power_of_2", "programs", "steps", "tl", "triton"]

ENOUGH = 1 << 15
"""Programs that keep a GPU busy to the end, though some have more to do than others."""


def block(size: int, count: int) -> int:
    """How many items one program takes: ``size``, or, in the interpreter, where programs run one after the other, all."""
    return min(power_of_2(count), 1 << 12) if INTERPRETED else size


def steps(count: int) -> int:
    """How many halvings find a place among ``count`` sorted keys, or behind them."""
    return max(1, count.bit_length())


def programs(blocks: int, bounded: bool, beside: int = 1) -> int:
    """How many programs share blocks of items, with others ``beside`` each: one for each block; where only the device knows how
    many there are of at most so many, enough: each takes one block after the other, and few are launched for nothing."""
    return min(blocks, cdiv(ENOUGH, beside)) if bounded else blocks
