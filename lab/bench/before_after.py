r"""Two source trees side by side: how long the same calls take before and after a change.

Each tree runs in a process of its own.  The two take turns, so that what else the machine does hits
both alike, and each call is taken at its fastest.  The time of the processor, of all threads
together, says more than the clock where others share it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
DIM, CHANNELS, CLUSTERS = 4, 17, 6
CLOUDS = ("spread 1", "spread 3", "spread 10", "clusters")
COUNTS, QUICK_COUNTS = (20_000, 200_000), (2_000,)

Case = dict[str, Any]
"""The options of :func:`filter_call`, or of :func:`layer_step` where there is a layer."""


# One tree, in a process of its own: uses only what both trees have


def filter_call(method: str, count: int, cloud: str, backward: bool) -> Callable[[], object]:
    import phgcn

    random = torch.Generator().manual_seed(0)
    points = torch.randn(count, DIM, generator=random)
    if cloud == "clusters":
        centres = 10 * torch.randn(CLUSTERS, DIM, generator=random)
        points += centres[torch.randint(CLUSTERS, (count,), generator=random)]
    else:
        points *= float(cloud.split()[1])
    values, grad = (torch.randn(count, CHANNELS, generator=random) for _ in range(2))
    leaves = [t.requires_grad_(backward) for t in (points, values)]

    def call() -> None:
        out = phgcn.global_attention(*leaves, decay=1.0, method=method)
        if backward:
            torch.autograd.grad(out, leaves, grad)

    return call


def layer_step(layer: str, nodes: int, edges: int) -> Callable[[], object]:
    """A training step of a layer of 8 heads x 8 channels."""
    import phgcn.nn

    random = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, 64, generator=random)
    edge_index = torch.randint(nodes, (2, edges), generator=random)
    torch.manual_seed(0)
    conv = getattr(phgcn.nn, layer)(64, 8, heads=8)

    def step() -> None:
        conv.zero_grad()
        conv(x, edge_index).square().mean().backward()

    return step


def work() -> None:
    """Reads cases as lines of JSON, and answers each with its times in milliseconds."""
    calls: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        if line not in calls:
            case = json.loads(line)
            calls = {line: (layer_step if "layer" in case else filter_call)(**case)}
            calls[line]()  # compiles kernels
        clock, processor = time.perf_counter(), time.process_time()
        calls[line]()
        taken = {"wall": time.perf_counter() - clock, "cpu": time.process_time() - processor}
        print(json.dumps({key: 1000 * value for key, value in taken.items()}), flush=True)


# Both trees

if __name__ == "__main__":
    work()
    sys.exit()

from registry import measurement  # noqa: E402, not of the trees

from phgcn_lab.markdown import table  # noqa: E402


def cases(quick: bool) -> Iterator[Case]:
    for count in QUICK_COUNTS if quick else COUNTS:
        for cloud in CLOUDS:
            for backward in (False, True):
                yield {"method": "lattice", "count": count, "cloud": cloud, "backward": backward}
    nodes, edges = (300, 1_000) if quick else (19_717, 88_648)
    yield {"layer": "PHGCNConv", "nodes": nodes, "edges": edges}


def start(folder: Path) -> subprocess.Popen[str]:
    if not (folder / "src" / "phgcn").is_dir():
        raise SystemExit(f"{folder} has no src/phgcn; allowed: the root of a checkout")
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve() / "src")}
    command, pipe = [sys.executable, __file__], subprocess.PIPE
    return subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)


def ask(process: subprocess.Popen[str], case: Case) -> dict[str, float]:
    """Takes one measurement of a case: ``{"wall": ms, "cpu": ms}``."""
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps(case), file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"the process ended with {process.wait()} in {case}")
    found: dict[str, float] = json.loads(answer)
    return found


def commit_of(folder: Path) -> str:
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=7"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def before_after_table(measured: dict[str, Any]) -> list[str]:
    trees, rows = measured["trees"], []
    for row in measured["rows"]:
        case, least = row["case"], row["least"]
        name = f"{case['layer']}, {case['nodes']:,} nodes, a step" if "layer" in case else ""
        way = "with gradients" if case.get("backward") else "forward"
        name = name or f"`{case['method']}`, N = {case['count']:,}, {case['cloud']}, {way}"
        ms = [f"{least[tree]['cpu']:.0f}" for tree in ("before", "after")]
        ratios = [f"{least['after'][k] / least['before'][k]:.2f}" for k in ("cpu", "wall")]
        rows.append([name, *ms, *ratios])
    about = measured["provenance"]
    return [
        f"Commits {trees['before']} and {trees['after']}, {about['date'][:10]}, load "
        f"{about['load']} before, processor time:",
        "",
        *table(["call", "before, ms", "after, ms", "after / before", "by the clock"], rows),
    ]


@measurement(
    tables=before_after_table,
    quick="small clouds",
    before={"type": Path, "required": True, "help": "the tree before the change"},
    after={"type": Path, "default": ROOT, "help": "the tree after it (default: this one)"},
    only={"default": "", "help": "cases with this in their options"},
    rounds={"type": int, "default": 5, "help": "how often the trees take turns (default: 5)"},
)
def before_after(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Times of the lattice and of a layer in two source trees that take turns."""
    folders = {"before": options.before, "after": options.after}
    trees = {name: start(folder) for name, folder in folders.items()}
    content: dict[str, Any] = {"trees": {n: commit_of(f) for n, f in folders.items()}, "rows": []}
    for case in cases(options.quick):
        if options.only not in str(case):
            continue
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for _ in range(options.rounds):
            for name, tree in trees.items():
                taken[name].append(ask(tree, case))
        least = {
            name: {key: min(row[key] for row in rows) for key in ("wall", "cpu")}
            for name, rows in taken.items()
        }
        content["rows"].append({"case": case, "least": least, "all": taken})
        yield content
    for tree in trees.values():
        assert tree.stdin is not None
        tree.stdin.close()
        tree.wait()
