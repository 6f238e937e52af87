r"""Two source trees side by side: how long the same calls take before and after a change.

    git worktree add ../before <commit>
    python benchmarks/before_after.py --before ../before                  # on the CPU, a quarter of an hour
    python benchmarks/before_after.py --before ../before --device cuda    # on a GPU, under four minutes on an H200
    python benchmarks/before_after.py --before ../before --quick          # small clouds, to see that it works
    python benchmarks/before_after.py --before ../before --quick --cases cuda    # the GPU's cases, on the CPU

Each tree runs in a process of its own (``benchmarks/before_after_worker.py``).  The two take turns, so that what else the
machine does hits both alike, and each call is taken at its fastest.  On a GPU all kernels are compiled before, by several
processes at once.  Prints times and their ratio, after / before: below 1 is a gain.  The time of the processor, of all threads
together, tells more than the clock where others share it.  Writes ``benchmarks/results/before_after.json``, or
``before_after_gpu.json``, after every case; a case that fails is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import common
import torch

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("before_after_worker.py")
ROUNDS = 5
"""How often the trees take turns in a case."""

CALLS = {"cpu": 1, "cuda": 3}
"""How often a call is timed in a turn."""

CPU_CHANNELS, GPU_CHANNELS = 17, 64
EPOCH_ROUNDS, EPOCH_SECONDS = 2, 1.5
LIMIT = 300.0
"""Seconds for one answer: a process that takes longer is ended, and the next case starts a new one."""


@dataclass(frozen=True)
class Case:
    """A call that both trees can make: its kind in the worker, and the kind's options."""

    name: str
    kind: str
    options: dict[str, Any] = field(hash=False)


def cpu_cases(quick: bool) -> Iterator[Case]:
    """Lattices on clouds of several densities, the exact sum, attention to neighbours, and training steps of layers."""
    for count in (2_000,) if quick else (20_000, 200_000):
        for method in ("lattice", "separable"):
            for cloud in ("spread 1", "spread 3", "spread 10", "clusters"):
                yield from both_ways(method, count, cloud, CPU_CHANNELS)
    for count in (500,) if quick else (2_000, 5_000):
        yield from both_ways("exact", count, "spread 1", CPU_CHANNELS)
    graph = "texas" if quick else "pubmed"
    for backward in (False, True):
        name = f"structural attention, {graph}, {'forward and backward' if backward else 'forward'}"
        yield Case(name, "structural", {"graph": graph, "backward": backward})
    for layer in ("PHGCNConv", "EDAConv"):
        nodes, edges = (300, 1_000) if quick else (20_000, 100_000)
        yield step_of(layer, nodes, edges)


def gpu_cases(quick: bool) -> Iterator[Case]:
    """The filter on dense and sparse clouds, the exact sum, training steps of layers, and epochs of ``phgcn train``."""
    for method in ("lattice", "separable"):
        for count in (2_000,) if quick else (100_000, 1_000_000):
            for cloud in ("spread 1", "spread 10"):
                yield from both_ways(method, count, cloud, GPU_CHANNELS)
    for count in (500,) if quick else (10_000, 100_000):
        yield from both_ways("exact", count, "spread 1", GPU_CHANNELS)
    nodes, edges = (300, 1_000) if quick else (100_000, 1_000_000)
    for layer in ("PHGCNConv", "EDAConv"):
        yield step_of(layer, nodes, edges)
    for graph in ("texas",) if quick else ("texas", "cora"):
        for checkpoints in (False, True):
            options = {"graph": graph, "checkpoints": checkpoints, "seconds": 0.1 if quick else EPOCH_SECONDS}
            yield Case(f"{graph}, epoch {'with' if checkpoints else 'without'} checkpoints", "epochs", options)


def both_ways(method: str, count: int, cloud: str, channels: int) -> Iterator[Case]:
    for backward in (False, True):
        name = f"{method}, {cloud}, N={count:,}, {'forward and backward' if backward else 'forward'}"
        options = {"method": method, "count": count, "cloud": cloud, "channels": channels, "backward": backward}
        yield Case(name, "filter", options)


def step_of(layer: str, nodes: int, edges: int) -> Case:
    name = f"{layer}, {nodes:,} nodes, {edges:,} edges, step"
    return Case(name, "layer", {"layer": layer, "nodes": nodes, "edges": edges})


CASES = {"cpu": cpu_cases, "cuda": gpu_cases}
OUT = {"cpu": common.RESULTS / "before_after.json", "cuda": common.RESULTS / "before_after_gpu.json"}


class Tree:
    """A source tree, and the process that runs it; a process that ended is started anew."""

    def __init__(self, folder: Path, device: str) -> None:
        self.source, self.device = folder.resolve() / "src", device
        if not (self.source / "phgcn").is_dir():
            raise SystemExit(f"{folder} has no src/phgcn; allowed: the root of a checkout")
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: Case, count: int) -> dict[str, Any]:
        """Takes ``count`` measurements of a case; returns ``{"wall": ms, "cpu": ms}`` or ``{"error": text}``."""
        if self.process is None or self.process.poll() is not None:
            environment = {**os.environ, "PYTHONPATH": str(self.source)}
            command = [sys.executable, str(WORKER)]
            self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"kind": case.kind, "device": self.device, "options": case.options, "count": count}
        timer = threading.Timer(LIMIT, self.process.kill)
        timer.start()
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            code = self.process.wait()
            return {"error": f"the process ended with {code}, or was ended after {LIMIT:.0f} s"}
        result: dict[str, Any] = json.loads(answer)
        return result

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()


def compile_kernels(folders: dict[str, Path], device: str, cases: list[Case]) -> None:
    """Runs every case once, a process for each tree and group of cases: compiled kernels are left in Triton's cache."""
    groups: dict[tuple, list[Case]] = {}
    for case in cases:
        groups.setdefault((case.kind, case.options.get("method"), case.options.get("count")), []).append(case)

    def run(folder: Path, group: list[Case]) -> None:
        tree = Tree(folder, device)
        for case in group:
            tree.run(case, 1)  # errors are reported when the case is measured
        tree.close()

    begin = time.perf_counter()
    with ThreadPoolExecutor(max_workers=max(2, (os.cpu_count() or 2) - 2)) as pool:
        list(pool.map(run, *zip(*((f, g) for f in folders.values() for g in groups.values()), strict=True)))
    print(f"kernels compiled: {time.perf_counter() - begin:.0f} s", flush=True)


def compare(trees: dict[str, Tree], case: Case, rounds: int, calls: int) -> dict[str, Any]:
    """Measures a case in both trees, turn by turn; stops at the first error."""
    if case.kind == "epochs":
        rounds, calls = EPOCH_ROUNDS, 1
    times: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in trees}
    for _ in range(rounds):
        for name, tree in trees.items():
            answer = tree.run(case, calls)
            if "error" in answer:
                return {**asdict(case), "failed": name, "error": answer["error"]}
            for clock, ms in answer.items():
                times[name][clock] += ms
    row = asdict(case)
    for clock in ("wall", "cpu"):
        least = {name: min(times[name][clock]) for name in trees}
        row[clock] = {**least, "ratio": least["after"] / least["before"]}
    return {**row, "all": times}


def checkout(folder: Path, commit: str | None) -> dict[str, Any]:
    """The commit of a tree and whether it was changed; for a copy without history the commit that is given."""
    if commit is not None:
        return {"commit": commit, "dirty": None}

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}


def report(row: dict[str, Any]) -> None:
    if "error" in row:
        print(f"FAILED {row['name']} ({row['failed']}): {row['error'].strip().splitlines()[-1]}", flush=True)
        return
    wall, cpu = row["wall"], row["cpu"]
    times = f"{wall['before']:9.3f} -> {wall['after']:9.3f} ms, {wall['ratio']:.2f}x"
    print(f"{row['name']:55} {times} (processor {cpu['ratio']:.2f}x)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="the tree before the change")
    parser.add_argument("--after", type=Path, default=ROOT, help="the tree after it (default: this one)")
    parser.add_argument("--before-commit", help="the commit of the tree before, where it is a copy without history")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cases", choices=list(CASES), help="the calls for which device (default: that of --device)")
    parser.add_argument("--quick", action="store_true", help="small clouds")
    parser.add_argument("--only", default="", help="run only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each case (default: {ROUNDS})")
    parser.add_argument("--out", help="where the JSON goes (default: by device)")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device; allowed: --device cpu")
    folders = {"before": options.before, "after": options.after}
    cases = [case for case in CASES[options.cases or options.device](options.quick) if options.only in case.name]
    if options.device == "cuda":
        compile_kernels(folders, options.device, cases)
    trees = {name: Tree(folder, options.device) for name, folder in folders.items()}
    content: dict[str, Any] = {
        "provenance": common.provenance(),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "quick": options.quick,
        "trees": {
            "before": checkout(options.before, options.before_commit),
            "after": checkout(options.after, os.environ.get("PHGCN_COMMIT")),
        },
        "cases": [],
    }
    out = options.out or OUT[options.device]
    for case in cases:
        row = compare(trees, case, options.rounds, CALLS[options.device])
        content["cases"].append(row)
        common.write_json(out, content)
        report(row)
    for tree in trees.values():
        tree.close()
    failed = sum("error" in row for row in content["cases"])
    print(f"{len(cases)} cases, {failed} failed; written to {out}")


if __name__ == "__main__":
    main()
