r"""How long a user waits for kernels to be compiled: the first call of each operation, each in a
process with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import common
from registry import measurement

from phgcn_lab.markdown import origin, table

STEP = """
import json
from time import process_time
{setup}
imported = process_time()
out = {forward}
forward = process_time()
out.square().mean().backward()
print(json.dumps({{"imports": imported, "forward": forward - imported, "backward": process_time() - forward}}))
"""  # noqa: E501
"""A first call and its gradient; prints the processor's seconds of each part, on which other
programs have little influence.
"""
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
GLOBAL = "global_attention(points, values, decay=3.0, method={!r})"
OPERATIONS = {
    **{f'`global_attention(method="{m}")`': (POINTS, GLOBAL.format(m)) for m in METHODS},
    "`structural_attention`": (POINTS, "structural_attention(points, values, edge_index)"),
    "`PHGCNConv`, 8 heads": (GRAPH, "PHGCNConv(16, 8, heads=8)(x, edge_index)"),
    "`GlobalGNN`": (GRAPH, "GlobalGNN(16, 32, 8, global_layers=1)(x, edge_index)"),
}
"""What makes the input, and the call: 2,500 points in 4 dimensions, or as many nodes."""
MARKS = {"`PHGCNConv`, 8 heads": 25.0, "`phgcn train texas`, two epochs": 20.0}
"""Upper bounds in seconds, imports included."""


def measure(call: str, code: str) -> dict[str, Any]:
    """Runs a process with an empty cache; returns its seconds and what it prints of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, os.path.join(folder, "run")]
        environment = {**os.environ, "PHGCN_CACHE": folder}
        done, taken = common.run_process(command, env=environment, stderr=subprocess.DEVNULL)
        done.check_returncode()
    parts = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return {"call": call, "mark": MARKS.get(call), **parts, **taken}


def first_calls(measured: dict) -> list[str]:
    parts = ("forward", "backward", "cpu_seconds")
    rows = []
    for row in measured["rows"]:
        times = [f"{row[part]:.1f}" if part in row else "" for part in parts]
        rows.append([row["call"], *times, f"≤ {row['mark']:.0f}" if row["mark"] else ""])
    times = ("forward, processor s", "backward", "whole process")
    return [f"{origin(measured)}:", "", *table(["call", *times, "mark"], rows)]


@measurement(tables=first_calls)
def first_call(options: argparse.Namespace) -> Iterator[dict]:
    """Seconds of the first call of each operation, from an empty cache of kernels."""
    calls = OPERATIONS.items()
    codes = {call: STEP.format(setup=setup, forward=forward) for call, (setup, forward) in calls}
    codes["`phgcn train texas`, two epochs"] = TRAIN
    rows = []
    for call, code in codes.items():
        rows.append(measure(call, code))
        yield {"rows": rows}
