r"""Section ``stages`` of ``benchmarks/gpu.py``: where the time of a forward and of a backward goes.

A stage is a file of ``phgcn.lattice.triton``.  Events stand around every call from one file into another.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType

import torch
from gpu_common import DEVICE, cloud, features, step

import phgcn.lattice.triton
from phgcn.functional import global_attention

PACKAGE = phgcn.lattice.triton.__name__
WHOLE = "filter"
"""The file that calls all stages: its own time is what is between them."""

ROUNDS = 5


@dataclass
class Call:
    """A call of a stage: its events, and the call that it is part of."""

    stage: str
    begin: torch.cuda.Event
    end: torch.cuda.Event
    outer: Call | None


class Stages:
    """Times stages while it is entered; what a stage calls of another is that one's time."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.current: Call | None = None
        self.patched: list[tuple[object, str, FunctionType]] = []

    def __enter__(self) -> Stages:
        for owner, name, function in list(stage_functions()):
            self.patched.append((owner, name, function))
            setattr(owner, name, self._timed(function))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self.patched:
            setattr(owner, name, function)

    def _timed(self, function: FunctionType) -> Callable:
        stage = function.__module__.rsplit(".", 1)[1]

        @functools.wraps(function)
        def call(*arguments: object, **named: object) -> object:
            outer = self.current
            if outer is not None and outer.stage == stage:
                return function(*arguments, **named)
            self.current = Call(stage, *(torch.cuda.Event(enable_timing=True) for _ in range(2)), outer)
            self.calls.append(self.current)
            self.current.begin.record()
            try:
                return function(*arguments, **named)
            finally:
                self.current.end.record()
                self.current = outer

        return call

    def milliseconds(self) -> dict[str, float]:
        """Returns the time of each stage without that of stages within it."""
        torch.cuda.synchronize()
        times: dict[str, float] = defaultdict(float)
        for call in self.calls:
            taken = call.begin.elapsed_time(call.end)
            times[call.stage] += taken
            if call.outer is not None:
                times[call.outer.stage] -= taken
        return dict(times)


def stage_functions() -> Iterator[tuple[object, str, FunctionType]]:
    """Yields every place that holds a function of a stage: modules, which may have imported it, and classes."""
    modules = [
        importlib.import_module(f"{PACKAGE}.{found.name}") for found in pkgutil.iter_modules(phgcn.lattice.triton.__path__)
    ]
    for module in modules:
        for owner in (module, *classes_of(module)):
            for name, value in list(vars(owner).items()):
                if isinstance(value, FunctionType) and value.__module__.startswith(f"{PACKAGE}.") and not name.startswith("__"):
                    if value.__module__ != f"{PACKAGE}.{WHOLE}":
                        yield owner, name, value


def classes_of(module: ModuleType) -> list[type]:
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


def stages(quick: bool) -> Iterator[dict]:
    """Times the stages of a forward, and of a forward with backward."""
    for method in ("separable", "lattice"):
        for count in (20_000,) if quick else (100_000, 1_000_000):
            for name in ("spread 1", "spread 3", "spread 10"):
                points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                forward = partial(global_attention, points, values, decay=1.0, method=method)
                for kind, call in {"forward": forward, "both": partial(step, points, values, method)}.items():
                    row = {"method": method, "count": count, "cloud": name, "kind": kind, **fastest_stages(call)}
                    longest_first = sorted(row["stages"].items(), key=lambda part: -part[1])
                    text = ", ".join(f"{stage} {ms:.2f}" for stage, ms in longest_first)
                    print(
                        f"{method} N={count:,} {name} {kind}: {row['ms']:.2f} ms: {text}, between {row['between']:.2f}",
                        flush=True,
                    )
                    yield row


def fastest_stages(call: Callable[[], object]) -> dict:
    """Returns the milliseconds of the fastest of several calls, of its stages, and of what is between them."""
    call()
    runs = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with Stages() as timed:
            begin.record()
            call()
            end.record()
            end.synchronize()
        runs.append((begin.elapsed_time(end), timed))
    whole, timed = min(runs, key=lambda run: run[0])
    times = timed.milliseconds()
    return {"ms": whole, "stages": times, "between": whole - sum(times.values())}
