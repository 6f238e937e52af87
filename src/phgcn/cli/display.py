"""Output of commands: lines on stderr, results on stdout, as tables or as JSON."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..text import printable


def console(stderr: bool = False) -> Console:
    """Makes a console of the terminal's width; of 140 characters if there is no terminal."""
    terminal = Console(stderr=stderr)
    return terminal if terminal.is_terminal else Console(width=140, stderr=stderr)


def print_json(content: Any) -> None:
    json.dump(content, sys.stdout, indent=1)
    sys.stdout.write("\n")


def print_line(out: Console, text: str) -> None:
    """Prints a line as it is, at any width of the console."""
    out.print(escape(printable(text)), highlight=False, soft_wrap=True)


def table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], numbers_from: int = 1
) -> Table:
    """Makes a table; columns from ``numbers_from`` on hold numbers and are aligned to the right."""
    made = Table(title=escape(printable(title)), title_justify="left")
    for column, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if column >= numbers_from else "left"
        made.add_column(escape(printable(heading)), justify=side)
    for row in rows:
        made.add_row(*(escape(printable(cell)) for cell in row))
    return made


def duration(seconds: float) -> str:
    """Formats seconds: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def say(text: str) -> None:
    """Prints a line of progress to stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def say_notes(notes: Sequence[str]) -> None:
    """Prints notes about a graph to stderr."""
    for note in notes:
        say(note)


# Results


def number(value: float) -> str:
    """Formats a number, large ones with fewer digits."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.5g}" if abs(value) >= 10 else f"{value:.4f}"


class Score:
    """Formats values of a metric in its unit; ``-`` for none."""

    def __init__(self, metric: str) -> None:
        from ..train.metrics import find_metric

        self.scale = find_metric(metric).scale
        self.unit = " %" if self.scale == 100 else ""

    def __call__(self, value: float) -> str:
        if math.isnan(value):
            return "-"
        return f"{self.scale * value:.2f}" if self.scale > 1 else number(value)


def show_result(result: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Prints the scores of a run, per split and on average, and the use of its global path."""
    from ..train.global_path import describe_global_path
    from ..train.yardsticks import describe_yardsticks

    if as_json:
        print_json({**result, "run": str(folder)})
        return
    out, score, splits = console(), Score(result["metric"]), result["splits"]
    chosen, other = "loss", "metric"
    if result["config"]["select"] == "metric":
        chosen, other = other, chosen
    by_other = f"test_at_best_val_{other}"
    out.print(_splits_table(result, score, chosen, other))
    shown = {"test": "test", by_other: f"test at best validation {other}"}
    if math.isnan(result["test"]["mean"]):
        shown = {"val_metric": "no test nodes; validation"}
    for key, label in shown.items():
        mean = mean_of(result[key], len(splits), score)
        print_line(out, f"{label}: {mean}{score.unit} ({_trainings(splits)})")
    for line in describe_yardsticks(result):
        print_line(out, line)
    if result["search"] is not None:
        out.print(_search_table(result["search"]))
        print_line(out, result["search"]["sentence"])
    else:
        print_line(out, describe_global_path(result["global_path"], result["config"]))
    epoch = f"{1000 * result['seconds_per_epoch']:.1f} ms per epoch"
    seconds = f"{result['epochs']} epochs in {duration(result['seconds'])}, {epoch}"
    print_line(out, f"{seconds}; written to {folder}")
    if find_spec("plotly") is not None:  # its script draws the page
        print_line(out, f"to see it in a browser: phgcn explore {shlex.quote(str(folder))}")


def _splits_table(result: dict[str, Any], score: Score, chosen: str, other: str) -> Table:
    """Makes a row per training; ``chosen``, loss or metric, chose the epoch that counts."""
    run = f"{result['model']} on {result['graph']}, protocol {result['protocol']}"
    test = f"test, by validation {chosen}"
    ends = ("validation loss", "best epoch", "epochs", "ms per epoch")
    rows = [
        (
            f"{row['split']}",
            score(row["test"]),
            score(row[f"test_at_best_val_{other}"]),
            f"{row['val_loss']:.4f}",
            row["best_epoch"],
            row["epochs"],
            f"{1000 * row['seconds_per_epoch']:.1f}",
        )
        for row in result["splits"]
    ]
    title = f"{run}, {result['metric']}{score.unit}"
    return table(title, ("split", test, f"by {other}", *ends), rows)


def mean_of(spread: Mapping[str, float | None], count: int, write: Callable[[float], str]) -> str:
    """Formats a mean, with its standard deviation where there are several values."""
    values = [value for value in (spread["mean"], spread["std"]) if value is not None]
    return " ± ".join(map(write, values if count > 1 else values[:1]))


def _trainings(rows: Sequence[Mapping[str, Any]]) -> str:
    splits = len({row["split"] for row in rows})
    repeats = f" x {len(rows) // splits} trainings" if len(rows) > splits else ""
    return f"{splits} split{'s' * (splits != 1)}{repeats}"


def _search_table(seen: dict[str, Any]) -> Table:
    """Makes a table of a search's candidates, the best first."""
    from ..train.metrics import goodness
    from ..train.verdict import format_score

    def order(row: dict[str, Any]) -> float:
        value = row["val_metric"]
        return -math.inf if value is None else goodness(seen["metric"], value)

    rows = []
    for row in sorted(seen["candidates"], key=order, reverse=True):
        value = row["val_metric"]
        score = "-" if value is None else format_score(seen["metric"], value)
        attention = "yes" if row["attention"] else "no"
        name, seconds = _candidate_name(seen, row), duration(row["seconds"])
        rows.append((name, attention, score, row["epochs"], seconds))
    epochs = f"{seen['epochs']:,} epochs in {duration(seen['seconds'])}"
    headings = ("candidate", "attention to all", "validation", "epochs", "time")
    return table(f"Search on the {seen['nodes']}: {epochs}", headings, rows)


def _candidate_name(seen: dict[str, Any], row: dict[str, Any]) -> str:
    """Returns a candidate's name, with its split, and whether it was chosen."""
    split = row.get("split")
    of = seen if split is None else seen["splits"][split]
    where = "" if split is None else f", split {split}"
    return f"{row['candidate']}{where}{' (chosen)' * (row['candidate'] == of['chosen'])}"


def show_evaluation(result: dict[str, Any], as_json: bool) -> None:
    """Prints predictions by class, statistics of global attention, and the metrics."""
    from ..train.global_path import describe_global_path

    if as_json:
        print_json(result)
        return
    say_notes(result["notes"])
    out, models = console(), len(result["splits"])
    for shown in _detail_tables(result):
        out.print(shown)
    if result["as_recorded"] is not None:  # nothing is known of a graph that was not trained on
        for shown in _head_tables(result):
            out.print(shown)
        print_line(out, describe_global_path(result["global_path"], result["config"]))
    if result["search"] is not None:
        print_line(out, result["search"]["sentence"])
    if "attention_error" in result:
        out.print(_attention_error_table(result["attention_error"]))
    for name, spread in result["scores"].items():
        if name != result["metric"]:
            other = Score(name)
            print_line(out, f"{name}: {mean_of(spread, models, other)}{other.unit}")
    score = Score(result["metric"])
    test = f"test {result['metric']}: {mean_of(result['test'], models, score)}{score.unit}"
    over = "1 model" if models == 1 else f"{models} models"
    print_line(out, f"{test} over {over}, {_where_scored(result)}")
    for line in result["yardsticks"]:
        print_line(out, line)


def _where_scored(result: dict[str, Any]) -> str:
    if result["as_recorded"] is None:
        nodes = f"the {result['nodes']:,} labelled nodes of {result['graph']}"
        return f"on {nodes}, which was not trained on"
    return "as recorded" if result["as_recorded"] else "NOT as recorded in result.json"


def _detail_tables(result: dict[str, Any]) -> list[Table]:
    tables, names = [], result["classes"]
    if "confusion" in result:
        rows = [(name, *counts) for name, counts in zip(names, result["confusion"], strict=True)]
        title = "Test nodes of all splits: class (rows) and predicted class (columns)"
        tables.append(table(title, ("class", *names), rows))
    if "per_class" in result:
        scores = [
            (row["class"], row["nodes"], _share(row["recall"]), _share(row["precision"]))
            for row in result["per_class"]
        ]
        tables.append(table("Per class", ("class", "test nodes", "recall", "precision"), scores))
    if "errors" in result:
        errors = [(name, number(value)) for name, value in result["errors"].items()]
        tables.append(table("Absolute errors of test nodes of all splits", ("", "error"), errors))
    return tables


def _head_tables(result: dict[str, Any]) -> list[Table]:
    from ..train.global_path import head_medians

    heads = head_medians([row["global_attention"] for row in result["splits"]])
    named = ("layer", "head", "decay", "spread x decay", "nodes attended to", "share on itself")
    cells = [tuple(f"{value:.3g}" for value in row.values()) for row in heads]
    title = "Global attention, medians over nodes and splits"
    return [table(title, (*named, "gate"), cells, numbers_from=0)] if heads else []


def _attention_error_table(rows: list[dict[str, Any]]) -> Table:
    """Makes a row per layer and head: the error of each method, and of its gradient."""
    methods = [key for key in (rows[0] if rows else ()) if key not in ("layer", "head", "spread")]
    cells: list[list[object]] = []
    for row in rows:
        found = [row[name] for name in methods]
        errors = [f"{one['deviation']:.4f} / {one['gradient_cosine']:.4f}" for one in found]
        cells.append([row["layer"], row["head"], f"{row['spread']:.2f}", *errors])
    what = "error against the deviation / cosine of the gradient"
    title = f"Methods on the embeddings of the best model: {what}"
    return table(title, ("layer", "head", "spread x decay", *methods), cells, numbers_from=0)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def show_predictions(result: dict[str, Any], as_json: bool) -> None:
    """Prints the number of nodes per predicted class, or the range of numbers, and the file."""
    if as_json:
        print_json(result)
        return
    say_notes(result["notes"])
    counts = ", ".join(f"{name}: {count:.6g}" for name, count in result["predicted"].items())
    nodes = f"{result['nodes']} nodes of {result['graph']}"
    text = f"{nodes} by the model of split {result['split']} ({counts})"
    trained = result["trained"]
    if trained and trained["test"]:
        share = 100 * trained["train"] / sum(trained.values())
        text += (
            f"; it learned from {share:.0f} % of the labels, `phgcn train ... --protocol final` "
            "makes one of all but those that choose the epoch"
        )
    if _takes_output(result["file"]):
        say(text)
    else:
        print_line(console(), f"{text}; written to {result['file']}")


def show_tuning(result: dict[str, Any], reading: list[str], as_json: bool) -> None:
    """Prints the best settings, and the command that trains with them and ``reading`` options."""
    if as_json:
        print_json(result)
        return
    best, out, written = result["best"], console(), result["config"]
    rows = [
        (key, value, "yes" if key in result["varied"] else "")
        for key, value in best["settings"].items()
    ]
    loss = f"number {best['number']}, mean validation loss {best['val_loss']:.4f}"
    title = f"Best of {len(result['trials'])} trials: {loss}"
    out.print(table(title, ("setting", "value", "varied"), rows))
    command = shlex.join(["phgcn", "train", result["source"], "--config", written, *reading])
    print_line(out, f"written to {written}, for: {command}")


def show_comparison(compared: dict[str, Any], as_json: bool) -> None:
    """Prints the scores of runs side by side, and their differences from the best one."""
    if as_json:
        print_json(compared)
        return
    score, rows = Score(compared["metric"]), []
    for place, row in enumerate(compared["runs"]):
        count = len(row["tests"])
        wins = "" if row["wins"] is None or place == 0 else f"{row['wins']} of {count}"
        difference = "" if place == 0 else mean_of(row["difference"], count, score)
        test, seconds = mean_of(row["test"], count, score), duration(row["seconds"])
        rows.append((row["run"], row["model"], test, difference, wins, seconds))
    headings = ("run", "model", f"test{score.unit}", "difference", "better in", "time")
    title = f"Runs on {compared['graph']}, {compared['metric']}{score.unit}, the best first"
    out = console(stderr=_takes_output(compared.get("file", "")))
    out.print(table(title, headings, rows, numbers_from=2))
    for line in compared["yardsticks"]:
        print_line(out, line)
    if not compared["paired"]:
        differ = "protocols, seeds or numbers of splits differ"
        print_line(out, f"{differ}: runs are not compared split by split")
    if "file" in compared:
        print_line(out, f"written to {compared['file']}")


def _takes_output(file: str | Path) -> bool:
    """Returns whether a file is standard output, which then has no room for a result."""
    from ..files import is_standard_output

    return is_standard_output(file)


def show_files(files: Sequence[Path], as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        if not _takes_output(file):
            print(f"written to {file}")
