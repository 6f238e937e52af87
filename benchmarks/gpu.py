r"""The filter on one GPU: is it right, how long does it take, where does the time go.

    python benchmarks/gpu.py                          # all sections, a few minutes
    python benchmarks/gpu.py --sections check,speed   # some of them
    python benchmarks/gpu.py --quick                  # small clouds, to see that it works

Sections: ``check`` (against the plain torch reference on the CPU, float32 and float64, forward and backward; the same bits
from run to run; a batch against its graphs alone), ``speed`` (the marks), ``stages`` (where the time goes), ``crossing``
(exact against lattice), ``large`` (ten million points, and the memory), ``memory`` (out of memory is torch's error, and the
process goes on), ``tiny`` (one small filter and its gradient, for compute-sanitizer).  Run it with ``PYTHONPATH=src`` where the
package is not installed.  Medians with CUDA events; prints tables, writes ``benchmarks/results/gpu.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial

import common
import torch
from gpu_check import check, with_near_field
from gpu_common import CHANNELS, DEVICE, DIM, cloud, copy_speed, features, milliseconds, step
from gpu_stages import stages

from phgcn.functional import global_attention
from phgcn.lattice import Separable

SECTIONS = ("check", "speed", "stages", "crossing", "large", "memory")
MARKS = {
    ("separable", 100_000, "spread 1"): 1.0,
    ("separable", 100_000, "spread 10"): 1.0,
    ("separable", 1_000_000, "spread 1"): 1.1,
    ("separable", 1_000_000, "spread 10"): 20.0,
    ("lattice", 100_000, "spread 1"): 3.0,
    ("lattice", 100_000, "spread 10"): 3.0,
    ("lattice", 1_000_000, "spread 1"): 1.6,
    ("lattice", 1_000_000, "spread 10"): 60.0,
    ("exact", 100_000, "spread 1"): 15.0,
}
"""Milliseconds that a forward with the build may take."""


# How long does it take


def speed(quick: bool) -> Iterator[dict]:
    """Times forward, and forward with backward, for every method, size and cloud."""
    copy = copy_speed()
    sizes = (20_000, 50_000) if quick else (100_000, 1_000_000)
    print(f"copy: {copy / 1e12:.2f} TB/s", flush=True)
    for method, count, name in speed_cases(sizes):
        points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
        forward = milliseconds(partial(global_attention, points, values, decay=1.0, method=method))
        both = milliseconds(partial(step, points, values, method), 7)
        floor = 4 * count * (DIM + 2 * CHANNELS) / copy * 1000
        mark = MARKS.get((method, count, name))
        yield {"method": method, "count": count, "cloud": name, "floor": floor, "forward": forward, "both": both, "mark": mark}
        f, b = statistics.median(forward), statistics.median(both)
        print(
            f"{method:13} N={count:>9,} {name:9} forward {f:8.3f} ms (mark {mark}, floor {floor:.3f}), "
            f"with backward {b:8.3f} ms = {b / f:.2f}x",
            flush=True,
        )


def speed_cases(sizes: tuple[int, ...]) -> Iterator[tuple[str, int, str]]:
    """Yields method, number of points and cloud; the exact sum only where it takes milliseconds."""
    for method in ("separable", "lattice", "lattice-fine"):
        for count in sizes:
            for name in ("spread 1", "spread 3", "spread 10", "clusters"):
                yield method, count, name
    yield "exact", sizes[0], "spread 1"


# Exact or lattice; large clouds; memory


def crossing(quick: bool) -> Iterator[dict]:
    """Training steps of both, by the number of points."""
    sizes = (2000, 8000) if quick else (2000, 5000, 10_000, 20_000, 40_000, 80_000)
    for dim, channels in ((2, 8), (4, 8), (4, 64), (6, 8)):
        for name in ("spread 1", "spread 10", "clusters"):
            ratios = {}
            for count in sizes:
                points, values = cloud(name, count, dim).to(DEVICE), features(count, channels).to(DEVICE)
                times = {method: milliseconds(partial(step, points, values, method), 5) for method in ("exact", "lattice")}
                ratios[count] = statistics.median(times["exact"]) / statistics.median(times["lattice"])
                yield {"dim": dim, "channels": channels, "cloud": name, "count": count, "ratio": ratios[count], **times}
            text = ", ".join(f"{count:,}: {ratio:.2f}" for count, ratio in ratios.items())
            print(f"exact / lattice, D={dim} C={channels} {name}: {text}", flush=True)


def large(quick: bool) -> Iterator[dict]:
    """Time per point at ten million points against one million, and the memory that a step takes."""
    for method in ("separable", "lattice"):
        for name in ("spread 1", "spread 10"):
            per_point = {}
            for count in (100_000, 1_000_000) if quick else (1_000_000, 10_000_000):
                points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                torch.cuda.reset_peak_memory_stats()
                forward = milliseconds(partial(global_attention, points, values, decay=1.0, method=method), 3)
                both = milliseconds(partial(step, points, values, method), 3)
                peak = torch.cuda.max_memory_allocated() / 1e9
                per_point[count] = statistics.median(forward) / count
                yield {"method": method, "cloud": name, "count": count, "forward": forward, "both": both, "peak": peak}
                f, b = statistics.median(forward), statistics.median(both)
                print(
                    f"{method} {name} N={count:,}: forward {f:.1f} ms, with backward {b:.1f} ms, peak {peak:.1f} GB", flush=True
                )
                del points, values
                torch.cuda.empty_cache()
            ratio = max(per_point.items())[1] / min(per_point.items())[1]
            print(f"{method} {name}: time per point {ratio:.2f}x", flush=True)


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
    for method in (Separable(), with_near_field(4, 0), with_near_field(4, 2), "exact"):
        step(cloud("spread 2", 300).to(DEVICE), features(300, 20).to(DEVICE), method)
    torch.cuda.synchronize()
    print("tiny: done", flush=True)
    return {}


def provenance() -> dict:
    """Where numbers come from."""
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        **common.provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"some of {', '.join((*SECTIONS, 'tiny'))}")
    parser.add_argument("--quick", action="store_true", help="small clouds; the marks mean nothing then")
    parser.add_argument("--out", default=common.RESULTS / "gpu.json", help="where the JSON goes")
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
        found = named[name](options.quick)
        if isinstance(found, (dict, list)):
            content[name] = found
        else:
            content[name] = []
            for row in found:  # each is written at once: a run that is cut off leaves what it has measured
                content[name].append(row)
                common.write_json(options.out, content)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
        common.write_json(options.out, content)


if __name__ == "__main__":
    main()
