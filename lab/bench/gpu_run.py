r"""Everything that needs a GPU, in 25 minutes, the most important first; what is done is kept.

    make gpu                                          # or: python lab/bench/gpu_run.py
    python lab/bench/gpu_run.py --minutes 9           # as much as fits; the same command goes on
    python lab/bench/gpu_run.py --only speed layers   # some steps, again if they are done
    python lab/bench/gpu_run.py --plan                # the steps and their commands; needs no GPU
    python lab/bench/gpu_run.py --quick               # small versions, on the CPU: do they run?

Each step is a command of its own with a limit of seconds. It writes its JSON, under the name that
``lab/bench/results`` has for it, and its output into ``gpu-results``, or the folder that ``--out``
names. ``steps.json`` there names the steps that are done and their commit; a step of another commit
is done again. ``summary.md`` has a line for each step and its marks. Nothing needs to be installed
but torch and what phgcn needs: the steps find the source in ``src`` and ``lab/src``.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from phgcn.files import read_json, write_json, write_text
from phgcn.provenance import source_commit
from phgcn_lab.markdown import table
from phgcn_lab.results import chosen, names

ROOT = Path(__file__).resolve().parents[2]
LAYER_TESTS = ("tests/nn/test_on_gpu.py", "tests/nn/test_local_conv.py", "tests/train/test_loop.py")
HOSTILE = ("--device", "cuda", "--only", "errors", "--dims", "2", "3", "4")
GRACE = 5.0  # Seconds that a step has to end after it was interrupted

Marks = Iterator[tuple[str, str, str, bool]]
"""What was measured, how much, the mark, and whether it is reached."""


class Step(NamedTuple):
    name: str
    words: tuple[str, ...]  # what Python runs; OUT stands for the path of its JSON or XML
    limit: float  # seconds after which it is ended
    file: str
    marks: Callable[[Any], Marks] = lambda content: iter(())  # takes the content of its file


def of_tests(report: Any) -> Marks:
    wrong = report["failures"] + report["errors"]
    passed = report["tests"] - wrong - report["skipped"]
    yield "tests", f"{passed} passed, {wrong} failed", "none fails", wrong == 0


def of_agreement(content: Any) -> Marks:
    for method in names(content["rows"], "method"):
        rows = chosen(content["rows"], method=method)
        ran = [row for row in rows if "failed" not in row]
        worst = max((max(row["errors"]) for row in ran), default=math.nan)
        text = f"{worst:.1e}, {len(rows) - len(ran)} of {len(rows)} did not run"
        good = len(ran) == len(rows) and worst <= 1e-10
        yield f"{method}, largest difference from the CPU", text, "≤ 1e-10", good
        same = sum(all(row["same_bits"].values()) for row in ran)
        yield f"{method}, the same bits", f"{same} of {len(rows)}", "all", same == len(rows)


def of_hostile(content: Any) -> Marks:
    worst = max(row["from_cpu"] for row in content["errors"]["rows"])
    what = "hostile clouds, largest difference from the CPU"
    yield what, f"{worst:.1e}", "≤ 1e-10", worst <= 1e-10


def of_speed(content: Any) -> Marks:
    for row in content["rows"]:
        if row["mark"] is not None:
            took = statistics.median(row["forward"])
            what = f"{row['method']}, {row['count']:,} points, {row['cloud']}, forward"
            yield what, f"{took:.2f} ms", f"≤ {row['mark']:g} ms", took <= row["mark"]


def of_large(content: Any) -> Marks:
    if memory := content.get("memory"):
        what = "out of memory is torch's error, the same bits afterwards"
        yield what, str(memory), "both", all(memory.values())


def of_products(content: Any) -> Marks:
    for row in content["rows"]:
        yield f"{row['model']}, a step", row.get("error", "fits"), "fits", "seconds" in row


def of_layers(content: Any) -> Marks:
    times = {name: t["median"] for name, t in content["times"].items()}
    for name, mark in (("EDAConv", 1 / 3), ("PHGCNConv", 2.0), ("PHGCNConv, clusters", 2.0)):
        ratio = times.get(name, math.nan) / times.get("GATConv", math.nan)
        yield f"{name} / GATConv", f"{ratio:.2f}x", f"≤ {mark:.2g}x", ratio <= mark


def of_exact(content: Any) -> Marks:
    took = 1000 * content["times"]["forward"]["median"]
    mark = content["mark_ms"]
    yield f"exact, {content['count']:,} points", f"{took:.1f} ms", f"≤ {mark:g} ms", took <= mark


def tests(name: str, limit: float, *paths: str) -> Step:
    together = ("--numprocesses", "8") if importlib.util.find_spec("xdist") else ()
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=OUT", *together, *paths)
    return Step(f"tests-{name}", words, limit, f"tests_{name}.xml", of_tests)


def bench(step: str, limit: float, name: str, *options: str, **about: Any) -> Step:
    words = ("lab/bench", name, *options, "--out", "OUT")
    return Step(step, words, limit, **{"file": f"{name}.json", **about})


STEPS = (
    tests("exact", 90, "tests/exact", "tests/structural"),
    tests("lattice", 240, "tests/lattice/triton", "tests/lattice/test_backends.py"),
    tests("layers", 120, *LAYER_TESTS),
    bench("agree", 180, "gpu_agree", marks=of_agreement),
    bench("hostile", 120, "hostile", *HOSTILE, file="hostile_gpu.json", marks=of_hostile),
    bench("speed", 90, "gpu_speed", marks=of_speed),
    bench("layers", 120, "gpu_layers", marks=of_layers),
    bench("large", 120, "gpu_large", marks=of_large),
    bench("products", 120, "products", marks=of_products),
    tests("nccl", 90, "tests/distributed/test_nccl.py"),
    bench("group", 90, "distributed", "--device", "cuda", file="distributed_gpu.json"),
    bench("exact", 60, "gpu_exact", marks=of_exact),
    bench("crossing", 90, "gpu_crossing"),
)
"""In the order of their importance. All limits together are more than 25 minutes, what they take
should be less.
"""


def quick_steps(steps: Sequence[Step]) -> list[Step]:
    """The measurements in their quick versions, which run without a GPU; no tests."""
    return [
        step._replace(words=(*step.words[:2], "--quick", "--out", "OUT"))
        for step in steps
        if step.words[0] == "lab/bench"
    ]


class Runner:
    """Runs steps into a folder until ``deadline``, and keeps what came out."""

    def __init__(self, steps: Sequence[Step], out: Path, deadline: float) -> None:
        self.steps, self.out, self.deadline = steps, out, deadline
        self.commit = source_commit()[0]
        path = out / "steps.json"
        self.kept: dict[str, dict[str, Any]] = read(path) if path.is_file() else {}

    def tried(self, step: Step) -> bool:
        return step.name in self.kept and self.kept[step.name]["commit"] == self.commit

    def done(self, step: Step) -> bool:
        return self.tried(step) and self.kept[step.name]["state"] == "done"

    def run(self, only: Sequence[str] = ()) -> None:
        """Runs the steps that are not done, or those that are named.

        Steps that failed or were cut off come after those that were never run.
        """
        waiting = [s for s in self.steps if (s.name in only if only else not self.done(s))]
        for step in sorted(waiting, key=self.tried):
            left = self.deadline - time.monotonic()
            if left < min(step.limit, 30.0):
                print(f"{step.name}: left for the next call, too little time", flush=True)
                continue
            print(f"{step.name}: {' '.join(step.words)}", flush=True)
            about = self.kept[step.name] = self._run(step, min(step.limit, left))
            write_json(self.out / "steps.json", self.kept)
            self.write_summary()
            print(f"{step.name}: {about['state']}, {about['seconds']:.0f} s", flush=True)

    def _run(self, step: Step, limit: float) -> dict[str, Any]:
        self.out.mkdir(parents=True, exist_ok=True)
        path = str((self.out / step.file).resolve())
        command = [sys.executable, *(word.replace("OUT", path) for word in step.words)]
        sources = [str(ROOT / "src"), str(ROOT / "lab" / "src"), os.environ.get("PYTHONPATH")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sources))}
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        begin = time.monotonic()
        with open(self.out / f"{step.name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                code = process.wait(limit)
                state = "done" if code == 0 else f"failed with code {code}"
            except subprocess.TimeoutExpired:
                state = f"cut off after {limit:.0f} s"
            finally:
                end_group(process)
        taken = {"state": state, "seconds": time.monotonic() - begin}
        return {**taken, "command": " ".join(step.words), "commit": self.commit, "date": date}

    def write_summary(self) -> None:
        rows, marks = [], []
        for step in self.steps:
            if (kept := self.kept.get(step.name)) is None:
                rows.append([step.name, "not run", "", "", ""])
                continue
            at = str(kept["commit"])[:7], kept["date"]
            rows.append([step.name, kept["state"], f"{kept['seconds']:.0f}", *at])
            try:
                found = list(step.marks(read(self.out / step.file)))
            # cut off before it wrote that
            except (OSError, KeyError, ValueError, ElementTree.ParseError) as error:
                found = [("result", f"not there: {type(error).__name__}", "", False)]
            words = {True: "reached", False: "**missed**"}
            marks += [[step.name, *texts, words[good]] for *texts, good in found]
        lines = ["# What the GPU said", ""]
        lines += [*table(["step", "state", "seconds", "commit", "date"], rows), ""]
        lines += table(["step", "what", "measured", "mark", ""], marks)
        write_text(self.out / "summary.md", "\n".join(lines) + "\n")


def end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def read(path: Path) -> Any:
    """Reads a JSON, or the counts of a JUnit report."""
    if path.suffix == ".json":
        return read_json(path)
    suite = ElementTree.parse(path).getroot()[0].attrib
    return {name: int(suite[name]) for name in ("tests", "failures", "errors", "skipped")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--minutes", type=float, default=25.0, help="begin and run nothing longer (default: 25)")
    add("--only", nargs="+", choices=[step.name for step in STEPS], default=[], metavar="STEP")
    add("--out", type=Path, default=ROOT / "gpu-results", help="(default: gpu-results)")
    add("--plan", action="store_true", help="only print the steps")
    add("--quick", action="store_true", help="small measurements, no tests")
    options = parser.parse_args(arguments)
    steps = quick_steps(STEPS) if options.quick else STEPS
    runner = Runner(steps, options.out, time.monotonic() + 60 * options.minutes)
    if options.plan:
        for step in steps:
            state = "done" if runner.done(step) else f"at most {step.limit:.0f} s"
            words = " ".join(step.words).replace("OUT", str(options.out / step.file))
            print(f"{step.name:14} {state:15} python {words}")
        return
    import torch

    if not options.quick and not torch.cuda.is_available():
        sys.exit("no CUDA device: these steps need one; --plan shows them")
    runner.run(options.only)


if __name__ == "__main__":
    main()
