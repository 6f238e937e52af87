import numba
import numpy as np
import pytest

from phgcn.structural.lanes import distance, exponential, inverse, lesser, load, splat, store


@numba.njit
def exponentials(x, out, lanes):
    for i in range(len(x)):
        store(out, (i,), exponential(load(x, (i,), lanes)))


@numba.njit
def arithmetic(x, y, out, lanes):
    for i in range(len(x)):
        a, b = load(x, (i,), lanes), load(y, (i,), lanes)
        store(out, (0, i), a + b * a - splat(0.5, x, lanes) / b)
        store(out, (1, i), lesser(a, b))
        store(out, (2, i), inverse(a))


@numba.njit
def first_distance(rows, out, dim, lanes):
    store(out, (0,), distance(rows, 0, rows, 1, dim, lanes))


@pytest.mark.parametrize("dtype, error", [(np.float32, 2e-7), (np.float64, 5e-16)])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_the_exponential_keeps_full_precision(lanes, dtype, error):
    x = -np.concatenate([np.linspace(0, 80, 4000), np.logspace(-9, 0, 200)]).astype(dtype).reshape(-1, lanes)
    out = np.empty_like(x)
    exponentials(x, out, (0,) * lanes)
    assert abs(out / np.exp(x.astype(np.longdouble)) - 1).max() < error


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_of_the_far_away_is_next_to_nothing(dtype):
    x = np.array([[-1e4, -np.inf, -1e30, -800]], dtype)
    out = np.empty_like(x)
    exponentials(x, out, (0,) * 4)
    assert (out >= 0).all() and (out <= 1.1 * np.finfo(dtype).tiny).all()


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_lanes_are_computed_apart(lanes):
    rng = np.random.default_rng(0)
    x, y = rng.random((5, lanes)), rng.random((5, lanes)) + 1
    x[2] = 0
    out = np.empty((3, 5, lanes))
    arithmetic(x, y, out, (0,) * lanes)
    want = x + y * x - 0.5 / y, np.minimum(x, y), np.divide(1, x, out=np.zeros_like(x), where=x > 0)
    np.testing.assert_allclose(out, want, rtol=1e-14)


def test_a_distance_takes_the_first_entries_of_rows():
    rows, out = np.random.default_rng(0).random((2, 7, 4)), np.empty((1, 4))
    first_distance(rows, out, 3, (0,) * 4)
    np.testing.assert_allclose(out[0], np.linalg.norm(rows[0, :3] - rows[1, :3], axis=0), rtol=1e-14)
