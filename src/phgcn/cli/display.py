r"""What commands print: progress on stderr, results on stdout, as tables or as JSON."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ..text import printable

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..runtime.warm import Compilation

BAR = 8  # characters: with texts of a run, a line of 80 has room for no more
REDRAW = 0.1  # seconds between two updates of a bar
LOG = 10.0  # seconds between two lines of a log


def console(stderr: bool = False) -> Console:
    """Makes a console of the terminal's width; of 140 characters if the output goes to a file, so that tables fit."""
    terminal = Console(stderr=stderr)
    return terminal if terminal.is_terminal else Console(width=140, stderr=stderr)


def print_json(content: Any) -> None:
    """Prints JSON to stdout."""
    json.dump(content, sys.stdout, indent=1)
    sys.stdout.write("\n")


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], numbers_from: int = 1) -> Table:
    """Makes a table; columns from ``numbers_from`` on hold numbers and are aligned to the right."""
    made = Table(title=escape(printable(title)), title_justify="left")
    for column, heading in enumerate(headings):
        made.add_column(escape(printable(heading)), justify="right" if column >= numbers_from else "left")
    for row in rows:
        made.add_row(*(escape(printable(cell)) for cell in row))
    return made


def duration(seconds: float) -> str:
    """Formats seconds for a person: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def say(text: str) -> None:
    """Prints a line about what is going on to stderr."""
    print(printable(text), file=sys.stderr, flush=True)


class Display:
    """Shows progress: a bar if stderr is a terminal, else a line every ``every`` seconds."""

    def __init__(self, total: float, every: float = LOG) -> None:
        self.every, self.last = every, time.monotonic()
        terminal = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR),
            TextColumn("{task.fields[rest]}"),
        )
        self.bar = Progress(*columns, console=terminal, transient=True) if terminal.is_terminal else None
        self.task = self.bar.add_task("starting", total=total, rest="") if self.bar else None
        self.begin = time.monotonic()

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def due(self) -> bool:
        """Tells whether it is time for an update.  Called after every epoch, so it only reads the clock."""
        now = time.monotonic()
        if now - self.last < (REDRAW if self.bar else self.every):
            return False
        self.last = now
        return True

    def show(self, completed: float, text: str, rest: str) -> None:
        """Updates the bar, or prints a line: what is done, and the time left."""
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=completed, description=escape(text), rest=escape(rest))
        else:
            self.say(f"{text}, {rest}" if rest else text)

    def compile(self, compilation: Compilation) -> None:
        """Compiles kernels and shows how far that is; says nothing where all of them are kept."""
        total, expected, begin = len(compilation.kernels), compilation.seconds, time.monotonic()
        kernels = "kernels" if compilation.real == "float32" else f"{compilation.real} kernels"
        if expected:
            self.say(f"compiling {kernels}, once, about {duration(expected)}")

        def report(done: int) -> None:
            if self.due():
                left = (time.monotonic() - begin) / done * (total - done)
                self.show(0, f"compiled {done} of {total} {kernels}", f"about {duration(left)} left")

        compilation.run(report)
        if expected:
            self.say(f"compiled {total} {kernels} in {duration(time.monotonic() - begin)}")

    def say(self, text: str) -> None:
        """Prints lines above the bar."""
        text = "\n".join(printable(line) for line in text.splitlines())
        if self.bar:
            self.bar.console.print(escape(text), highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


# Results


def number(value: float) -> str:
    """Formats a number of any size for a person: four digits after the point, or after the first digits if it is large."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.5g}" if abs(value) >= 10 else f"{value:.4f}"


def show_result(result: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Prints the scores of a run, per split and on average, and whether its global path is used."""
    from ..train.global_path import describe_global_path
    from ..train.metrics import find_metric
    from ..train.yardsticks import describe_yardsticks

    if as_json:
        print_json({**result, "run": str(folder)})
        return
    scale = find_metric(result["metric"]).scale
    unit = " %" if scale == 100 else ""

    def score(value: float) -> str:
        if math.isnan(value):  # without test nodes, as in the protocol final
            return "-"
        return f"{scale * value:.2f}" if scale > 1 else number(value)

    title = f"{result['model']} on {result['graph']}, protocol {result['protocol']}, {result['metric']}{unit}"
    chosen, other = ("metric", "loss") if result["config"]["select"] == "metric" else ("loss", "metric")
    headings = (
        "split",
        f"test, by validation {chosen}",
        f"by {other}",
        "validation loss",
        "best epoch",
        "epochs",
        "ms per epoch",
    )
    rows = [
        (f"{row['split']}", score(row["test"]), score(row[f"test_at_best_val_{other}"]), f"{row['val_loss']:.4f}",
         row["best_epoch"], row["epochs"], f"{1000 * row['seconds_per_epoch']:.1f}")
        for row in result["splits"]
    ]  # fmt: skip
    out = console()
    out.print(table(title, headings, rows))
    shown = [("test", "test"), (f"test_at_best_val_{other}", f"test at best validation {other}")]
    if math.isnan(result["test"]["mean"]):
        shown = [("val_metric", "no test nodes; validation")]
    count = len(result["splits"])
    for key, label in shown:
        out.print(f"{label}: {mean_of(result[key], count, score)}{unit} ({_trainings(result['splits'])})", highlight=False)
    for line in describe_yardsticks(result):
        out.print(escape(printable(line)), highlight=False, soft_wrap=True)
    if result["search"] is not None:
        out.print(_search_table(result["search"]))
        out.print(escape(result["search"]["sentence"]), highlight=False, soft_wrap=True)
    else:
        out.print(describe_global_path(result["global_path"]), highlight=False, soft_wrap=True)
    seconds = (
        f"{result['epochs']} epochs in {duration(result['seconds'])}, {1000 * result['seconds_per_epoch']:.1f} ms per epoch"
    )
    out.print(f"{seconds}; written to {escape(str(folder))}", highlight=False, soft_wrap=True)
    if find_spec("plotly") is None:  # the page is drawn by its script
        return
    command = f"phgcn explore {shlex.quote(str(folder))}"
    out.print(f"to see what it attends to, in a browser: {escape(command)}", highlight=False, soft_wrap=True)


def mean_of(spread: Mapping[str, float | None], count: int, write: Callable[[float], str]) -> str:
    """Formats a mean, with its standard deviation where there are several values."""
    values = [value for value in (spread["mean"], spread["std"]) if value is not None]
    return " ± ".join(map(write, values if count > 1 else values[:1]))


def _trainings(rows: Sequence[Mapping[str, Any]]) -> str:
    splits = len({row["split"] for row in rows})
    repeats = f" x {len(rows) // splits} trainings" if len(rows) > splits else ""
    return f"{splits} split{'s' * (splits != 1)}{repeats}"


def _models(count: int) -> str:
    return "1 model" if count == 1 else f"{count} models"


def _search_table(seen: dict[str, Any]) -> Table:
    """Makes a table of what a search saw, the best candidate first."""
    from ..train.metrics import goodness
    from ..train.search import format_score

    def order(row: dict[str, Any]) -> float:
        return -math.inf if row["val_metric"] is None else goodness(seen["metric"], row["val_metric"])

    rows = [
        (
            f"{row['candidate']}{' (chosen)' * (row['candidate'] == seen['chosen'])}",
            "yes" if row["attention"] else "no",
            "-" if row["val_metric"] is None else format_score(seen["metric"], row["val_metric"]),
            row["epochs"],
            duration(row["seconds"]),
        )
        for row in sorted(seen["candidates"], key=order, reverse=True)
    ]
    title = f"Search on the {seen['nodes']}: {seen['epochs']:,} epochs in {duration(seen['seconds'])}"
    return table(title, ("candidate", "attention to all", "validation", "epochs", "time"), rows)


def say_notes(notes: Sequence[str]) -> None:
    """Prints what is worth telling about the file of a graph to stderr."""
    for note in notes:
        print(printable(note), file=sys.stderr)


def show_evaluation(result: dict[str, Any], as_json: bool) -> None:
    """Prints what the task tells of its predictions, what global attention attends to, and the metrics."""
    if as_json:
        print_json(result)
        return
    say_notes(result["notes"])
    out = console()
    for shown in (*_detail_tables(result), *_global_attention(result)):
        out.print(shown, highlight=False, soft_wrap=isinstance(shown, str))
    if result["search"] is not None:
        out.print(escape(result["search"]["sentence"]), highlight=False, soft_wrap=True)
    if "attention_error" in result:
        out.print(_attention_error_table(result["attention_error"]))
    others = {name: spread for name, spread in result["scores"].items() if name != result["metric"]}
    models = len(result["splits"])
    for name, spread in others.items():
        out.print(f"{name}: {mean_of(spread, models, number)}", highlight=False)
    out.print(
        f"test {result['metric']}: {mean_of(result['test'], models, number)} over {_models(models)}, {_where_scored(result)}",
        highlight=False,
        soft_wrap=True,
    )


def _where_scored(result: dict[str, Any]) -> str:
    if result["as_recorded"] is None:
        return f"on the {result['nodes']:,} labelled nodes of {printable(result['graph'])}, which was not trained on"
    return "as recorded" if result["as_recorded"] else "NOT as recorded in result.json"


def _detail_tables(result: dict[str, Any]) -> list[Table]:
    """Makes the tables of what a task tells: confusions, scores per class, errors."""
    tables, names = [], result["classes"]
    if "confusion" in result:
        rows = [(name, *counts) for name, counts in zip(names, result["confusion"], strict=True)]
        title = "Test nodes of all splits: class (rows) and predicted class (columns)"
        tables.append(table(title, ("class", *names), rows))
    if "per_class" in result:
        scores = [(row["class"], row["nodes"], _share(row["recall"]), _share(row["precision"])) for row in result["per_class"]]
        tables.append(table("Per class", ("class", "test nodes", "recall", "precision"), scores))
    if "errors" in result:
        errors = [(name, number(value)) for name, value in result["errors"].items()]
        tables.append(table("Absolute errors of test nodes of all splits", ("", "error"), errors))
    return tables


def _global_attention(result: dict[str, Any]) -> list[Table | str]:
    """Makes a table of what each head attends to, and a line that sums it up; nothing of a graph that was not trained on."""
    from ..train.global_path import describe_global_path, head_medians

    if result["as_recorded"] is None:
        return []
    shown: list[Table | str] = []
    if heads := head_medians([row["global_attention"] for row in result["splits"]]):
        columns = ("layer", "head", "decay", "spread x decay", "nodes attended to", "share on itself", "gate")
        cells = [tuple(f"{value:.3g}" for value in row.values()) for row in heads]
        shown.append(table("Global attention, medians over nodes and splits", columns, cells, numbers_from=0))
    return [*shown, describe_global_path(result["global_path"])]


def _attention_error_table(rows: list[dict[str, Any]]) -> Table:
    """Makes a row per layer and head: for each method its error, and the cosine of its gradient with the exact one."""
    methods = [key for key in (rows[0] if rows else ()) if key not in ("layer", "head", "spread")]
    cells: list[list[object]] = []
    for row in rows:
        errors = [f"{row[name]['deviation']:.4f} / {row[name]['gradient_cosine']:.4f}" for name in methods]
        cells.append([row["layer"], row["head"], f"{row['spread']:.2f}", *errors])
    title = "Methods on the embeddings of the best model: error against the deviation / cosine of the gradient"
    return table(title, ("layer", "head", "spread x decay", *methods), cells, numbers_from=0)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def show_predictions(result: dict[str, Any], as_json: bool) -> None:
    """Prints how many nodes each class was predicted for, or the range of numbers, and the file."""
    from ..files import is_standard_output

    if as_json:
        print_json(result)
        return
    say_notes(result["notes"])
    counts = ", ".join(f"{name}: {count:.6g}" for name, count in result["predicted"].items())
    text = f"{result['nodes']} nodes of {result['graph']} by the model of split {result['split']} ({counts})"
    trained = result["trained"]
    if trained and trained["test"]:
        share = 100 * trained["train"] / sum(trained.values())
        text += f"; it learned from {share:.0f} % of the labels, `phgcn train ... --protocol final` makes one of all but those"
        text += " that choose the epoch"
    if is_standard_output(result["file"]):  # taken by the predictions
        print(printable(text), file=sys.stderr)
        return
    console().print(f"{escape(printable(text))}; written to {escape(result['file'])}", highlight=False, soft_wrap=True)


def show_tuning(result: dict[str, Any], reading: list[str], as_json: bool) -> None:
    """Prints the best settings, and the command that trains with them; ``reading`` are the options that say how the graph is
    read."""
    if as_json:
        print_json(result)
        return
    best, out, written = result["best"], console(), result["config"]
    rows = [(key, value, "yes" if key in result["varied"] else "") for key, value in best["settings"].items()]
    title = f"Best of {len(result['trials'])} trials: number {best['number']}, mean validation loss {best['val_loss']:.4f}"
    out.print(table(title, ("setting", "value", "varied"), rows))
    command = shlex.join(["phgcn", "train", result["source"], "--config", written, *reading])
    out.print(escape(f"written to {written}, for: {command}"), highlight=False, soft_wrap=True)


def show_comparison(compared: dict[str, Any], as_json: bool) -> None:
    """Prints the scores of runs side by side, and their differences from the best one."""
    from ..files import is_standard_output
    from ..train.metrics import find_metric

    if as_json:
        print_json(compared)
        return
    scale = find_metric(compared["metric"]).scale
    unit = " %" if scale == 100 else ""

    def score(value: float) -> str:
        return f"{scale * value:.2f}" if scale > 1 else number(value)

    rows = []
    for place, row in enumerate(compared["runs"]):
        wins = "" if row["wins"] is None or place == 0 else f"{row['wins']} of {len(row['tests'])}"
        count = len(row["tests"])
        difference = "" if place == 0 else mean_of(row["difference"], count, score)
        rows.append((row["run"], row["model"], mean_of(row["test"], count, score), difference, wins, duration(row["seconds"])))
    headings = ("run", "model", f"test{unit}", "difference", "better in", "time")
    out = console(stderr=is_standard_output(compared.get("file", "")))  # standard output is taken by the picture
    out.print(table(f"Runs on {compared['graph']}, {compared['metric']}{unit}, the best first", headings, rows, numbers_from=2))
    if not compared["paired"]:
        out.print("protocols, seeds or numbers of splits differ: runs are not compared split by split", highlight=False)
    if "file" in compared:
        out.print(f"written to {escape(compared['file'])}", highlight=False, soft_wrap=True)


def show_files(files: Sequence[Path], as_json: bool) -> None:
    """Prints the files that were written."""
    from ..files import is_standard_output

    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        if not is_standard_output(file):
            print(f"written to {file}")
