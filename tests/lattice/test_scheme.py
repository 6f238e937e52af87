import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import phgcn.lattice.scheme
from phgcn.lattice import MultiScale, Separable
from phgcn.lattice.coefficients import multiscale_weights, separable_weights
from phgcn.lattice.scheme import LATTICE_METHODS, decode, encode, named_scheme
from phgcn.lattice.stencil import orbits

FITS = json.loads(Path(phgcn.lattice.scheme.__file__).with_name("coefficients.json").read_text())


@pytest.mark.parametrize(
    "scheme",
    [MultiScale(0.5, (2, 2), lattices=2, near_field=1), MultiScale(1, (1,), near_field=0, weights=((1, 0.5),)), 
     Separable(5, 1.4, (1, 0.5, 0.2)), Separable()],
)  # fmt: skip
def test_schemes_survive_being_written_as_text(scheme):
    assert decode(encode(scheme), 2) == scheme
    assert hash(decode(encode(scheme), 2)) == hash(scheme)


@pytest.mark.parametrize("method", LATTICE_METHODS)
@pytest.mark.parametrize("dim", range(1, 17))
def test_every_method_has_a_scheme_in_every_dimension(method, dim):
    scheme = named_scheme(method, dim)
    assert isinstance(scheme, Separable if method == "separable" else MultiScale)


def test_schemes_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        MultiScale(0.5, (2,)).spacing = 1.0


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: MultiScale(0.0, (2,)), r"spacing is 0.0; allowed: a positive number"),
        (lambda: MultiScale(float("nan"), (2,)), r"spacing is nan; allowed"),
        (lambda: MultiScale(0.5, ()), r"hops is \(\); allowed"),
        (lambda: MultiScale(0.5, (2, -1)), r"hops is \(2, -1\); allowed"),
        (lambda: MultiScale(0.5, (2,), lattices=3), r"lattices is 3; allowed: 1 or 2"),
        (lambda: MultiScale(0.5, (2,), near_field=1), r"near_field is 1; allowed: None or a level from 0 to 0"),
        (lambda: MultiScale(0.5, (2,), pairs=0), r"pairs is 0; allowed"),
        (lambda: MultiScale(0.5, (0, 0), near_field=0, weights=((1,),)), r"weights is .*; allowed: 2 levels"),
        (lambda: MultiScale(0.5, (0,), near_field=0, weights=((float("inf"),),)), r"weights is .*; allowed: finite"),
        (lambda: MultiScale(0.5, (0, 0), near_field=1, weights=((1,), (1,))), r"near_field is 1; allowed: 0 with weights"),
        (lambda: Separable(width=4), r"width is 4; allowed: a positive odd integer"),
        (lambda: Separable(spacing=-1.0), r"spacing is -1.0; allowed"),
        (lambda: Separable(width=3, weights=(1, 2, 3)), r"weights is .*; allowed: 2 numbers"),
        (lambda: Separable(width=3, weights=(1, float("nan"))), r"weights is .*; allowed: .*finite"),
    ],
)
def test_a_bad_scheme_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_own_weights_must_fit_the_dimension():
    scheme = MultiScale(0.5, (1,), near_field=0, weights=((1.0, 0.5),))
    assert multiscale_weights(scheme, 2).weights[0].tolist() == [1.0, 0.5]
    with pytest.raises(ValueError, match=r"weights\[0\] has 2 entries; allowed: 3, one per orbit of 1 hops in 4 dimensions"):
        multiscale_weights(scheme, 4)


@pytest.mark.parametrize("dim", range(1, 9))
@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
def test_named_lattices_are_fitted(method, dim):
    scheme = named_scheme(method, dim)
    (fit,) = [f for f in FITS["multiscale"] if (f["dim"], f["spacing"], tuple(f["hops"])) == (dim, scheme.spacing, scheme.hops)]
    for weights, hops in zip(fit["weights"], scheme.hops, strict=True):
        assert len(weights) == len(orbits(dim, hops))
        assert min(weights) >= 0
    assert len(fit["near"]["amplitude"]) == len(scheme.hops) - 1
    assert np.isfinite(np.concatenate(fit["near"]["amplitude"])).all()


@pytest.mark.parametrize("dim", range(1, 9))
def test_the_papers_filter_is_fitted(dim):
    (fit,) = [f for f in FITS["separable"] if f["dim"] == dim]
    spacing, weights, scale = separable_weights(Separable(), dim)
    assert (spacing, weights.tolist(), scale) == (fit["spacing"], fit["weights"], fit["scale"])
    assert len(weights) == 4
    assert (weights > 0).all()


@pytest.mark.parametrize("dim", range(1, 9))
def test_a_points_weights_within_its_simplex_are_those_of_the_stencil(dim):
    fitted = multiscale_weights(named_scheme("lattice", dim), dim)
    tables = fitted.simplex_tables(dim)
    for table, weights in zip(tables, fitted.weights, strict=True):
        # Steps s and D+1-s along a simplex lead to vertices of one orbit.
        np.testing.assert_array_equal(table[1:], table[1:][::-1])
        assert table[0] == weights[0]
        assert set(table) <= {*weights, 0.0}
