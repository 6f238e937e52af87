r"""Whether two models differ, tested on the same splits.

Splits of one graph overlap: training sets share most of their nodes, so results of different splits
are not independent, and the ordinary paired t-test, which takes them for that, finds differences
where there are none.  The corrected resampled t-test (Nadeau and Bengio, *Inference for the
Generalization Error*, 2003) makes the variance of the mean larger by the share of test nodes over
that of training nodes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEST_OVER_TRAIN = {"paper": 20 / 60, "geom": 20 / 48}
"""How many test nodes there are for one training node, by protocol."""
LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """What the first of two models has more than the second, with a 95 % interval."""

    mean: float
    low: float
    high: float
    p: float
    splits: int

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    def row(self) -> dict[str, Any]:
        about = {"difference": self.mean, "low": self.low, "high": self.high}
        return {**about, "p": self.p, "splits": self.splits}


def paired(first: Sequence[float], second: Sequence[float], test_over_train: float) -> Difference:
    r"""Computes the corrected resampled t-test on differences :math:`d_k` of :math:`K` splits:

    .. math::
        t = \frac{\bar d}{\sqrt{(1/K + n_{test}/n_{train})\, s^2}}, \qquad
        K - 1 \text{ degrees of freedom}

    ``test_over_train`` 0 gives the ordinary paired t-test.
    """
    if len(first) != len(second):
        raise ValueError(f"second has {len(second)} splits; allowed: {len(first)}, as first")
    count = len(first)
    if count < 2:
        raise ValueError(f"first has {count} splits; allowed: 2 or more")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    mean = math.fsum(differences) / count
    error = math.sqrt((1 / count + test_over_train) * statistics.variance(differences))
    if error == 0:  # the same difference in every split
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, count)
    from scipy.stats import t as student

    reach = float(student.ppf(1 - LEVEL / 2, count - 1)) * error
    p = 2 * float(student.sf(abs(mean) / error, count - 1))
    return Difference(mean, mean - reach, mean + reach, p, count)


def paired_by_split(
    first: Mapping[int, float], second: Mapping[int, float], test_over_train: float
) -> Difference | None:
    """Tests the splits that both models have, if these are two or more."""
    both = [split for split in first if split in second]
    if len(both) < 2:
        return None
    return paired([first[k] for k in both], [second[k] for k in both], test_over_train)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values by Holm's method, which bounds the chance of any false discovery."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
