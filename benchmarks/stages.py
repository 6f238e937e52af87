r"""Where the time of a forward goes, stage by stage, beside the floor: the bytes that a stage must move at copy speed.

    python benchmarks/stages.py              # half a minute
    python benchmarks/stages.py --quick      # a small cloud, to see that it works

Prints a table per method and cloud, stage -> ms, floor ms, times the floor; writes ``benchmarks/results/stages.json``.
Every kernel is wrapped in a timer.  The floor counts what it is given and what it returns once each, however often it
reads them, at the speed of a large copy on all cores measured in the same run.  Of several forwards the fastest counts.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import pkgutil
import time
from collections import defaultdict
from collections.abc import Callable

import common
import numpy as np
import torch
from rich.progress import track
from rich.table import Table

import phgcn
import phgcn.lattice.numba

COUNT = 200_000
QUICK_COUNT = 20_000
DIM = 4
CHANNELS = 17
SPREADS = (1, 3, 10)
METHODS = ("lattice", "separable")
ROUNDS = 7
COPY_BYTES = 2**28

STAGES = {
    "pack and unpack rows": ("pack_points", "pack_values", "unpack_values", "unpack_columns", "beside"),
    "coordinates and keys": ("kuhn_coordinates", "extent", "cube_keys"),
    "sort": ("radix_sort",),
    "runs of equal keys": ("runs", "run_starts"),
    "simplices": ("locate",),
    "corners of cubes": ("count_corners", "list_corners", "take_runs"),
    "coarser vertices and segments": ("parents", "segments", "take", "take_halves", "take_rows"),
    "splat": ("splat",),
    "gather": ("gather",),
    "blur": ("blur",),
    "add coarser levels": ("add_coarser",),
    "slice": ("slice_points",),
    "self term": ("self_weights", "add_scaled"),
    "near field": ("coordinate_lines", "near_pairs", "add_rows_at"),
}
"""The kernels of each stage; one that is in none is a stage of its own."""

BETWEEN = "between kernels"


# Floors: bytes by stage, from the sizes of a kernel's arrays, which it gets by the names of its parameters


def given_and_returned(arrays: dict[str, object]) -> int:
    """All that a kernel is given and returns, once."""
    return sum(size_of(value) for value in arrays.values())


def updated(*names: str) -> Callable[[dict[str, object]], int]:
    """As above, and what is updated in place is written as well as read."""
    return lambda arrays: given_and_returned(arrays) + sum(size_of(arrays.get(name)) for name in names)


def taken(arrays: dict[str, object]) -> int:
    """The places, and what is read there and written: as much as is returned."""
    return size_of(arrays.get("index")) + 2 * size_of(arrays["returned"])


def packed(arrays: dict[str, object]) -> int:
    """Entries and their order, read, and what is returned."""
    source = next(value for name, value in arrays.items() if name in ("points", "values"))
    return size_of(source) + size_of(arrays.get("order")) + size_of(arrays["returned"])


def near(arrays: dict[str, object]) -> int:
    """Points and rows read once and sums written once; where targets are sources, they count once."""
    same = arrays.get("target") is arrays.get("source")
    return given_and_returned(arrays) - (size_of(arrays.get("target")) if same else 0)


FLOORS: dict[str, Callable[[dict[str, object]], int]] = {
    "pack_points": packed,
    "pack_values": packed,
    "take": taken,
    "take_halves": taken,
    "take_rows": taken,
    "add_coarser": updated("out"),
    "slice_points": updated("out"),
    "add_scaled": updated("out"),
    "add_rows_at": updated("out"),
    "near_pairs": near,
}


def size_of(value: object) -> int:
    """The bytes of an array, or of the arrays of a tuple."""
    if isinstance(value, np.ndarray):
        return value.size * value.itemsize
    return sum(size_of(item) for item in value) if isinstance(value, tuple) else 0


def copy_speed() -> float:
    """Bytes read and written per second by a large copy on all cores: the best of several."""
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / min(common.seconds(lambda: target.copy_(source)) for _ in range(8))


# Timers around the kernels


class Stages:
    """Times every kernel of the CPU backend while it is entered: ``time`` and ``floor`` by stage."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.time: dict[str, float] = defaultdict(float)
        self.floor: dict[str, float] = defaultdict(float)
        self.stage = {kernel: stage for stage, kernels in STAGES.items() for kernel in kernels}

    def __enter__(self) -> Stages:
        self.patched = []
        for module in cpu_modules():
            for name, value in list(vars(module).items()):
                if is_kernel(value):
                    self.patched.append((module, name, value))
                    setattr(module, name, self._timed(value))
        return self

    def __exit__(self, *_: object) -> None:
        for module, name, value in self.patched:
            setattr(module, name, value)

    def _timed(self, kernel: Callable) -> Callable:
        name = kernel.py_func.__name__
        stage, floor = self.stage.get(name, name), FLOORS.get(name, given_and_returned)
        signature = inspect.signature(kernel.py_func)

        @functools.wraps(kernel.py_func)
        def call(*arguments: object, **named: object) -> object:
            begin = time.perf_counter()
            returned = kernel(*arguments, **named)
            self.time[stage] += time.perf_counter() - begin
            arrays = {**signature.bind(*arguments, **named).arguments, "returned": returned}
            self.floor[stage] += floor(arrays) / self.speed
            return returned

        return call


def cpu_modules() -> list:
    """All modules of the CPU backend: some hold kernels of others under names of their own."""
    package = phgcn.lattice.numba
    return [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]


def is_kernel(value: object) -> bool:
    """Whether this is a compiled kernel, called from Python; helpers inlined into kernels are not."""
    options = getattr(value, "targetoptions", None)
    return hasattr(value, "py_func") and options is not None and options.get("inline", "never") != "always"


def measure(count: int, spread: float, method: str, speed: float, rounds: int) -> dict[str, dict]:
    """The stages of the fastest of several forwards: milliseconds, floor, and times the floor."""
    points, values = common.cloud(f"spread {spread}", count, DIM), common.random_features(count, CHANNELS)
    phgcn.global_attention(points, values, decay=1.0, method=method)  # compiles before anything is wrapped
    runs = []
    for _ in range(rounds):
        with Stages(speed) as stages:
            whole = common.seconds(lambda: phgcn.global_attention(points, values, decay=1.0, method=method))
        runs.append((whole, stages))
    whole, fastest = min(runs, key=lambda run: run[0])
    # The least that all must do: read points and values, write the output.
    floors = {**fastest.floor, "all": 4 * count * (DIM + 2 * CHANNELS) / speed}
    times = {**fastest.time, BETWEEN: whole - sum(fastest.time.values()), "all": whole}
    known = [stage for stage in STAGES if stage in times]
    return {stage: entry(times[stage], floors.get(stage)) for stage in [*known, *(s for s in times if s not in STAGES)]}


def entry(taken_by: float, floor: float | None) -> dict:
    return {"ms": 1000 * taken_by, "floor_ms": floor and 1000 * floor, "times_floor": floor and taken_by / floor}


def table_of(found: dict[str, dict], title: str) -> Table:
    table = Table(title=title)
    for heading in ("stage", "ms", "floor ms", "times the floor"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for stage, e in found.items():
        floor = (f"{e['floor_ms']:.2f}", f"{e['times_floor']:.1f}") if e["floor_ms"] else ("", "")
        table.add_row(stage, f"{e['ms']:.1f}", *floor, style="bold" if stage == "all" else None)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small cloud")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"forwards to take the fastest of (default: {ROUNDS})")
    parser.add_argument("--out", default=common.RESULTS / "stages.json", help="where the JSON goes")
    options = parser.parse_args()
    count = QUICK_COUNT if options.quick else COUNT
    console, speed = common.wide_console(), copy_speed()
    cases = [(method, spread) for method in METHODS for spread in SPREADS]
    found = {
        f"{method}, spread {spread}": measure(count, spread, method, speed, options.rounds)
        for method, spread in track(cases, description="measuring (the first compiles kernels)", console=console)
    }
    for name, stages in found.items():
        console.print(table_of(stages, f"{name}: N={count:,}, C={CHANNELS}, D={DIM}, float32"))
    console.print(
        f"A copy moves {speed / 1e9:.1f} GB/s, read and written bytes together. The floor of 'all' is that of reading points "
        "and values and writing the output. Blur and near field compute more than they move, and are far from it for that. "
        "A stage below its floor finds its arrays in the cache."
    )
    content = {"provenance": common.provenance(), "count": count, "channels": CHANNELS, "dim": DIM}
    common.write_json(options.out, {**content, "copy_bytes_per_second": speed, "stages": found})
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
