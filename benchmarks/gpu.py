r"""The filter on one GPU: is it right, how long does it take, where does the time go.

    python benchmarks/gpu.py                          # all sections, a few minutes
    python benchmarks/gpu.py --sections check,speed   # some of them
    python benchmarks/gpu.py --quick                  # small clouds, to see that it works

Sections: ``check`` (against the plain torch reference on the CPU, float32 and float64, forward and backward; the same bits
from run to run; a batch against its graphs alone), ``speed`` (the marks), ``stages`` (each stage beside the bytes that it is
given and returns, at copy speed), ``crossing`` (exact against lattice), ``large`` (ten million points, and the memory),
``memory`` (out of memory is torch's error, and the process goes on), ``tiny`` (one small filter and its gradient, for
compute-sanitizer).  Needs torch, Triton and NumPy alone: ``PYTHONPATH=src``.  Medians with CUDA events; prints tables, writes
``benchmarks/results/gpu.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import torch
from torch import Tensor

from phgcn.functional import global_attention, permutohedral_filter
from phgcn.lattice import MultiScale, Separable, groups

SECTIONS = ("check", "speed", "stages", "crossing", "large", "memory")
DEVICE = "cuda"
DIM, CHANNELS = 4, 64
ROUNDS = 15
RESULTS = Path(__file__).resolve().parent / "results"
MARKS = {
    ("separable", 100_000, "spread 1"): 1.0,
    ("separable", 100_000, "spread 10"): 1.0,
    ("separable", 1_000_000, "spread 1"): 4.0,
    ("separable", 1_000_000, "spread 10"): 20.0,
    ("lattice", 100_000, "spread 1"): 3.0,
    ("lattice", 100_000, "spread 10"): 3.0,
    ("lattice", 1_000_000, "spread 1"): 15.0,
    ("lattice", 1_000_000, "spread 10"): 60.0,
    ("exact", 100_000, "spread 1"): 15.0,
}
"""Milliseconds that a forward with the build may take."""


def cloud(name: str, count: int, dim: int = DIM, dtype: torch.dtype = torch.float32) -> Tensor:
    """Points as in ``benchmarks/common.py``: a Gaussian of some spread, or six clusters."""
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(count, dim, generator=random, dtype=torch.float32)
    if name == "clusters":
        centres = 10 * torch.randn(6, dim, generator=random)
        return (centres[torch.randint(6, (count,), generator=random)] + noise).to(dtype)
    return (float(name.split()[1]) * noise).to(dtype)


def features(count: int, channels: int = CHANNELS, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, channels, generator=torch.Generator().manual_seed(seed)).to(dtype)


def milliseconds(call: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The times of a call, after two to warm up."""
    times = []
    for number in range(rounds + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if number > 1:
            times.append(begin.elapsed_time(end))
    return times


def copy_speed() -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.ones(2**28, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / (statistics.median(milliseconds(lambda: target.copy_(source))) / 1000)


# Is it right


def relative(got: Tensor, want: Tensor) -> float:
    got, want = got.detach().cpu().double(), want.detach().cpu().double()
    return float((got - want).norm() / want.norm().clamp_min(1e-300))


def outputs(inputs: dict, device: str, dtype: torch.dtype, backend: str, call: Callable, **options: object) -> list[Tensor]:
    """The output and all gradients."""
    leaves = {k: v.to(device, dtype).requires_grad_() for k, v in inputs.items() if v.is_floating_point()}
    indices = {k: v.to(device) for k, v in inputs.items() if not v.is_floating_point()}
    out = call(**leaves, **indices, backend=backend, **options)
    grad = features(out.numel(), 1, 9).reshape(out.shape).to(device, dtype)
    return [out.detach(), *torch.autograd.grad(out, list(leaves.values()), grad)]


def small(dim: int, near: int, lattices: int = 1) -> MultiScale:
    """A named scheme that uses the lattice for clouds of any size."""
    from phgcn.lattice.scheme import named_scheme

    return dataclasses.replace(named_scheme("lattice", dim), near_field=near, lattices=lattices)


@dataclasses.dataclass
class Case:
    """A call that is checked: its inputs, the function, the method, the types, and by what factor its errors may be larger."""

    inputs: dict[str, Tensor]
    call: Callable
    method: object
    types: tuple[torch.dtype, ...] = (torch.float32,)
    slack: float = 1.0


def check_cases(quick: bool) -> dict[str, Case]:
    """Every kind of filter, in few dimensions and types: each compiles kernels of its own, which takes longer than the rest."""
    cases: dict[str, Case] = {}
    both = (torch.float64, torch.float32)
    for dim in (2,) if quick else (2, 4, 1, 3, 5):
        base = {"positions": cloud("spread 1.5", 60, dim).reshape(30, 2, dim), "values": features(60, 3).reshape(30, 2, 3)}
        graphs = {"batch": torch.arange(30) * 7 % 5 % 3}
        asked = {"queries": cloud("spread 1", 22, dim).reshape(11, 2, dim), "query_batch": torch.arange(11) % 3}
        types = both if dim == 2 else both[1:]
        last = len(small(dim, 0).hops) - 1
        kinds: dict[str, object] = {"separable": Separable(), f"near field {last}": small(dim, last)}
        if dim in (2, 4):
            kinds |= {"exact": "exact", "all levels": small(dim, 0), "near field 1": small(dim, 1)}
            kinds |= {"two lattices": small(dim, 1, 2)}
        for kind, method in kinds.items():
            cases[f"D={dim} {kind}, graphs and heads"] = Case({**base, **graphs}, global_attention, method, types)
            if dim in (2, 4):
                cases[f"D={dim} {kind}, queries"] = Case({**base, **graphs, **asked}, global_attention, method, types)
        cases[f"D={dim} separable, plain sum"] = Case(base, permutohedral_filter, Separable(), types)
    for spread in (0.3, 3.0, 30.0):
        many = {"positions": cloud(f"spread {spread}", 2000, 2), "values": features(2000, 3)}
        cases[f"D=2 lattice, 2000 points of spread {spread}"] = Case(many, global_attention, "lattice")
    far = {"positions": cloud("spread 1", 60, 4), "values": features(60, 3)}
    far["positions"][7] = 1e6
    cases["D=4 separable, an outlier, wide keys"] = Case(far, global_attention, Separable())
    alike = {"positions": torch.ones(50, 2), "values": features(50, 3)}
    cases["D=2 separable, all alike"] = Case(alike, global_attention, Separable())
    return cases


def check(quick: bool) -> dict:
    """Against the reference on the CPU; bits of runs and batches."""
    found, wrong = {}, 0
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4}
    limit, groups.EXACT_PAIRS_CUDA = groups.EXACT_PAIRS_CUDA, groups.EXACT_PAIRS
    try:
        for name, case in check_cases(quick).items():
            begin = time.perf_counter()
            options = {"method": case.method, "decay": 1.0}
            want = outputs(case.inputs, "cpu", torch.float64, "reference", case.call, **options)
            between, row = time.perf_counter(), {}
            for dtype in case.types:
                try:
                    got = outputs(case.inputs, DEVICE, dtype, "triton", case.call, **options)
                    errors = [relative(a, b) for a, b in zip(got, want, strict=True) if float(b.norm()) > 0]
                except Exception as error:  # said, counted, and the other cases still run
                    print(f"FAILED {name} {dtype}: {type(error).__name__} {error}"[:1500], flush=True)
                    errors = [float("nan")]
                row[str(dtype)] = max(errors, key=lambda e: float("inf") if e != e else e)
                if not row[str(dtype)] < tolerance[dtype] * case.slack:
                    wrong += 1
                    print(f"WRONG {name} {dtype}: {errors}", flush=True)
            found[name] = row
            taken = f"{between - begin:.1f} s on the CPU, {time.perf_counter() - between:.1f} s on the GPU with compiling"
            print(f"{name}: {row}, {taken}", flush=True)
    finally:
        groups.EXACT_PAIRS_CUDA = limit
    print(f"check: {len(found)} cases, {wrong} wrong", flush=True)
    same = same_bits(20_000 if quick else 200_000)
    print("same bits:", same, flush=True)
    return {"cases": found, "wrong": wrong, "same_bits": same}


def same_bits(count: int) -> dict[str, bool]:
    """The same bits from run to run, and alone as in a batch."""
    found = {}
    limit, groups.EXACT_PAIRS_CUDA = groups.EXACT_PAIRS_CUDA, 0
    try:
        for method in ("separable", "lattice"):
            for name in ("spread 1", "spread 10"):
                given = {"positions": cloud(name, count), "values": features(count, 16)}
                run = functools.partial(
                    outputs, device=DEVICE, dtype=torch.float32, backend="triton", call=global_attention, method=method
                )
                first = run(given)
                found[f"{method}, {name}, two runs"] = all(map(torch.equal, first, run(given)))
                batch = torch.arange(count) * 7 % 3 % 2
                together = run({**given, "batch": batch})
                for graph in range(2):
                    part = {k: v[batch == graph] for k, v in given.items()}
                    own = (batch == graph).to(DEVICE)
                    grad = features(count * 16, 1, 9).reshape(count, 16)[batch == graph].to(DEVICE)
                    leaves = [v.to(DEVICE).requires_grad_() for v in part.values()]
                    out = global_attention(*leaves, method=method)
                    alone = [out.detach(), *torch.autograd.grad(out, leaves, grad)]
                    equal = all(torch.equal(a[own], b) for a, b in zip(together, alone, strict=True))
                    found[f"{method}, {name}, graph {graph} alone"] = equal
    finally:
        groups.EXACT_PAIRS_CUDA = limit
    return found


# How long does it take


def step(points: Tensor, values: Tensor, method: object) -> None:
    """A forward and a backward to positions and values."""
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = global_attention(*leaves, decay=1.0, method=method)
    torch.autograd.grad(out, leaves, torch.ones_like(out))


def speed(quick: bool) -> list[dict]:
    """Forward, and forward with backward, for every method, size and cloud."""
    rows, copy = [], copy_speed()
    sizes = (20_000, 50_000) if quick else (100_000, 1_000_000)
    print(f"copy: {copy / 1e12:.2f} TB/s", flush=True)
    limit, groups.EXACT_PAIRS_CUDA = groups.EXACT_PAIRS_CUDA, 0
    try:
        for method in ("separable", "lattice", "lattice-fine", "exact"):
            for count in sizes:
                if method == "exact" and count > 100_000:
                    continue
                for name in ("spread 1", "spread 3", "spread 10", "clusters"):
                    if method == "exact" and name != "spread 1":
                        continue
                    points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                    forward = milliseconds(lambda p=points, f=values, m=method: global_attention(p, f, decay=1.0, method=m))
                    both = milliseconds(lambda p=points, f=values, m=method: step(p, f, m), 7)
                    floor = 4 * count * (DIM + 2 * CHANNELS) / copy * 1000
                    row = {"method": method, "count": count, "cloud": name, "floor": floor, "forward": forward, "both": both}
                    row |= {"mark": MARKS.get((method, count, name))}
                    rows.append(row)
                    f, b = statistics.median(forward), statistics.median(both)
                    print(
                        f"{method:13} N={count:>9,} {name:9} forward {f:8.3f} ms (mark {row['mark']}, floor {floor:.3f}), "
                        f"with backward {b:8.3f} ms = {b / f:.2f}x",
                        flush=True,
                    )
    finally:
        groups.EXACT_PAIRS_CUDA = limit
    return rows


# Where the time goes


def size_of(value: object) -> int:
    """The bytes of a tensor, or of those in a list or a dataclass."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(size_of(getattr(value, f.name)) for f in dataclasses.fields(value))
    return 0


class Stages:
    """Times stages with events while it is entered; what a stage's own stages take is not counted twice."""

    def __init__(self) -> None:
        from phgcn.lattice.gpu import backend, clouds, keys, lattice, near, rows

        self.calls: list[tuple[str, torch.cuda.Event, torch.cuda.Event, int, int]] = []
        self.open: list[int] = []
        self.places = [
            (backend, "find_clouds", "clouds"),
            (lattice, "finest_levels", "finest level: rest"),
            (clouds, "cell_keys", "cells"),
            (near, "cell_keys", "cells"),
            (lattice, "all_alike", "all alike"),
            (lattice, "locate", "locate"),
            (keys, "sort_keys", "sort"),
            (near, "sort_keys", "sort"),
            (lattice, "find_runs", "runs"),
            (clouds, "find_runs", "runs"),
            (lattice, "list_runs", "runs"),
            (clouds, "list_runs", "runs"),
            (lattice, "parent_keys", "parents"),
            (lattice, "sum_runs", "splat and restrict"),
            (rows, "neighbours", "neighbours"),
            (rows, "_blur_slab", "blur"),
            (lattice, "add_coarser", "add coarser"),
            (backend, "slice_points", "slice"),
            (backend, "slice_gradients", "slice gradients"),
            (backend, "gradient_rows", "gradient rows"),
            (near.NearField, "_runs", "near field: runs"),
            (near.NearField, "_add", "near field: pairs"),
            (backend, "make_plan", "plan: rest, with the read"),
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
            self.calls.append((stage, begin, end, above, 0))
            self.open.append(mine)
            begin.record()
            try:
                returned = function(*given, **named)
            finally:
                end.record()
                self.open.pop()
            moved = size_of(given) + size_of(list(named.values())) + size_of(returned)
            self.calls[mine] = (stage, begin, end, above, moved)
            return returned

        return call

    def times(self) -> dict[str, tuple[float, int]]:
        """Milliseconds and bytes by stage."""
        torch.cuda.synchronize()
        taken = [begin.elapsed_time(end) for _, begin, end, _, _ in self.calls]
        own = list(taken)
        for (_, _, _, above, _), t in zip(self.calls, taken, strict=True):
            if above >= 0:
                own[above] -= t
        out: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        for (stage, _, _, _, moved), t in zip(self.calls, own, strict=True):
            out[stage] = (out[stage][0] + t, out[stage][1] + moved)
        return dict(out)


def stages(quick: bool) -> list[dict]:
    """The stages of a forward and of a backward."""
    rows, copy = [], copy_speed()
    limit, groups.EXACT_PAIRS_CUDA = groups.EXACT_PAIRS_CUDA, 0
    try:
        for method in ("separable", "lattice"):
            for count in (20_000,) if quick else (100_000, 1_000_000):
                for name in ("spread 1", "spread 3", "spread 10"):
                    points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                    for kind, call in (("forward", lambda: global_attention(points, values, decay=1.0, method=method)),  # noqa: B023
                                       ("both", lambda: step(points, values, method))):  # noqa: B023  # fmt: skip
                        rows.append(measure_stages(method, count, name, kind, call, copy))
    finally:
        groups.EXACT_PAIRS_CUDA = limit
    return rows


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


# Exact or lattice; large clouds; memory


def crossing(quick: bool) -> list[dict]:
    """Training steps of both, by the number of points."""
    rows = []
    sizes = (2000, 8000) if quick else (2000, 5000, 10_000, 20_000, 40_000, 80_000)
    limit, groups.EXACT_PAIRS_CUDA = groups.EXACT_PAIRS_CUDA, 0
    try:
        for dim, channels in ((2, 8), (4, 8), (4, 64), (6, 8)):
            for name in ("spread 1", "spread 10", "clusters"):
                for count in sizes:
                    points, values = cloud(name, count, dim).to(DEVICE), features(count, channels).to(DEVICE)
                    times = {m: milliseconds(lambda p=points, f=values, m=m: step(p, f, m), 5) for m in ("exact", "lattice")}
                    ratio = statistics.median(times["exact"]) / statistics.median(times["lattice"])
                    rows.append({"dim": dim, "channels": channels, "cloud": name, "count": count, "ratio": ratio, **times})
                text = ", ".join(f"{r['count']:,}: {r['ratio']:.2f}" for r in rows[-len(sizes) :])
                print(f"exact / lattice, D={dim} C={channels} {name}: {text}", flush=True)
    finally:
        groups.EXACT_PAIRS_CUDA = limit
    return rows


def large(quick: bool) -> list[dict]:
    """Time per point at ten million points against one million, and the memory that a step takes."""
    rows = []
    for method in ("separable", "lattice"):
        for name in ("spread 1", "spread 10"):
            per_point = {}
            for count in (100_000, 1_000_000) if quick else (1_000_000, 10_000_000):
                points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                torch.cuda.reset_peak_memory_stats()
                forward = milliseconds(lambda p=points, f=values, m=method: global_attention(p, f, decay=1.0, method=m), 3)
                both = milliseconds(lambda p=points, f=values, m=method: step(p, f, m), 3)
                peak = torch.cuda.max_memory_allocated() / 1e9
                per_point[count] = statistics.median(forward) / count
                rows.append({"method": method, "cloud": name, "count": count, "forward": forward, "both": both, "peak": peak})
                f, b = statistics.median(forward), statistics.median(both)
                print(
                    f"{method} {name} N={count:,}: forward {f:.1f} ms, with backward {b:.1f} ms, peak {peak:.1f} GB", flush=True
                )
                del points, values
                torch.cuda.empty_cache()
            ratio = max(per_point.items())[1] / min(per_point.items())[1]
            print(f"{method} {name}: time per point {ratio:.2f}x", flush=True)
    return rows


def memory(quick: bool) -> dict:
    """Out of memory is torch's error, and the process goes on."""
    points, values = cloud("spread 1", 200_000).to(DEVICE), features(200_000).to(DEVICE)
    want = global_attention(points, values, decay=1.0, method="separable")
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 30e6) / total)
    raised = False
    try:
        global_attention(points, values, decay=1.0, method="separable")
    except torch.OutOfMemoryError:
        raised = True
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    again = torch.equal(want, global_attention(points, values, decay=1.0, method="separable"))
    print(f"out of memory: torch's error {raised}, the same bits afterwards {again}", flush=True)
    return {"raised": raised, "same_bits_afterwards": again}


def tiny(quick: bool) -> dict:
    """One small filter of each kind and its gradient: to be run under compute-sanitizer."""
    for method in (Separable(), small(4, 0), small(4, 2), "exact"):
        step(cloud("spread 2", 300).to(DEVICE), features(300, 20).to(DEVICE), method)
    torch.cuda.synchronize()
    print("tiny: done", flush=True)
    return {}


def provenance() -> dict:
    """Where numbers come from."""
    import triton

    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=RESULTS, capture_output=True, text=True, check=True)
        known: str | None = commit.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        known = None
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": os.environ.get("PHGCN_COMMIT", known),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", "benchmarks/gpu.py", *sys.argv[1:]]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"some of {', '.join((*SECTIONS, 'tiny'))}")
    parser.add_argument("--quick", action="store_true", help="small clouds; the marks mean nothing then")
    parser.add_argument("--out", default=RESULTS / "gpu.json", help="where the JSON goes")
    options = parser.parse_args()
    named = {
        "check": check,
        "speed": speed,
        "stages": stages,
        "crossing": crossing,
        "large": large,
        "memory": memory,
        "tiny": tiny,
    }
    chosen = options.sections.split(",")
    for name in chosen:
        if name not in named:
            parser.error(f"--sections has {name!r}; allowed: {', '.join(named)}")
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: this benchmark measures one")
    content: dict = {"provenance": provenance(), "quick": options.quick}
    for name in chosen:
        begin = time.perf_counter()
        content[name] = named[name](options.quick)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
        write(Path(options.out), content)


def write(path: Path, content: dict) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    main()
