r"""The results of :mod:`phgcn.reproduce.when`: one JSON, a table and a figure of head on less head off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...files import read_json, write_json, write_text
from ...provenance import provenance
from ...report.style import panels, save
from ...train.metrics import mean_and_deviation
from ..significance import LEVEL, holm, paired
from .conditions import EDGES, HEADS, LABELS, Condition
from .generated import TASKS, TITLES

PARTS = {
    "edges": "Fewer edges",
    "labels": "Fewer labels",
    "isolated": "Isolated nodes alone",
    "tasks": "Tasks that need far nodes",
}
KINDS = ("png", "svg")
HELPS, HURTS, NEITHER = "#0072b2", "#d55e00", "#888888"

Row = dict[str, Any]


def write(out: Path) -> dict[str, Any]:
    """Joins what is in the folder into ``when.json``, ``when.md`` and the figure ``when``.

    Rows of an earlier ``when.json`` stay where the folder has no results of their condition.
    """
    earlier = read_json(out / "when.json")["rows"] if (out / "when.json").is_file() else []
    rows = make_rows([read_json(path) for path in sorted((out / "when").glob("*.json"))], earlier)
    content = {"provenance": provenance(0), "rows": rows}
    write_json(out / "when.json", content)
    write_text(out / "when.md", "\n\n".join(["# When does global attention help?", "\n".join(table_lines(content))]) + "\n")
    files = [str(out / name) for name in ("when.json", "when.md")]
    if rows:
        figure = draw(rows)
        files += [str(save(figure, out / f"when.{kind}")) for kind in KINDS]
    return {**content, "files": files}


def make_rows(contents: Sequence[Row], earlier: Sequence[Row] = ()) -> list[Row]:
    """Makes one row of each condition that has two splits or networks, with p-values corrected over all of a part; keeps
    ``earlier`` rows of other conditions."""
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
        name = "tasks" if part in TASKS else part
        about = {"part": name, "subject": subject, "level": level, "text": _text(part, subject, level), "quick": quick[key]}
        made.append(_row(about, results, "test"))
        if part == "edges":
            made.append(_row({**about, "part": "isolated"}, results, "isolated_test"))
    rows = {_place(row): row for row in [*earlier, *made] if row is not None}
    ordered = [rows[place] for place in sorted(rows)]
    for part in PARTS:
        of_part = [row for row in ordered if row["part"] == part]
        for row, p in zip(of_part, holm([row["p"] for row in of_part]), strict=True):
            row["p_holm"] = p
    return ordered


def _place(row: Row) -> tuple[int, int, str, int]:
    """Returns where a condition stands in the table."""
    part, subject, level = row["part"], row["subject"], row["level"]
    if part == "tasks":
        return list(PARTS).index(part), list(TASKS).index(subject), subject, TASKS[subject].levels.index(level)
    levels: tuple[Any, ...] = LABELS if part == "labels" else EDGES
    return list(PARTS).index(part), 0, subject, levels.index(level)


def _text(part: str, subject: str, level: Any) -> str:
    if part in TASKS:
        return TASKS[part].text.format(level)
    return Condition(part, subject, level).text  # type: ignore[arg-type]


def _row(about: Row, results: Sequence[Row], key: str) -> Row | None:
    """Makes a row of a measure; :obj:`None` if fewer than two splits have it."""
    have = [result for result in results if all(result[head].get(key) is not None for head in HEADS)]
    if len(have) < 2:
        return None
    values = {head: [100 * result[head][key] for result in have] for head in HEADS}
    tested = paired(values["on"], values["off"], have[0]["test_over_train"])
    row = {**about, "difference": tested.mean, "low": tested.low, "high": tested.high, "p": tested.p, "count": len(have)}
    for head in HEADS:
        row[head] = values[head]
        row[f"{head}_mean"], row[f"{head}_std"] = mean_and_deviation(values[head])
    if key == "isolated_test":
        row["nodes"] = sum(result["on"]["isolated_nodes"] for result in have) / len(have)
    row["commits"] = sorted({str(result["commit"]) for result in have})
    row["devices"] = sorted({str(result["device"]) for result in have})
    row["dirty"] = any(result["dirty"] for result in have)
    return row


def table_lines(content: dict[str, Any]) -> list[str]:
    """Returns one table: every condition with both means, the difference, its interval and p."""
    rows = content["rows"]
    if not rows:
        return ["Not measured yet."]
    lines = ["| condition | head on | head off | difference (95 % interval) | p |", "| --- | --- | --- | --- | --- |"]
    for part, heading in PARTS.items():
        for row in (row for row in rows if row["part"] == part):
            difference = f"{row['difference']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
            difference = f"**{difference}**" if row["p_holm"] < LEVEL else difference
            condition = f"{heading.lower()}: {subject(row)}, {row['text']}"
            condition += f" ({row['nodes']:.0f} nodes)" if part == "isolated" else ""
            means = [f"{row[f'{head}_mean']:.1f} ± {row[f'{head}_std']:.1f}" for head in HEADS]
            lines.append("| " + " | ".join([condition, *means, difference, f"{row['p_holm']:.2f}"]) + " |")
    if any(row["quick"] for row in rows):
        lines += ["", "**A quick version: few epochs. It shows the form, not the results.**"]
    return lines


def subject(row: Row) -> str:
    return TITLES.get(row["subject"], str(row["subject"]))


def draw(rows: Sequence[Row]) -> Any:
    """Draws head on less head off with 95 % intervals: a panel per part, a line per condition, 0 in the middle."""
    parts = [part for part in PARTS if any(row["part"] == part for row in rows)]
    tallest = max(sum(row["part"] == part for row in rows) for part in parts)
    figure, axes = panels(len(parts), columns=2, width=5.6, height=0.22 * tallest + 1.0)
    for axis, part in zip(axes, parts, strict=True):
        of_part = [row for row in rows if row["part"] == part]
        for place, row in enumerate(of_part):
            significant = row["p_holm"] < LEVEL
            colour = NEITHER if not significant else HELPS if row["difference"] > 0 else HURTS
            axis.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2)
            axis.plot([row["difference"]], [place], "o", color=colour, markersize=5)
        axis.axvline(0, color="black", linewidth=0.8)
        reach = 1.05 * max(max(abs(row["low"]), abs(row["high"])) for row in of_part) or 1.0
        axis.set_xlim(-reach, reach)
        axis.set_yticks(range(len(of_part)), [f"{subject(row)}, {row['text']}" for row in of_part], fontsize=7)
        axis.set_ylim(len(of_part) - 0.5, -0.5)
        axis.grid(axis="x", linewidth=0.4, alpha=0.5)
        axis.set_title(PARTS[part], fontsize=10)
        axis.set_xlabel("global attention on less off, points", fontsize=8)
    figure.suptitle(
        "What global attention adds. Blue: it helps, orange: it hurts, grey: no significant difference", fontsize=11
    )
    return figure
