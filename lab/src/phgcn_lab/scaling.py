r"""How time and memory of attention grow with the number of points: the paper's claim is that the
lattice is linear.

Measures as :mod:`phgcn_lab.rivals` does, with more sizes and fewer methods, each in its cheapest
setting.  Memory is what a forward with gradients holds at most beyond its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from . import scaling_report
from .experiment import check_names
from .results import Row
from .rivals.adapters import Rival
from .rivals.clouds import SPREADS, Place
from .rivals.run import Effort, Rivals
from .rivals.run import change as change_effort

METHODS = ("exact", "lattice", "separable", "pydensecrf2", "pykeops", "FlexAttention")
SIZES = tuple(factor * 10**power for power in range(3, 8) for factor in (1, 3))
SHAPE: dict[str, Any] = {"dims": (4,), "clouds": tuple(SPREADS), "channels": 32}


def full(device: str) -> Effort:
    if torch.device(device).type == "cuda":
        return Effort(SIZES[:9], rounds=3, limit=1.5, repeat_below=1.0, **SHAPE)
    return Effort(SIZES[:7], rounds=5, limit=20.0, repeat_below=10.0, **SHAPE)


def quick(device: str) -> Effort:
    if torch.device(device).type == "cuda":
        return Effort(SIZES[:5], rounds=3, limit=0.5, repeat_below=0.5, **SHAPE)
    return Effort(SIZES[:4], rounds=3, limit=2.0, repeat_below=1.0, **SHAPE)


def change(effort: Effort, sizes: Sequence[str] = (), clouds: Sequence[str] = ()) -> Effort:
    spreads = {spread: name for name, spread in SPREADS.items()}
    if clouds:
        check_names(clouds=(clouds, tuple(spreads)))
    return change_effort(effort, sizes=sizes, clouds=[spreads[cloud] for cloud in clouds])


@dataclass(frozen=True)
class Scaling(Rivals):
    kind: ClassVar[str] = "scaling"

    def rivals(self, place: Place) -> list[Rival]:
        """A method whose time does not depend on the cloud is measured on the first."""
        return [
            replace(rival, settings=rival.settings[:1])
            for rival in super().rivals(place)
            if rival.name in METHODS
            and (place.cloud == self.effort.clouds[0] or not rival.any_cloud)
        ]

    def report(self) -> Row:
        content, effort = self.joined(), self.effort
        rows = [line for row in content["rows"] for line in lines_of(row)]
        shape = {"dim": effort.dims[0], "channels": 2 * effort.channels, "sizes": effort.sizes}
        limits = {"rounds": effort.rounds, "longest": effort.limit}
        clouds = [SPREADS[cloud] for cloud in effort.clouds]
        content |= {"effort": {**shape, **limits, "clouds": clouds}, "rows": rows}
        content["fits"] = scaling_report.fits(rows)
        return {**content, "files": scaling_report.write(self.out, self.name, content)}


def lines_of(row: Row) -> Iterator[Row]:
    about = {"method": row["rival"], "cloud": SPREADS[row["cloud"]], "count": row["count"]}
    for kind in ("forward", "step"):
        if measured := row.get(kind):
            median, times = measured["seconds"], measured["times"]
            costs = {"median": median, "times": times, "bytes": measured["bytes"]}
            yield {**about, "kind": kind, **costs}
