r"""Counts what the host starts for a call on a GPU: launches of Triton kernels with their arguments, and operations of torch.

    python benchmarks/launches.py

Needs no GPU: kernels run in Triton's interpreter.  Clouds are small, but take the path of large dense ones: keys are searched
with buckets, and runs are long.  An operation of torch counts where it is called by phgcn, not by another operation or by the
interpreter; on a GPU each may be no kernel (an allocation, a view), one, or several (a sort).
Writes ``benchmarks/results/launches.json``.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from functools import partial
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import common
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import phgcn

CASES = {
    "lattice": ("lattice", 100, 3, "spread 0.02"),
    "separable": ("separable", 100, 4, "spread 0.1"),
    "exact": ("exact", 40, 4, "spread 1"),
}
"""Method, points, dimension, cloud.  A lattice in four dimensions, which takes the interpreter long, launches somewhat more."""

CHANNELS = 64
LAUNCH = "launch of a kernel"
VIEWS = "as_strided detach expand flatten permute reshape select slice split squeeze transpose unbind unsqueeze view"
"""Operations that only describe a tensor anew."""

launches: list[tuple[str, int]] = []


def note_launches() -> None:
    """Makes every launch note the kernel and how many arguments it passes to the device, each field of a tuple counted;
    compile-time constants, named in capitals, are not passed."""
    from triton.runtime.interpreter import InterpretedFunction

    run = InterpretedFunction.run

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        arguments = {**dict(zip(self.arg_names, given, strict=False)), **named}
        passed = [arguments[name] for name in self.arg_names if not name.isupper()]
        launches.append((self.fn.__name__, sum(len(some) if isinstance(some, tuple) else 1 for some in passed)))
        with record_function(LAUNCH):
            return run(self, *given, **named)

    InterpretedFunction.run = noted


def count(method: str, points: int, dim: int, cloud: str, backward: bool) -> dict[str, Any]:
    """Counts launches and operations of one call, when what is cached has been made."""
    positions, values = common.cloud(cloud, points, dim), common.random_features(points, CHANNELS)
    leaves = [t.requires_grad_(backward) for t in (positions, values)]
    attend = partial(phgcn.global_attention, *leaves, decay=1.0, method=method, backend="triton")

    def call() -> None:
        out = attend()
        if backward:
            torch.autograd.grad(out, leaves, torch.ones_like(out))

    call()
    launches.clear()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    operations: Counter[str] = Counter()
    for event in profiler.events():
        parents, parent = [], event.cpu_parent
        while parent is not None:
            parents.append(parent.name)
            parent = parent.cpu_parent
        if event.name.startswith("aten::") and not any(name.startswith("aten::") or name == LAUNCH for name in parents):
            name = event.name.removeprefix("aten::")
            operations["view" if name in VIEWS.split() else name] += 1
    return {
        "launches": len(launches),
        "arguments": sum(number for _, number in launches),
        "most arguments": max(number for _, number in launches),
        "operations": sum(operations.values()) - operations["view"],
        "kernels": Counter(name for name, _ in launches),
        "torch": operations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=common.RESULTS / "launches.json", help="where the JSON goes")
    options = parser.parse_args()
    from phgcn.lattice.triton import keys

    keys.MIN_KEYS = 1
    note_launches()
    rows = []
    for name, case in CASES.items():
        for backward in (False, True):
            counted = count(*case, backward)
            rows.append({"case": name, "call": "forward and backward" if backward else "forward", **counted})
            print({key: value for key, value in rows[-1].items() if key not in ("kernels", "torch")}, dict(counted["torch"]))
    common.write_json(options.out, {"provenance": common.provenance(), "rows": rows})


if __name__ == "__main__":
    main()
