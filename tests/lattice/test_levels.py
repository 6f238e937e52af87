from phgcn.lattice import MultiScale
from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.levels import CANDIDATES, finest_level


def test_the_finest_level_is_the_coarsest_with_few_pairs():
    scheme = MultiScale(0.5, (2, 2, 2, 2), pairs=150)
    fitted = multiscale_weights(scheme, 4)
    assert finest_level(scheme, fitted, lambda radius: 1000.0) == 0
    assert finest_level(scheme, fitted, lambda radius: 100.0 if radius < 3 else 151.0) == 1
    assert finest_level(scheme, fitted, lambda radius: 150.0) == 3
    # What the near field would look at counts, too.
    assert finest_level(scheme, fitted, lambda radius: 1.0, lambda radius: CANDIDATES + (radius > 3)) == 1
    fixed = MultiScale(0.5, (2, 2, 2, 2), near_field=2)
    assert finest_level(fixed, fitted, lambda radius: 1000.0) == 2
