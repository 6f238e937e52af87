r"""The exponential of the CPU kernels in plain arithmetic, which LLVM vectorises.

:math:`e^x = 2^n 2^f` with a whole number :math:`n` and a fraction :math:`f`. In float32 :math:`-1 <
f \le 0` and the polynomial of :math:`2^f` is fitted; in float64 :math:`\lvert f \rvert \le 1/2` and
it is Taylor's."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import overload

from .numba import OPTIONS

LOG2E = math.log2(math.e)
_LOG2E_32 = np.float32(LOG2E)
_X = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2 - 0.5
_A0, _A1, _A2, _A3, _A4, _A5, _A6 = np.polynomial.polynomial.polyfit(_X, 2.0**_X, 6).astype("f")
_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11, _B12, _B13 = (
    math.log(2) ** k / math.factorial(k) for k in range(14)
)


def exp_negative(x):
    r"""Computes :math:`e^x` for :math:`x \le 0`, or 0 below the least normal number. The relative
    error is at most :math:`2 + \lvert x \rvert` roundings."""
    return math.exp(x)


def _exp_float32(x):
    t = max(x * _LOG2E_32, np.float32(-127))
    whole = np.int32(t)
    f = t - np.float32(whole)
    # the bits of 2^whole, or 0
    power = np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)
    return power * (_A0 + f * (_A1 + f * (_A2 + f * (_A3 + f * (_A4 + f * (_A5 + f * _A6))))))


def _exp_float64(x):
    t = max(x * LOG2E, -1023.0)
    # rounds to the nearest, as t <= 0 and a cast cuts towards 0
    whole = np.int32(t - 0.5)
    f = t - np.float64(whole)
    power = np.int64((np.int64(whole) + np.int64(1023)) << np.int64(52)).view(np.float64)
    tail = _B7 + f * (_B8 + f * (_B9 + f * (_B10 + f * (_B11 + f * (_B12 + f * _B13)))))
    return power * (
        _B0 + f * (_B1 + f * (_B2 + f * (_B3 + f * (_B4 + f * (_B5 + f * (_B6 + f * tail))))))
    )


@overload(exp_negative, jit_options=cast(Any, OPTIONS))
def _choose(x):
    """Picks the float type's version at compile time."""
    return _exp_float32 if x == types.float32 else _exp_float64
