r"""Section ``stages`` of ``benchmarks/gpu.py``: each stage beside the bytes that it is given and returns, at copy speed."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from gpu_common import DEVICE, cloud, copy_speed, features, step
from torch import Tensor

from phgcn.functional import global_attention
from phgcn.lattice import groups


def size_of(value: object) -> int:
    """The bytes of a tensor, or of those in a list or a dataclass."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(size_of(getattr(value, f.name)) for f in dataclasses.fields(value))
    return 0


BOUNDS: dict[str, Callable[[tuple], tuple | None]] = {
    "blur_slab": lambda given: (given[4][given[2].levels], *given[6:7], given[1].size(1)) if given[5] else None,
    "neighbours": lambda given: None if given[2] is None else (given[2][0], given[4], given[5] - given[4]),
    "sum_runs": lambda given: None if len(given) < 9 or given[8] is None else (given[8][0], 0, given[4]),
}
"""Of functions that may be given a bound of how many vertices there are: how many there are, on the device, the first that
they take, and how many they may take."""


def share(bound: tuple | None) -> float:
    """The share of vertices that are there."""
    if bound is None:
        return 1.0
    there, *begin, most = bound
    return min(max(int(there) - sum(begin), 0), most) / max(1, most)


class Stages:
    """Times stages with events while it is entered; what a stage's own stages take is not counted twice."""

    def __init__(self) -> None:
        from phgcn.lattice.triton import backend, blurring, clouds, keys, lattice, levels, near

        self.calls: list[tuple[str, torch.cuda.Event, torch.cuda.Event, int, int, tuple | None]] = []
        self.open: list[int] = []
        self.places = [
            (backend, "find_clouds", "clouds"),
            (lattice, "survey", "survey"),
            (lattice, "choose_levels", "finest level: rest"),
            (levels, "sort_keys", "sort"),
            (lattice, "locate", "locate"),
            (lattice, "find_runs", "runs: rest"),
            (keys, "sort_keys", "sort"),
            (lattice, "coarser_keys", "coarser keys"),
            (backend, "make_plan", "plan: rest"),
            (lattice, "sum_runs", "splat and restrict"),
            (clouds, "sum_runs", "cloud sums"),
            (blurring, "index_keys", "neighbours: index"),
            (lattice, "index_keys", "neighbours: index"),
            (blurring, "neighbours", "neighbours"),
            (lattice, "neighbours", "neighbours"),
            (blurring, "blur_slab", "blur"),
            (lattice, "blur_slab", "blur"),
            (lattice, "add_coarser", "add coarser"),
            (near, "cell_keys", "near field: cells"),
            (near, "sort_keys", "near field: sort"),
            (near.NearField, "_runs", "near field: runs"),
            (near.NearField, "_add", "near field: pairs"),
            (backend, "gradient_rows", "gradient rows"),
            (backend, "slice_points", "slice"),
            (backend, "slice_gradients", "slice gradients"),
        ]

    def __enter__(self) -> Stages:
        self.before = [getattr(place, name) for place, name, _ in self.places]
        for (place, name, stage), function in zip(self.places, self.before, strict=True):
            setattr(place, name, self._timed(stage, function))
        return self

    def __exit__(self, *_: object) -> None:
        for (place, name, _), function in zip(self.places, self.before, strict=True):
            setattr(place, name, function)

    def _timed(self, stage: str, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*given: object, **named: object) -> object:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            mine, above = len(self.calls), self.open[-1] if self.open else -1
            self.calls.append((stage, begin, end, above, 0, None))
            self.open.append(mine)
            begin.record()
            try:
                returned = function(*given, **named)
            finally:
                end.record()
                self.open.pop()
            # What a stage with stages of its own is given, these are given too.
            moved = 0 if stage.endswith(": rest") else size_of(given) + size_of(list(named.values())) + size_of(returned)
            bound = BOUNDS[function.__name__](given) if function.__name__ in BOUNDS else None
            self.calls[mine] = (stage, begin, end, above, moved, bound)
            return returned

        return call

    def times(self) -> dict[str, tuple[float, int]]:
        """Milliseconds and bytes by stage."""
        torch.cuda.synchronize()
        taken = [begin.elapsed_time(end) for _, begin, end, _, _, _ in self.calls]
        own = list(taken)
        for (_, _, _, above, _, _), t in zip(self.calls, taken, strict=True):
            if above >= 0:
                own[above] -= t
        out: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        for (stage, _, _, _, moved, bound), t in zip(self.calls, own, strict=True):
            out[stage] = (out[stage][0] + t, out[stage][1] + round(moved * share(bound)))
        return dict(out)


def stages(quick: bool) -> Iterator[dict]:
    """The stages of a forward and of a backward."""
    copy = copy_speed()
    limit, groups.EXACT_PAIRS_CUDA = groups.EXACT_PAIRS_CUDA, 0
    try:
        for method in ("separable", "lattice"):
            for count in (20_000,) if quick else (100_000, 1_000_000):
                for name in ("spread 1", "spread 3", "spread 10"):
                    points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                    for kind, call in (("forward", lambda: global_attention(points, values, decay=1.0, method=method)),  # noqa: B023
                                       ("both", lambda: step(points, values, method))):  # noqa: B023  # fmt: skip
                        yield measure_stages(method, count, name, kind, call, copy)
    finally:
        groups.EXACT_PAIRS_CUDA = limit


def measure_stages(method: str, count: int, name: str, kind: str, call: Callable, copy: float) -> dict:
    """The stages of the fastest of several calls."""
    call()
    best, fastest = None, float("inf")
    for _ in range(5):
        with Stages() as timed:
            (whole,) = milliseconds_once(call)
        if whole < fastest:
            best, fastest = timed.times(), whole
    assert best is not None
    named = {stage: {"ms": t, "floor": moved / copy * 1000} for stage, (t, moved) in best.items()}
    rest = fastest - sum(t for t, _ in best.values())
    parts = [(stage, entry["ms"], entry["floor"]) for stage, entry in named.items()]
    text = ", ".join(f"{s} {t:.2f} ({f:.2f})" for s, t, f in sorted(parts, key=lambda p: -p[1]) if t > 0.005 * fastest)
    print(f"{method} N={count:,} {name} {kind}: {fastest:.2f} ms: {text}, between {rest:.2f}", flush=True)
    return {"method": method, "count": count, "cloud": name, "kind": kind, "ms": fastest, "between": rest, "stages": named}


def milliseconds_once(call: Callable) -> list[float]:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return [begin.elapsed_time(end)]
