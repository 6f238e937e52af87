r"""How long a user waits for kernels to be compiled: the first call of each operation, each in a process with an empty cache.

    python benchmarks/first_call.py

Writes ``benchmarks/results/first_call.json``.  Takes two minutes on an idle machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import common

STEP = """
import json
from time import process_time
{setup}
imported = process_time()
out = {forward}
forward = process_time()
out.square().mean().backward()
print(json.dumps({{"imports": imported, "forward": forward - imported, "backward": process_time() - forward}}))
"""
"""A first call and its gradient; prints the processor's seconds of each part, on which other programs have little influence."""
TRAIN = """
import sys
from phgcn.cli.app import main
sys.argv[1:] = ["train", "texas", "--splits", "1", "--set", "epochs=2", "--out", sys.argv[1]]
main()
"""

POINTS = """
import torch
from phgcn import global_attention, structural_attention
points, values = torch.randn(2500, 4, requires_grad=True), torch.randn(2500, 8, requires_grad=True)
edge_index = torch.randint(2500, (2, 10_000))
"""
GRAPH = """
import torch
from phgcn.nn import GlobalGNN, PHGCNConv
x, edge_index = torch.randn(2500, 16), torch.randint(2500, (2, 10_000))
"""
METHODS = ("lattice", "lattice-fine", "separable", "exact")
OPERATIONS = {
    **{
        f'`global_attention(method="{method}")`': (POINTS, f"global_attention(points, values, decay=3.0, method={method!r})")
        for method in METHODS
    },
    "`structural_attention`": (POINTS, "structural_attention(points, values, edge_index)"),
    "`PHGCNConv`, 8 heads": (GRAPH, "PHGCNConv(16, 8, heads=8)(x, edge_index)"),
    "`GlobalGNN`": (GRAPH, "GlobalGNN(16, 32, 8, global_layers=1)(x, edge_index)"),
}
"""What makes the input, and the call: 2,500 points in 4 dimensions, or as many nodes."""
MARKS = {"`PHGCNConv`, 8 heads": 25.0, "`phgcn train texas`, two epochs": 20.0}
"""Upper bounds in seconds, imports included."""


def first_call(call: str, code: str) -> dict[str, Any]:
    """Runs a process with an empty cache; returns its seconds, the processor's, and what it prints of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-c", code, os.path.join(folder, "run")]
        environment = {**os.environ, "PHGCN_CACHE": folder}
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    parts = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = {"call": call, "mark": MARKS.get(call), **parts, "seconds": seconds, "cpu_seconds": cpu}
    print(", ".join(f"{key} {value:.1f}" if isinstance(value, float) else f"{value}" for key, value in row.items()), flush=True)
    return row


def main() -> None:
    codes = {call: STEP.format(setup=setup, forward=forward) for call, (setup, forward) in OPERATIONS.items()}
    codes["`phgcn train texas`, two epochs"] = TRAIN
    rows = [first_call(call, code) for call, code in codes.items()]
    common.write_json(common.RESULTS / "first_call.json", {"provenance": common.provenance(), "rows": rows})


if __name__ == "__main__":
    main()
