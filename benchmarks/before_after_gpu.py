r"""Two source trees side by side on a GPU: how long the same calls take before and after a change.

    git worktree add ../before <commit>
    python benchmarks/before_after_gpu.py --before ../before                       # under four minutes on an H200
    python benchmarks/before_after_gpu.py --before ../before --device cpu --tiny   # to see that it works, without a GPU

Each tree runs in a process of its own (``benchmarks/before_after_worker.py``), and the two take turns, so that what else the
machine does hits both alike.  Before that, all kernels are compiled, by several processes at once.  Prints medians and their
ratio, after / before: below 1 is a gain.  Writes ``benchmarks/results/before_after_gpu.json`` after every case; a case that
fails is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
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
TURNS, CALLS = 5, 3
"""How often the trees take turns in a case, and calls in a turn."""

EPOCH_TURNS, EPOCH_SECONDS = 2, 1.5
LIMIT = 150.0
"""Seconds for one answer: a process that takes longer is ended, and the next case starts a new one."""


@dataclass(frozen=True)
class Case:
    """A call that both trees can make: its kind in the worker, and the kind's options."""

    name: str
    kind: str
    options: dict[str, Any] = field(hash=False)


def cases(tiny: bool) -> Iterator[Case]:
    for method in ("lattice", "separable"):
        for count in (2_000,) if tiny else (100_000, 1_000_000):
            for spread in (1.0, 10.0):
                yield from both_ways(method, count, spread)
    for count in (500,) if tiny else (10_000, 100_000):
        yield from both_ways("exact", count, 1.0)
    nodes, edges = (300, 1_000) if tiny else (100_000, 1_000_000)
    for layer in ("PHGCNConv", "EDAConv"):
        yield Case(
            f"{layer}, {nodes:,} nodes, {edges:,} edges, step", "layer", {"layer": layer, "nodes": nodes, "edges": edges}
        )
    for graph in ("texas",) if tiny else ("texas", "cora"):
        for checkpoints in (False, True):
            options = {"graph": graph, "checkpoints": checkpoints, "seconds": 0.1 if tiny else EPOCH_SECONDS}
            yield Case(f"{graph}, epoch {'with' if checkpoints else 'without'} checkpoints", "epochs", options)


def both_ways(method: str, count: int, spread: float) -> Iterator[Case]:
    for backward in (False, True):
        name = f"{method}, N={count:,}, spread {spread:g}, {'forward and backward' if backward else 'forward'}"
        yield Case(name, "filter", {"method": method, "count": count, "spread": spread, "backward": backward})


class Tree:
    """A source tree, and the process that runs it; a process that ended is started anew."""

    def __init__(self, folder: Path, device: str) -> None:
        self.source, self.device = folder.resolve() / "src", device
        if not (self.source / "phgcn").is_dir():
            raise SystemExit(f"{folder} has no src/phgcn; allowed: the root of a checkout")
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: Case, count: int) -> dict[str, Any]:
        """Takes ``count`` measurements of a case; returns ``{"ms": times}`` or ``{"error": text}``."""
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


def compile_kernels(folders: dict[str, Path], device: str, chosen: list[Case]) -> None:
    """Runs every case once, a process for each tree and group of cases: compiled kernels are left in Triton's cache."""
    groups: dict[tuple, list[Case]] = {}
    for case in chosen:
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


def compare(trees: dict[str, Tree], case: Case) -> dict[str, Any]:
    """Measures a case in both trees, turn by turn; stops at the first error."""
    turns, calls = (EPOCH_TURNS, 1) if case.kind == "epochs" else (TURNS, CALLS)
    times: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(turns):
        for name, tree in trees.items():
            answer = tree.run(case, calls)
            if "error" in answer:
                return {**asdict(case), "failed": name, "error": answer["error"]}
            times[name] += answer["ms"]
    medians = {name: statistics.median(ms) for name, ms in times.items()}
    return {**asdict(case), "ms": medians, "ratio": medians["after"] / medians["before"], "all": times}


def commit_of(folder: Path) -> str | None:
    """The commit of a folder that is the root of a checkout; :obj:`None` for a copy without history."""
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True)
    top, _, commit = found.stdout.strip().partition("\n")
    return commit if found.returncode == 0 and Path(top) == folder.resolve() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="the tree before the change")
    parser.add_argument("--after", type=Path, default=ROOT, help="the tree after it (default: this one)")
    parser.add_argument("--before-commit", help="its commit, where the folder is a copy without history")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="small clouds, to see that it works")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--out", default=common.RESULTS / "before_after_gpu.json", help="where the JSON goes")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device; allowed: --device cpu")
    folders = {"before": options.before, "after": options.after}
    chosen = [case for case in cases(options.tiny) if options.only in case.name]
    if options.device == "cuda":
        compile_kernels(folders, options.device, chosen)
    trees = {name: Tree(folder, options.device) for name, folder in folders.items()}
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    commits = {name: commit_of(folder) for name, folder in folders.items()}
    commits["before"] = options.before_commit or commits["before"]
    content: dict[str, Any] = {"provenance": common.provenance(), "device": device, "tiny": options.tiny, "commits": commits}
    content["cases"] = []
    for case in chosen:
        row = compare(trees, case)
        content["cases"].append(row)
        common.write_json(options.out, content)
        if "error" in row:
            print(f"FAILED {case.name} ({row['failed']}): {row['error'].strip().splitlines()[-1]}", flush=True)
        else:
            ms = row["ms"]
            print(f"{case.name:55} {ms['before']:9.3f} -> {ms['after']:9.3f} ms, {row['ratio']:.2f}x", flush=True)
    for tree in trees.values():
        tree.close()
    failed = sum("error" in row for row in content["cases"])
    print(f"{len(chosen)} cases, {failed} failed; written to {options.out}")


if __name__ == "__main__":
    main()
