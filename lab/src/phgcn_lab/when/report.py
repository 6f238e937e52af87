r"""The results of :mod:`phgcn_lab.when`: one JSON, a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phgcn.files import read_json
from phgcn.provenance import provenance
from phgcn.report.style import headline
from phgcn.train.metrics import mean_and_deviation

from ..markdown import bold, interval, pivot, spread, table
from ..results import Dot, Row, chosen, dots, names, write_results
from ..significance import LEVEL, holm, paired
from .conditions import EDGES, HEADS, LABELS, Condition
from .generated import TASKS, TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {
    "edges": "Fewer edges",
    "labels": "Fewer labels",
    "isolated": "Isolated nodes alone",
    "tasks": "Tasks that need far nodes",
}
HELPS, HURTS, NEITHER = "#0072b2", "#d55e00", "#888888"
HEADLINE = (
    "What global attention adds. Blue: it helps, orange: it hurts, grey: no significant difference"
)


def write(out: Path) -> Row:
    """Joins what is in the folder; rows of an earlier ``when.json`` of other conditions stay."""
    earlier = read_json(out / "when.json")["rows"] if (out / "when.json").is_file() else []
    rows = make_rows([read_json(path) for path in sorted((out / "when").glob("*.json"))], earlier)
    content = {"provenance": provenance(0), "rows": rows}
    title, figures = "When does global attention help?", {"": draw(rows)} if rows else {}
    files = write_results(out, "when", content, title, table_lines(content), figures)
    return {**content, "files": files}


def make_rows(contents: Sequence[Row], earlier: Sequence[Row] = ()) -> list[Row]:
    """Makes a row of each condition with two splits or networks; keeps other ``earlier`` rows."""
    by_condition: dict[tuple[str, str, Any], list[Row]] = {}
    quick: dict[tuple[str, str, Any], bool] = {}
    for content in contents:
        key = content["part"], content["subject"], content["level"]
        by_condition.setdefault(key, []).extend(content["results"])
        quick[key] = content["epochs"] is not None
    made: list[Row | None] = []
    for key, unordered in by_condition.items():
        part, subject, level = key
        results = sorted(unordered, key=lambda result: int(result["number"]))
        about = {"part": "tasks" if part in TASKS else part, "subject": subject, "level": level}
        about |= {"text": _text(part, subject, level), "quick": quick[key]}
        made.append(_row(about, results, "test"))
        if part == "edges":
            made.append(_row({**about, "part": "isolated"}, results, "isolated_test"))
    rows = {_position(row): row for row in [*earlier, *made] if row is not None}
    ordered = [rows[position] for position in sorted(rows)]
    for part in PARTS:
        of_part = chosen(ordered, part=part)
        for row, p in zip(of_part, holm([row["p"] for row in of_part]), strict=True):
            row["p_holm"] = p
    return ordered


def _position(row: Row) -> tuple[int, int, str, int]:
    part, subject, level = row["part"], row["subject"], row["level"]
    levels: tuple[Any, ...] = LABELS if part == "labels" else EDGES
    task = 0
    if part == "tasks":
        levels, task = TASKS[subject].levels, list(TASKS).index(subject)
    return list(PARTS).index(part), task, subject, levels.index(level)


def _text(part: str, subject: str, level: Any) -> str:
    if part in TASKS:
        return TASKS[part].text.format(level)
    return Condition(part, subject, level).text  # type: ignore[arg-type]


def _row(about: Row, results: Sequence[Row], key: str) -> Row | None:
    """Returns :obj:`None` if fewer than two splits have the measure."""
    have = [r for r in results if all(r[head].get(key) is not None for head in HEADS)]
    if len(have) < 2:
        return None
    values = {head: [100 * result[head][key] for result in have] for head in HEADS}
    tested = paired(values["on"], values["off"], have[0]["test_over_train"]).row()
    row = {**about, "count": tested.pop("splits"), **tested}
    for head in HEADS:
        row[head] = values[head]
        row[f"{head}_mean"], row[f"{head}_std"] = mean_and_deviation(values[head])
    if key == "isolated_test":
        row["nodes"] = sum(result["on"]["isolated_nodes"] for result in have) / len(have)
    for origin in ("commit", "device"):
        row[f"{origin}s"] = sorted({str(result[origin]) for result in have})
    return {**row, "dirty": any(result["dirty"] for result in have)}


def table_lines(content: Row) -> list[str]:
    rows = content["rows"]
    if not rows:
        return ["Not measured yet."]
    tasks = [row for row in rows if row["part"] == "tasks"]
    graphs = [row for row in rows if row["part"] != "tasks"]
    lines = [*_graph_lines(graphs), ""] if graphs else []
    cells = []
    for row in tasks:
        means = [spread(row, f"{head}_mean", f"{head}_std") for head in HEADS]
        cells.append([label(row), *means, bold(interval(row), row["p_holm"] < LEVEL)])
    lines += table(["task", "head on", "head off", "difference (95 % interval)"], cells)
    if any(row["quick"] for row in rows):
        lines += ["", bold("A quick version: few epochs. It shows the form, not the results.")]
    return lines


def _graph_lines(rows: Sequence[Row]) -> list[str]:
    """The least and the largest difference over the levels of each condition and graph."""
    cells = {}
    for part, graph in names(rows, "part", "subject"):
        found = [row["difference"] for row in chosen(rows, part=part, subject=graph)]
        cells[PARTS[part].lower(), graph] = f"{min(found):+.1f} to {max(found):+.1f}"
    significant = sum(row["p_holm"] < LEVEL for row in rows)
    widest = max((row["high"] - row["low"]) / 2 for row in rows)
    count = f"Significant on graphs: {significant} of {len(rows)}."
    graphs = names(rows, "subject")
    return [f"{count} Intervals reach up to ±{widest:.0f} points.", "", *pivot("", graphs, cells)]


def label(row: Row) -> str:
    return f"{TITLES.get(row['subject'], row['subject'])}, {row['text']}"


def draw(rows: Sequence[Row]) -> Figure:
    """Head on less head off with 95 % intervals: a panel per part."""
    unit = "global attention on less off, points"
    by_part = {(PARTS[part], unit): list(map(_dot, chosen(rows, part=part))) for part in PARTS}
    shown = {panel: of_part for panel, of_part in by_part.items() if of_part}
    figure = dots(shown, columns=2, width=5.6)
    for axis in figure.axes:
        axis.axvline(0, color="black", linewidth=0.8)
    headline(figure, HEADLINE)
    return figure


def _dot(row: Row) -> Dot:
    significant = row["p_holm"] < LEVEL
    colour = NEITHER if not significant else HELPS if row["difference"] > 0 else HURTS
    return Dot(label(row), row["difference"], row["low"], row["high"], colour)
