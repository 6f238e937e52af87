import math

import pytest

from phgcn_lab.significance import LEVEL, TEST_OVER_TRAIN, holm, paired

# differences 1, 2, 3, 4: mean 5/2, variance 5/3
FIRST, SECOND = [80.0, 82.0, 85.0, 83.0], [79.0, 80.0, 82.0, 79.0]


def two_sided(t):
    """Student's distribution with three degrees of freedom, in closed form."""
    u = t / math.sqrt(3)
    return 2 * (0.5 - (u / (1 + u * u) + math.atan(u)) / math.pi)


@pytest.mark.parametrize(("ratio", "variance"), [(0.0, 5 / 12), (1 / 3, (1 / 4 + 1 / 3) * 5 / 3)])
def test_the_test_is_that_of_a_case_done_by_hand(ratio, variance):
    found = paired(FIRST, SECOND, ratio)
    assert found.mean == 2.5 and found.splits == 4
    assert found.p == pytest.approx(two_sided(2.5 / math.sqrt(variance)), rel=1e-9)
    assert two_sided((found.high - 2.5) / math.sqrt(variance)) == pytest.approx(LEVEL, rel=1e-9)
    assert found.high - found.mean == pytest.approx(found.mean - found.low)


def test_the_correction_makes_differences_less_certain():
    plain, corrected = (paired(FIRST, SECOND, ratio) for ratio in (0.0, TEST_OVER_TRAIN["paper"]))
    assert plain.significant and not corrected.significant


def test_the_order_of_the_models_changes_the_sign_only():
    there, back = paired(FIRST, SECOND, 0.5), paired(SECOND, FIRST, 0.5)
    assert (there.mean, there.p) == (-back.mean, back.p)
    assert (there.low, there.high) == (-back.high, -back.low)


def test_equal_differences_are_certain():
    assert paired(FIRST, FIRST, 0.5).p == 1.0
    assert paired([2.0, 3.0], [1.0, 2.0], 0.5).p == 0.0


def test_splits_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="second has 3 splits; allowed: 4"):
        paired(FIRST, SECOND[:3], 0.5)
    with pytest.raises(ValueError, match="first has 1 splits; allowed: 2 or more"):
        paired([1.0], [2.0], 0.5)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []
