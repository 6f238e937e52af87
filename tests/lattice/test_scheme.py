import dataclasses

import pytest

from phgcn.lattice import Ladder, Separable
from phgcn.lattice.scheme import LATTICE_METHODS, MAX_DIMENSION, decode, encode, named_scheme
from phgcn.lattice.separable import separable_weights


@pytest.mark.parametrize(
    "scheme",
    [
        Ladder(),
        Ladder(pairs=0, fineness=0.2),
        Ladder(reach=2.0),
        Separable(1.4, (1, 0.5, 0.2)),
        Separable(),
    ],
)
def test_schemes_survive_being_written_as_text(scheme):
    assert decode(encode(scheme)) == scheme
    assert hash(decode(encode(scheme))) == hash(scheme)


@pytest.mark.parametrize("method", LATTICE_METHODS)
def test_every_method_has_a_scheme(method):
    assert isinstance(named_scheme(method), Separable if method == "separable" else Ladder)
    assert decode(method) == named_scheme(method)


def test_schemes_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Ladder().pairs = 1


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Ladder(pairs=-1), r"pairs is -1; allowed: an integer of at least 0"),
        (lambda: Ladder(pairs=1.5), r"pairs is 1.5; allowed"),
        (lambda: Ladder(reach=0.0), r"reach is 0.0; allowed: a positive number"),
        (lambda: Ladder(fineness=float("nan")), r"fineness is nan; allowed"),
        (lambda: Separable(spacing=-1.0), r"spacing is -1.0; allowed"),
        (lambda: Separable(weights=()), r"weights is \(\); allowed: .*finite"),
        (lambda: Separable(weights=(1, float("nan"))), r"weights is .*; allowed: .*finite"),
        (lambda: named_scheme("fast"), r"method is 'fast'; allowed for a lattice: 'lattice'"),
    ],
)
def test_a_bad_scheme_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("dim", range(1, MAX_DIMENSION + 1))
def test_the_papers_filter_has_a_width_of_seven(dim):
    spacing, weights, scale = separable_weights(Separable(), dim)
    assert len(weights) == 4 and weights[0] == 1 and (weights > 0).all()
    assert spacing > 0 and scale == pytest.approx(1, abs=0.25)


def test_own_weights_are_taken_as_they_are():
    spacing, weights, scale = separable_weights(Separable(1.1, (1, 0.5)), 3)
    assert (spacing, weights.tolist(), scale) == (1.1, [1, 0.5], 1.0)
