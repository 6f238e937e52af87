r"""Two source trees side by side: how long the same calls take before and after a change.

    git worktree add ../before <commit>
    python benchmarks/before_after.py --before ../before            # a quarter of an hour
    python benchmarks/before_after.py --before ../before --quick    # small clouds, to see that it works

Each tree runs in a process of its own.  The two take turns, call by call, so that what else the machine does hits both alike, and
each call is taken at its fastest.  Prints a table per section, after / before; writes ``benchmarks/results/before_after.json``.
A ratio below 1 is a gain.  The time of the processor, of all threads together, tells more than the clock where others share it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import common
from rich.progress import track
from rich.table import Table

ROUNDS = 5
DIM = 4
CHANNELS = 17
TREES = ("before", "after")
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Case:
    """One call: global attention of a cloud to itself, without gradients or with."""

    method: str
    cloud: str
    count: int
    backward: bool
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.method}, {self.cloud}, N={self.count:,}, {'forward and backward' if self.backward else 'forward'}"


def cpu_cases(quick: bool) -> Iterator[Case]:
    """Lattices on clouds of several densities, and the exact sum."""
    for count in (2_000,) if quick else (20_000, 200_000):
        for method in ("lattice", "separable"):
            for cloud in ("spread 1", "spread 3", "spread 10", "clusters"):
                for backward in (False, True):
                    yield Case(method, cloud, count, backward)
    for count in (500,) if quick else (2_000, 5_000):
        for backward in (False, True):
            yield Case("exact", "spread 1", count, backward)


SECTIONS: dict[str, Callable[[bool], Iterator[Case]]] = {"cpu": cpu_cases}
"""The cases of each part of the table; a part is run by itself with ``--sections``."""


# The process that runs one tree


def serve() -> None:
    """Runs the cases that come in as lines of JSON, and answers each with its times."""
    calls: dict[Case, Callable[[], None]] = {}
    for line in sys.stdin:
        case = Case(**json.loads(line))
        if case not in calls:
            calls.clear()  # only the memory of one
            calls[case] = prepare(case)
            calls[case]()
        print(json.dumps(measure(calls[case], case.device)), flush=True)


def prepare(case: Case) -> Callable[[], None]:
    """Makes the inputs of a case, and returns what calls it."""
    import torch

    import phgcn

    points = common.cloud(case.cloud, case.count, DIM).to(case.device)
    values = common.random_features(case.count, CHANNELS).to(case.device)
    grad = common.random_features(case.count, CHANNELS, seed=1).to(case.device)
    leaves = [points.requires_grad_(), values.requires_grad_()]

    def forward() -> None:
        with torch.no_grad():
            phgcn.global_attention(points, values, decay=1.0, method=case.method)

    def both() -> None:
        torch.autograd.grad(phgcn.global_attention(points, values, decay=1.0, method=case.method), leaves, grad)

    return both if case.backward else forward


def measure(call: Callable[[], None], device: str) -> dict[str, float]:
    """Returns the seconds that a call takes by the clock, and those of the processor."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


class Tree:
    """A source tree, and the process that runs it."""

    def __init__(self, folder: Path) -> None:
        source = folder.resolve() / "src"
        if not (source / "phgcn").is_dir():
            raise SystemExit(f"{folder} has no src/phgcn; allowed: the root of a checkout")
        self.commit = git(folder, "rev-parse", "HEAD")
        self.dirty = bool(git(folder, "status", "--porcelain", "--untracked-files=no"))
        environment = {**os.environ, "PYTHONPATH": str(source)}
        command = [sys.executable, __file__, "--worker"]
        self.process = subprocess.Popen(
            command, env=environment, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, case: Case) -> dict[str, float]:
        """Runs a case once; the first time also once before, to compile and to warm up."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(asdict(case)), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process of commit {self.commit} ended in {case}; its error is above")
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


# The process that compares


def compare(trees: dict[str, Tree], case: Case, rounds: int) -> dict:
    """Runs a case in both trees, turn by turn."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for _ in range(rounds):
        for name, tree in trees.items():
            runs[name].append(tree.run(case))
    entry: dict = {"case": asdict(case)}
    for clock in ("wall", "cpu"):
        least = {name: min(run[clock] for run in runs[name]) for name in trees}
        entry[clock] = {**least, "ratio": least["after"] / least["before"]}
    return {**entry, "all": runs}


def table_of(section: str, entries: list[dict]) -> Table:
    table = Table(title=f"{section}: C={CHANNELS}, D={DIM}, float32, the fastest of all rounds")
    for heading in ("call", "before ms", "after ms", "after / before", "processor: after / before"):
        table.add_column(heading, justify="left" if heading == "call" else "right")
    for entry in entries:
        wall = entry["wall"]
        times = (f"{1000 * wall[name]:.1f}" for name in TREES)
        table.add_row(str(Case(**entry["case"])), *times, f"{wall['ratio']:.2f}", f"{entry['cpu']['ratio']:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=Path, help="the tree before the change")
    parser.add_argument("--after", type=Path, default=ROOT, help="the tree after it (default: this one)")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="parts to run (default: all)")
    parser.add_argument("--only", default="", help="run only calls whose name contains this")
    parser.add_argument("--quick", action="store_true", help="small clouds")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each call (default: {ROUNDS})")
    parser.add_argument("--out", default=common.RESULTS / "before_after.json", help="where the JSON goes")
    options = parser.parse_args()
    if options.worker:
        serve()
        return
    if options.before is None:
        parser.error("--before is missing: the tree before the change")
    console = common.wide_console()
    trees = {name: Tree(folder) for name, folder in zip(TREES, (options.before, options.after), strict=True)}
    sections = {}
    for section in options.sections:
        cases = [case for case in SECTIONS[section](options.quick) if options.only in str(case)]
        sections[section] = [
            compare(trees, case, options.rounds) for case in track(cases, f"measuring {section}", console=console)
        ]
        console.print(table_of(section, sections[section]))
    for tree in trees.values():
        tree.close()
    commits = {name: {"commit": tree.commit, "dirty": tree.dirty} for name, tree in trees.items()}
    content = {"provenance": common.provenance(), "trees": commits, "channels": CHANNELS, "dim": DIM, "sections": sections}
    common.write_json(options.out, content)
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
