r"""What ``phgcn train`` adds to the layers' own time, and the time per epoch, for every model on pubmed.

    python benchmarks/training.py             # some minutes
    python benchmarks/training.py --quick     # on texas, two seconds each, to see that it works

The layers' own time is that of forward, loss, backward, Adam's step, and the forward of an evaluation.  ``phgcn train`` adds
metrics, the choice of the best epoch, curves, checkpoints and the progress display.  Both are timed in the same epochs of a
real run; the mark is 10 % more at most, and checkpoints alone take 5 % at most.  As a check, a bare loop of nothing but the
layers takes turns with it, round after round.  Also measured: how long ``phgcn --help`` takes.  Writes
``benchmarks/results/training.json``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import common
import torch
from epochs import WARM_UP, time_epochs
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from phgcn.cli.display import TrainingDisplay
from phgcn.registry import model_names
from phgcn.train import Plan, Settings, Task, Training, find
from phgcn.train.checkpoints import SHARE
from phgcn.train.prepare import prepare, seeded, start

MARK, HELP_MARK = 1.10, 1.0
HELP_RUNS = 5


def bare_seconds(plan: Plan, task: Task, seconds: float) -> float:
    """Times epochs of nothing but the layers and the optimiser, for so many seconds; returns the time of one."""
    with seeded(common.SEED, task):
        training = start(plan, task)
        model, optimiser, ends = training.model, training.optimiser, [0.0]
        while len(ends) <= WARM_UP + 1 or ends[-1] - ends[WARM_UP] < seconds:
            model.train()
            optimiser.zero_grad()
            cross_entropy(model(*task.inputs)[task.train], training.train_y).backward()
            optimiser.step()
            model.eval()
            with torch.no_grad():
                model(*task.inputs)
            ends.append(time.perf_counter())
    return (ends[-1] - ends[WARM_UP]) / (len(ends) - 1 - WARM_UP)


@contextmanager
def layers_timed() -> Iterator[list[float]]:
    """Yields a list that gets the seconds of every step and every evaluation of trainings in this context."""
    seconds: list[float] = []
    originals = {name: getattr(Training, name) for name in ("_step", "_logits")}

    def timed(part: Callable) -> Callable:
        def call(self: Training) -> torch.Tensor:
            begin = time.perf_counter()
            out = part(self)
            seconds.append(time.perf_counter() - begin)
            return out

        return call

    try:
        for name, part in originals.items():
            setattr(Training, name, timed(part))
        yield seconds
    finally:
        for name, part in originals.items():
            setattr(Training, name, part)


def measure(model: str, graph: str, rounds: int, seconds: float, progress: Callable[[str], None]) -> dict:
    """Measures seconds per epoch, medians over rounds: of the bare loop, of a run, and of layers and checkpoints in it."""
    source, data = find(graph)
    plan = Plan(source, model=model, splits=1, settings=Settings(epochs=10**6, patience=10**6))
    task = prepare(plan, data)[0]
    times: dict[str, list[float]] = {"bare": [], "whole": [], "layers": [], "checkpoints": []}
    for number in range(rounds):
        progress(f"{model}: round {number + 1} of {rounds}")
        times["bare"].append(bare_seconds(plan, task, seconds))
        with layers_timed() as layers:
            run = time_epochs(plan, data, seconds, TrainingDisplay(plan).on_epoch)
        times["whole"].append(run.seconds)
        times["layers"].append(sum(layers[-2 * run.epochs :]) / run.epochs)  # a step and an evaluation each
        times["checkpoints"].append(run.checkpoint_seconds)
    medians = {name: statistics.median(all_rounds) for name, all_rounds in times.items()}
    ratio = statistics.median(whole / layers for whole, layers in zip(times["whole"], times["layers"], strict=True))
    share = sum(times["checkpoints"]) / sum(times["whole"])
    return {**medians, "ratio": ratio, "checkpoint_share": share,
            "whole over bare": medians["whole"] / medians["bare"], "all": times}  # fmt: skip


def help_seconds() -> float:
    """Returns the median time of ``phgcn --help`` in a process of its own."""
    command = [str(Path(sys.executable).with_name("phgcn")), "--help"]
    runs = [common.seconds(lambda: subprocess.run(command, capture_output=True, check=True)) for _ in range(HELP_RUNS + 1)]
    return statistics.median(runs[1:])


def report(console: Console, graph: str, found: dict[str, dict], taken: float) -> None:
    table = Table(title=f"Time per epoch on {graph}, default settings")
    for heading in ("model", "layers ms", "loop ms", "ratio", f"<= {MARK:.2f}", "checkpoints", "bare loop ms", "loop / bare"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for model, row in found.items():
        said = "[green]reached[/]" if row["ratio"] <= MARK else "[red]missed[/]"
        times = [f"{1000 * row[name]:.1f}" for name in ("layers", "whole", "bare")]
        ratios = f"{row['ratio']:.3f}", said, f"{row['checkpoint_share']:.1%}"
        table.add_row(model, times[0], times[1], *ratios, times[2], f"{row['whole over bare']:.3f}")
    console.print(table)
    console.print(f"phgcn --help: {taken:.2f} s, mark {HELP_MARK:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="on texas, two seconds each; the marks mean nothing then")
    parser.add_argument("--rounds", type=int, default=None, help="how often each loop runs (default: 4, quick: 1)")
    parser.add_argument("--seconds", type=float, default=None, help="how long each time (default: 5, quick: 2)")
    parser.add_argument("--models", nargs="+", default=model_names(), choices=model_names(), help="which models (default: all)")
    parser.add_argument("--out", default=common.RESULTS / "training.json", help="where the JSON goes")
    options = parser.parse_args()
    graph = "texas" if options.quick else "pubmed"
    rounds, seconds = options.rounds or (1 if options.quick else 4), options.seconds or (2.0 if options.quick else 5.0)
    console = common.wide_console()
    with console.status("starting") as status:
        taken = help_seconds()
        found = {model: measure(model, graph, rounds, seconds, status.update) for model in options.models}
    report(console, graph, found, taken)
    marks = [{"what": f"{model}: loop / layers", "value": row["ratio"], "mark": MARK} for model, row in found.items()]
    for model, row in found.items():
        marks.append({"what": f"{model}: share of checkpoints", "value": row["checkpoint_share"], "mark": SHARE})
    marks.append({"what": "phgcn --help", "value": taken, "mark": HELP_MARK})
    for mark in marks:
        mark["reached"] = mark["value"] <= mark["mark"]
    about = {"provenance": common.provenance(), "quick": options.quick, "graph": graph, "rounds": rounds, "seconds": seconds}
    common.write_json(options.out, {**about, "marks": marks, "models": found, "help_seconds": taken})
    console.print(f"{sum(mark['reached'] for mark in marks)} of {len(marks)} marks reached; written to {options.out}")


if __name__ == "__main__":
    main()
