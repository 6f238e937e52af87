import math

import numba
import numpy as np
import pytest

from phgcn.runtime.exp import exp_negative
from phgcn.runtime.numba import OPTIONS, kernel


@kernel("real[::1], real[::1]")
def fill_exponentials(x, out):
    for i in range(x.shape[0]):
        out[i] = exp_negative(x[i])


def exponentials(x):
    out = np.empty_like(x)
    fill_exponentials(x, out)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_right_to_the_rounding_of_its_argument(dtype):
    x = -np.concatenate([np.linspace(0, 80, 4000), np.logspace(-9, 0, 200)]).astype(dtype)
    # x / ln 2 is rounded, and so is 1 / ln 2: the result is off by |x| roundings, and by two of its
    # own. Beside the nearest point's weight of 1 this is nothing, as |x| e^x is never more than
    # 0.37.
    error = abs(exponentials(x) / np.exp(x.astype(np.longdouble)) - 1)
    assert (error < np.finfo(dtype).eps * (2 - x)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_of_zero_is_one(dtype):
    assert exponentials(np.zeros(3, dtype)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_of_the_far_away_is_nothing(dtype):
    assert not exponentials(np.array([-1e4, -np.inf, -1e30, -800], dtype)).any()
    assert (
        exponentials(np.log(np.array([3, 2, 1.1]) * np.finfo(dtype).tiny).astype(dtype)) > 0
    ).all()


def test_outside_kernels_it_is_that_of_the_c_library():
    assert exp_negative(-1.5) == math.exp(-1.5)


def test_it_runs_in_vector_registers():
    # the cache keeps no assembly
    compiled = numba.njit("(float32[::1], float32[::1])", **OPTIONS)(fill_exponentials.function)
    (assembly,) = compiled.inspect_asm().values()
    assert "mulps" in assembly or "fmla" in assembly
