r"""What the training loop adds to the layers' own time, and the time per epoch, for every model on pubmed.

    python benchmarks/training.py             # some minutes
    python benchmarks/training.py --quick     # on texas, few epochs, to see that it works

The layers' own time is that of forward, loss, backward, Adam's step, and the forward of an evaluation; the loop of ``phgcn
train`` adds metrics, the choice of the best epoch, curves, a checkpoint and the progress display.  Both are timed in the same
epochs; the mark is 10 % more at most.  As a check, a bare loop of nothing but the layers takes turns with it, round after
round.  Also measured: how long ``phgcn --help`` takes.  Writes ``benchmarks/results/training.json``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import common
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from phgcn.cli.display import TrainingDisplay
from phgcn.registry import model_names
from phgcn.train import Moment, Plan, Run, Settings, find
from phgcn.train.run import prepare, seeded, start

MARK, HELP_MARK = 1.10, 1.0
HELP_RUNS = 5


def bare(plan: Plan, task) -> Callable[[], None]:
    """An epoch of nothing but the layers and the optimiser."""
    training = start(plan, task)
    model, optimiser = training.model, training.optimiser

    def epoch() -> None:
        model.train()
        optimiser.zero_grad()
        cross_entropy(model(*task.inputs)[task.train], training.train_y).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            model(*task.inputs)

    return epoch


def whole(plan: Plan, task, run: Run, layers: list[float]) -> Callable[[], None]:
    """An epoch as ``phgcn train`` does it; notes down the seconds that its layers take."""
    training, trial, display = start(plan, task), plan.trials()[0], TrainingDisplay(plan)

    def timed(part: Callable) -> Callable:
        def call():
            begin = time.perf_counter()
            found = part()
            layers.append(time.perf_counter() - begin)
            return found

        return call

    training._step, training._logits = timed(training._step), timed(training._logits)  # type: ignore[method-assign]

    def epoch() -> None:
        row = training.epoch()
        run._save(trial, training)
        display.told(Moment(trial, training.state.epoch, row, training.best.val_loss))

    return epoch


def measure(model: str, graph: str, rounds: int, epochs: int, progress: Callable[[str], None]) -> dict:
    """Seconds per epoch, medians over rounds: of the bare loop, of the whole one, and of the layers within that."""
    source, data = find(graph)
    plan = Plan(source, model=model, splits=1, settings=Settings(epochs=10**6, patience=10**6))
    task = prepare(plan, data)[0]
    times: dict[str, list[float]] = {"bare": [], "whole": [], "layers": []}
    layers: list[float] = []
    with tempfile.TemporaryDirectory() as folder, seeded(0, task):
        run = Run.create(Path(folder) / "run", plan, data)
        jobs = {"bare": bare(plan, task), "whole": whole(plan, task, run, layers)}
        for number in range(rounds + 1):  # the first warms up
            progress(f"{model}: round {number} of {rounds}")
            for name in sorted(jobs, reverse=bool(number % 2)):
                layers.clear()
                begin = time.perf_counter()
                for _ in range(epochs):
                    jobs[name]()
                if number:
                    times[name].append((time.perf_counter() - begin) / epochs)
                if number and name == "whole":
                    times["layers"].append(sum(layers) / epochs)
    medians = {name: statistics.median(found) for name, found in times.items()}
    ratio = statistics.median(all_of / own for all_of, own in zip(times["whole"], times["layers"], strict=True))
    return {**medians, "ratio": ratio, "whole over bare": medians["whole"] / medians["bare"], "all": times}


def help_seconds() -> float:
    """The median time of ``phgcn --help`` in a process of its own."""
    command = [str(Path(sys.executable).with_name("phgcn")), "--help"]
    runs = [common.seconds(lambda: subprocess.run(command, capture_output=True, check=True)) for _ in range(HELP_RUNS + 1)]
    return statistics.median(runs[1:])


def report(console: Console, graph: str, found: dict[str, dict], taken: float) -> None:
    table = Table(title=f"Time per epoch on {graph}, default settings")
    for heading in ("model", "layers ms", "loop ms", "ratio", f"<= {MARK:.2f}", "bare loop ms", "loop / bare"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for model, row in found.items():
        said = "[green]reached[/]" if row["ratio"] <= MARK else "[red]missed[/]"
        times = [f"{1000 * row[name]:.1f}" for name in ("layers", "whole", "bare")]
        table.add_row(model, times[0], times[1], f"{row['ratio']:.3f}", said, times[2], f"{row['whole over bare']:.3f}")
    console.print(table)
    console.print(f"phgcn --help: {taken:.2f} s, mark {HELP_MARK:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="on texas, few epochs; the marks mean nothing then")
    parser.add_argument("--rounds", type=int, default=None, help="how often each loop runs (default: 6, quick: 2)")
    parser.add_argument("--epochs", type=int, default=None, help="epochs each time (default: 5, quick: 2)")
    parser.add_argument("--models", nargs="+", default=model_names(), choices=model_names(), help="which models (default: all)")
    parser.add_argument("--out", default=common.RESULTS / "training.json", help="where the JSON goes")
    options = parser.parse_args()
    graph = "texas" if options.quick else "pubmed"
    rounds, epochs = options.rounds or (2 if options.quick else 6), options.epochs or (2 if options.quick else 5)
    console = common.wide_console()
    with console.status("starting") as status:
        taken = help_seconds()
        found = {model: measure(model, graph, rounds, epochs, status.update) for model in options.models}
    report(console, graph, found, taken)
    marks = [{"what": f"{model}: loop / layers", "value": row["ratio"], "mark": MARK} for model, row in found.items()]
    marks.append({"what": "phgcn --help", "value": taken, "mark": HELP_MARK})
    for mark in marks:
        mark["reached"] = mark["value"] <= mark["mark"]
    about = {"provenance": common.provenance(), "quick": options.quick, "graph": graph, "rounds": rounds, "epochs": epochs}
    common.write_json(options.out, {**about, "marks": marks, "models": found, "help_seconds": taken})
    console.print(f"{sum(mark['reached'] for mark in marks)} of {len(marks)} marks reached; written to {options.out}")


if __name__ == "__main__":
    main()
