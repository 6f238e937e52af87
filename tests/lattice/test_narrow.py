"""Clouds below the resolution of a scheme's levels: levels follow their width."""

import math

import numpy as np
import pytest
import torch
from clouds import BACKENDS, forced, normal

from phgcn import global_attention
from phgcn.lattice.coefficients import narrow_weights
from phgcn.lattice.fit import fit_narrow
from phgcn.lattice.narrow import FIRST_STEPS, MAX_OCTAVES, STEPS, narrow_scheme, narrow_step, used_levels, widest_narrow
from phgcn.lattice.pairs import Levels
from phgcn.lattice.scheme import named_scheme


def attend(points, values, method):
    leaf = points.clone().requires_grad_()
    out = global_attention(leaf, values, decay=1.0, method=method)
    return out.detach(), torch.autograd.grad(out, leaf, normal(*values.shape, seed=9))[0]


def errors(points, method):
    """The error against the deviation of the exact output, and the cosine of the gradient with the exact one."""
    values = normal(len(points), 3, seed=2)
    (got, grad), (want, exact_grad) = attend(points, values, method), attend(points, values, "exact")
    cosine = torch.nn.functional.cosine_similarity(grad.flatten(), exact_grad.flatten(), dim=0)
    return float((got - want).norm() / (want - want.mean(dim=0)).norm()), float(cosine)


@pytest.mark.parametrize("spread", [1e-4, 3e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 0.5])
@pytest.mark.parametrize(("dim", "limit", "cosine"), [(2, 0.06, 0.97), (4, 0.08, 0.95), (6, 0.2, 0.88), (8, 0.35, 0.78)])
def test_the_error_does_not_depend_on_the_width(dim, limit, cosine, spread):
    """Levels that do not follow the width have an error of .55 at a spread of .1 in four dimensions."""
    error, direction = errors(normal(2000, dim, seed=1) * spread, "lattice")
    assert error < limit
    assert direction > cosine


@pytest.mark.parametrize("spread", [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 4.0])
def test_the_error_where_narrow_clouds_become_wide(spread):
    error, direction = errors(normal(2000, 4, seed=1) * spread, "lattice")
    assert error < 0.1
    assert direction > 0.9


@pytest.mark.parametrize("dim", [2, 4])
def test_wide_clouds_have_the_levels_of_their_scheme(dim):
    points, values = normal(6000, dim, seed=3) * 1.2, normal(6000, 2, seed=4)
    got, want = (global_attention(points, values, decay=1.0, method=m) for m in ("lattice", forced("lattice", dim, 0)))
    assert torch.equal(got, want)


@pytest.mark.parametrize("step", [0, 7, FIRST_STEPS, 3 * STEPS, 12 * STEPS])
def test_no_step_changes_the_output_much(step):
    points, values = normal(1000, 4, seed=5), normal(1000, 2, seed=6)
    width = float((points.amax(dim=0) - points.amin(dim=0)).norm())
    points *= widest_narrow(4) * 2 ** (-step / STEPS) / width
    scheme = named_scheme("lattice", 4)
    sides = []
    for scale in (1 + 1e-9, 1 - 1e-9):
        low, high = ((scale * points).numpy().min(axis=0), (scale * points).numpy().max(axis=0))
        sides.append((narrow_step(scheme, low, high), global_attention(scale * points, values, decay=1.0, method="lattice")))
    assert [number for number, _ in sides] == [step, step + 1]
    want = global_attention(points, values, decay=1.0, method="exact")
    assert (sides[0][1] - sides[1][1]).norm() / (want - want.mean(dim=0)).norm() < 0.03


@pytest.mark.parametrize("asked", [0, 20])
@pytest.mark.parametrize("dim, method", [(1, "lattice"), (2, "lattice-fine")])
def test_backends_agree_on_narrow_clouds(dim, method, asked):
    results = []
    for backend in BACKENDS:
        leaves = [normal(200, dim, seed=7) * 0.05, normal(200, 2, seed=8), normal(asked, dim, seed=9) * 0.05]
        leaves = [t.requires_grad_() for t in leaves[: 3 if asked else 2]]
        queries = leaves[2] if asked else None
        out = global_attention(*leaves[:2], decay=1.0, queries=queries, method=method, backend=backend)
        results.append([out, *torch.autograd.grad(out, leaves, normal(*out.shape, seed=10))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_a_narrow_graph_is_the_same_alone_and_beside_others():
    points, values = normal(600, 3, seed=11), normal(600, 2, seed=12)
    batch = torch.arange(600) % 2
    points[batch == 0] *= 0.01
    together = global_attention(points, values, decay=1.0, batch=batch, method="lattice")
    for graph in range(2):
        alone = global_attention(points[batch == graph], values[batch == graph], decay=1.0, method="lattice")
        assert torch.equal(together[batch == graph], alone)


def test_the_step_of_a_cloud():
    scheme, ones = named_scheme("lattice", 4), np.ones(4)
    half = widest_narrow(4) / 2 / math.sqrt(4)  # half the side of a box of the widest narrow diagonal
    assert narrow_step(scheme, -half * ones, half * ones) == 0
    assert narrow_step(scheme, -half / 2 * ones, half / 2 * ones) == STEPS
    assert narrow_step(scheme, -1e-12 * ones, 1e-12 * ones) == STEPS * MAX_OCTAVES
    assert narrow_step(scheme, ones, ones) == 0
    assert narrow_step(forced("lattice", 4, 0), -1e-3 * ones, 1e-3 * ones) == 0
    # Far from the origin, coordinates on finer levels would not fit a key.
    near, far = (narrow_step(scheme, offset * ones, (offset + 1e-3) * ones) for offset in (0.0, 1e6))
    assert 0 < far < near


def test_schemes_of_steps():
    scheme = named_scheme("lattice", 4)
    assert used_levels(scheme, 4, 2) == (scheme, 2)
    second = FIRST_STEPS + STEPS
    octave, fitted = narrow_scheme(scheme, 4, second), narrow_weights(scheme, 4)[1]
    assert used_levels(scheme, 4, -second) == (octave, 0)
    assert octave.spacing == scheme.spacing / 4
    assert octave.constant == pytest.approx(fitted.constant)
    assert [list(level) for level in octave.weights[:-1]] == [level.tolist() for level in fitted.weights]
    assert not any(octave.weights[-1])  # the next wider octave has no share
    # Beyond the fitted octaves the kernel is straight.
    wide, narrow = (narrow_scheme(scheme, 4, m * STEPS) for m in (15, 16))
    assert 1 - narrow.constant == pytest.approx((1 - wide.constant) / 2)
    assert narrow.weights[0] == pytest.approx([w / 2 for w in wide.weights[0]])


def test_the_fit_of_narrow_clouds_is_that_of_the_file():
    fit = fit_narrow(8, Levels(1.0, (1, 1, 1)))
    on_file = narrow_weights(named_scheme("lattice", 8), 8)
    assert [octave["constant"] for octave in fit["octaves"]] == pytest.approx([w.constant for w in on_file], abs=1e-6)
    for octave, weights in zip(fit["octaves"], on_file, strict=True):
        for got, want in zip(octave["weights"], weights.weights, strict=True):
            assert got == pytest.approx(want.tolist(), rel=1e-4, abs=1e-7)
