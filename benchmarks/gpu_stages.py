r"""Section ``stages`` of ``benchmarks/gpu.py``: where the time of a forward and of a backward goes, by CUDA events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from gpu_common import DEVICE, cloud, features, step
from stage_timer import StageTimer

from phgcn.functional import global_attention

ROUNDS = 5


def stages(quick: bool) -> Iterator[dict]:
    """Times the stages of a forward, and of a forward with backward."""
    for method in ("separable", "lattice"):
        for count in (20_000,) if quick else (100_000, 1_000_000):
            for name in ("spread 1", "spread 3", "spread 10"):
                points, values = cloud(name, count).to(DEVICE), features(count).to(DEVICE)
                forward = partial(global_attention, points, values, decay=1.0, method=method)
                for kind, call in {"forward": forward, "both": partial(step, points, values, method)}.items():
                    row = {"method": method, "count": count, "cloud": name, "kind": kind, **fastest_stages(call)}
                    longest_first = sorted(row["stages"].items(), key=lambda part: -part[1]["ms"])
                    text = ", ".join(f"{stage} {part['ms']:.2f}" for stage, part in longest_first)
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
        with StageTimer("phgcn.lattice.triton", ("phgcn.runtime.graphs",), event, torch.cuda.Event.elapsed_time) as timer:
            begin = event()
            call()
            end = event()
        end.synchronize()
        runs.append((begin.elapsed_time(end), timer))
    whole, timer = min(runs, key=lambda run: run[0])
    times = timer.stages()
    named = {stage: {"ms": ms} for stage, ms in times.items()}
    return {"ms": whole, "stages": named, "between": whole - sum(times.values())}


def event() -> torch.cuda.Event:
    """Records an event on the current stream."""
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made
