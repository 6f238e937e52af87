r"""Exponentials of the CPU kernels: unlike a call of the C library, plain arithmetic, which LLVM puts into vector registers.

:math:`e^x = 2^n 2^f` with a whole number :math:`n` and a fraction :math:`f`.  For :math:`\lvert f \rvert \le 1/2` Taylor's
polynomial of :math:`2^f` is right to the last bit.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import overload

from .numba import OPTIONS

LOG2E = math.log2(math.e)
TAYLOR = tuple(math.log(2) ** k / math.factorial(k) for k in range(14))
"""Coefficients of 2^f: the first 8 are enough for float32."""

_LOG2E_32 = np.float32(LOG2E)
_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7 = (np.float32(c) for c in TAYLOR[:8])
_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11, _B12, _B13 = TAYLOR


def exp_nonpositive(x):
    r"""Computes :math:`e^x` for :math:`x \le 0` in a kernel; never less than the least normal number of its type.

    The relative error is at most :math:`2 + \lvert x \rvert` roundings.
    """
    return math.exp(x)


def _exp_float32(x):
    t = max(x * _LOG2E_32, np.float32(-126))
    whole = np.int32(t - np.float32(0.5))  # rounds to the nearest, as t <= 0 and a cast cuts towards 0
    f = t - np.float32(whole)
    power = np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)  # the bits of 2^whole
    return power * (_A0 + f * (_A1 + f * (_A2 + f * (_A3 + f * (_A4 + f * (_A5 + f * (_A6 + f * _A7)))))))


def _exp_float64(x):
    t = max(x * LOG2E, -1022.0)
    whole = np.int32(t - 0.5)
    f = t - np.float64(whole)
    power = np.int64((np.int64(whole) + np.int64(1023)) << np.int64(52)).view(np.float64)
    tail = _B7 + f * (_B8 + f * (_B9 + f * (_B10 + f * (_B11 + f * (_B12 + f * _B13)))))
    return power * (_B0 + f * (_B1 + f * (_B2 + f * (_B3 + f * (_B4 + f * (_B5 + f * (_B6 + f * tail)))))))


@overload(exp_nonpositive, jit_options=cast(Any, OPTIONS))
def _choose(x):
    """Picks the float type's version when a kernel is compiled."""
    return _exp_float32 if x == types.float32 else _exp_float64


# In sums over pairs

_X = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2 - 0.5
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = (np.float32(c) for c in np.polynomial.polynomial.polyfit(_X, 2.0**_X, 6))


def exp_negative(x):
    r"""Computes :math:`e^x` for :math:`x \le 0` in a kernel.

    In float32 the polynomial has one degree less than that of :func:`exp_nonpositive`: it is fitted to :math:`-1 < f \le 0`.
    """
    return math.exp(x)


def _short_exp_float32(x):
    t = max(x * _LOG2E_32, np.float32(-126))
    whole = np.int32(t)
    f = t - np.float32(whole)
    scale = np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)
    return scale * (_C0 + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6))))))


@overload(exp_negative)
def _choose_short(x):
    return _short_exp_float32 if x == types.float32 else lambda x: math.exp(x)
