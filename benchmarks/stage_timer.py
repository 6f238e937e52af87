r"""Times the stages of a filter.  A stage is a file of a backend: clocks stand around every call from one file into another.

Not run by itself.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

WHOLE = "filter"
"""The file that calls all stages: its own time is what is between them."""


@dataclass
class Call:
    """A call of a stage: when it began and ended, and the call that it is part of."""

    stage: str
    outer: Call | None
    begin: Any = None
    end: Any = None


class StageTimer:
    """Times stages while it is entered; what a stage calls of another is that one's time.

    Args:
        package (str): The backend's package, such as ``"phgcn.lattice.numba"``.
        shared (tuple): Files outside of it that are stages too, such as ``"phgcn.runtime.graphs"``.
        now (callable): Reads the clock. (default: :func:`time.perf_counter`)
        milliseconds (callable): The time between two readings. (default: of seconds)
    """

    def __init__(
        self,
        package: str,
        shared: tuple[str, ...],
        now: Callable[[], Any] = time.perf_counter,
        milliseconds: Callable[[Any, Any], float] = lambda begin, end: 1000 * (end - begin),
    ) -> None:
        self.package, self.shared, self.now, self.milliseconds = package, shared, now, milliseconds
        self.calls: list[Call] = []
        self.current: Call | None = None
        self.patched: list[tuple[object, str, FunctionType]] = []

    def __enter__(self) -> StageTimer:
        for owner, name, function in list(stage_functions(self.package, self.shared)):
            self.patched.append((owner, name, function))
            setattr(owner, name, self._timed(function))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self.patched:
            setattr(owner, name, function)

    def _timed(self, function: FunctionType) -> Callable:
        stage = function.__module__.rsplit(".", 1)[1]

        @functools.wraps(function)
        def timed(*arguments: object, **named: object) -> object:
            outer = self.current
            if outer is not None and outer.stage == stage:
                return function(*arguments, **named)
            self.current = call = Call(stage, outer, begin=self.now())
            self.calls.append(call)
            try:
                return function(*arguments, **named)
            finally:
                call.end = self.now()
                self.current = outer

        return timed

    def stages(self) -> dict[str, float]:
        """Returns the milliseconds of each stage without those of stages within it."""
        times: dict[str, float] = defaultdict(float)
        for call in self.calls:
            taken = self.milliseconds(call.begin, call.end)
            times[call.stage] += taken
            if call.outer is not None:
                times[call.outer.stage] -= taken
        return dict(times)


def stage_functions(package: str, shared: tuple[str, ...]) -> Iterator[tuple[object, str, FunctionType]]:
    """Yields every place that holds a function of a stage: modules, which may have imported it, and classes."""
    files = [f"{package}.{file.name}" for file in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    stages = {*files, *shared} - {f"{package}.{WHOLE}"}
    for module in map(importlib.import_module, (*files, *shared)):
        for owner in (module, *classes_of(module)):
            for name, value in list(vars(owner).items()):
                if isinstance(value, FunctionType) and value.__module__ in stages and not name.startswith("__"):
                    yield owner, name, value


def classes_of(module: ModuleType) -> list[type]:
    """Returns the public classes of a module: those of the thread pool, which other threads call, are private."""
    public = (value for name, value in vars(module).items() if not name.startswith("_"))
    return [value for value in public if isinstance(value, type) and value.__module__ == module.__name__]
