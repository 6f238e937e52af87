r"""How long a user waits for kernels to be compiled: first calls from an empty cache, each in a process of its own.

    python benchmarks/first_call.py

Writes ``benchmarks/results/first_call.json``.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

import common

STEP = """
import torch
from phgcn.nn import PHGCNConv
x, edge_index = torch.randn(2500, 16), torch.randint(2500, (2, 10_000))
PHGCNConv(16, 8, heads=8)(x, edge_index).square().mean().backward()
"""
TRAIN = """
import sys
from phgcn.cli.app import main
sys.argv[1:] = ["train", "texas", "--splits", "1", "--set", "epochs=2", "--out", sys.argv[1]]
main()
"""
CALLS = {"first step of `PHGCNConv`, 8 heads": (STEP, 25.0), "`phgcn train texas`, two epochs": (TRAIN, 20.0)}
"""What is run, and the mark in seconds."""


def wait(code: str) -> dict[str, float]:
    """Returns the seconds and the processor's seconds of a process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-c", code, os.path.join(folder, "run")]
        subprocess.run(command, env={**os.environ, "PHGCN_CACHE": folder}, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.perf_counter() - begin, "cpu_seconds": cpu}


def main() -> None:
    rows = [{"call": name, "mark": mark, **wait(code)} for name, (code, mark) in CALLS.items()]
    for row in rows:
        print(f"{row['call']}: {row['seconds']:.1f} s, processor {row['cpu_seconds']:.1f} s, mark {row['mark']:.0f} s")
    common.write_json(common.RESULTS / "first_call.json", {"provenance": common.provenance(), "rows": rows})


if __name__ == "__main__":
    main()
