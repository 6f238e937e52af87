r"""Joins trainings: means over splits, and differences from one model."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from phgcn.files import read_json
from phgcn.report.style import COLOURS, headline

from .markdown import mark_table, pivot, table
from .results import Dot, Row, chosen, dots, names, write_results
from .significance import paired_by_split

LARGER_IS_BETTER = ("accuracy", "ROC AUC")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trainings import Comparison


def write(out: Path, comparison: Comparison) -> Row:
    name = comparison.name
    trainings = [row for file in sorted((out / name).glob("*.json")) for row in read_json(file)]
    rows = [
        _row(chosen(trainings, data=data, model=model))
        for data, model in sorted(names(trainings, "data", "model"))
    ]
    for row in rows:
        row.update(difference(row, rows, comparison))
    content: Row = {"rows": rows, **comparison.summary(rows)}
    content |= {"published": comparison.published, "trainings": trainings}
    figures = {"": draw(content)} if rows else {}
    files = write_results(out, name, content, name, markdown(content), figures)
    return {**content, "files": files}


def draw(content: Row) -> Figure:
    """Means and deviations over splits, a panel for each data set; the reference in orange."""
    shown = {}
    for name in sorted(names(content["rows"], "data")):
        # beside the mean all others look the same
        rows = [row for row in chosen(content["rows"], data=name) if row["model"] != "mean"]
        rows = _best_first(rows or chosen(content["rows"], data=name))
        shown[name, f"{rows[0]['metric']}, test"] = [_dot(row) for row in rows]
    figure = dots(shown, columns=min(2, len(shown)), width=8.2 / min(2, len(shown)))
    for axis in figure.axes:
        axis.set_xlim(left=0)
    references = [name for name in names(content["rows"], "reference") if name]
    text = "Lines: one standard deviation over splits"
    if references:
        text += f". Orange: {' or '.join(references)}, the reference"
    headline(figure, text)
    return figure


def _dot(row: Row) -> Dot:
    colour = COLOURS[1 if row["model"] == row["reference"] else 0]
    deviation, test = row["std"] or 0, row["test"]
    return Dot(row["model"], test, test - deviation, test + deviation, colour)


def _best_first(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -_sign(row) * row["test"])


def _sign(row: Row) -> int:
    return 1 if row["metric"] in LARGER_IS_BETTER else -1


def best(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: _sign(row) * row["val"])


def mark(what: str, value: float, limit: float, *, at_least: bool = False) -> Row:
    reached = value >= limit if at_least else value <= limit
    about = {"what": what, "value": value, "unit": "", "mark": limit, "decimals": 3}
    return {**about, "at_least": at_least, "reached": reached}


def _row(trainings: list[Row]) -> Row:
    splits = sorted(names(trainings, "split"))
    own = [best(chosen(trainings, split=split)) for split in splits]
    tests = [job["test"] for job in own]
    return {
        "data": own[0]["data"],
        "model": own[0]["model"],
        "metric": own[0]["metric"],
        "trials": len(trainings) - len(own) + 1,
        "settings": own[-1].get("settings"),
        "splits": splits,
        "tests": tests,
        "test": statistics.mean(tests),
        "std": statistics.stdev(tests) if len(tests) > 1 else None,
        "val": statistics.mean(job["val"] for job in own),
        "seconds": statistics.median(job["seconds"] for job in own),
    }


def difference(row: Row, rows: list[Row], comparison: Comparison) -> Row:
    """Compares with the reference, the best of several by validation, on the splits of both."""
    of_data = chosen(rows, data=row["data"])
    references = [other for other in of_data if other["model"] in comparison.references]
    if not references:
        return {"reference": None, "difference": None}
    reference, found = best(references), None
    if reference["model"] != row["model"]:
        both = [dict(zip(r["splits"], r["tests"], strict=True)) for r in (row, reference)]
        found = paired_by_split(both[0], both[1], comparison.test_over_train)
    return {"reference": reference["model"], "difference": found and asdict(found)}


def markdown(content: Row) -> list[str]:
    """The models of each data set by test results, what others published, ratios, and marks."""
    rows = [
        row
        for name in sorted(names(content["rows"], "data"))
        for row in _best_first(chosen(content["rows"], data=name))
    ]
    cells = {(row["model"], f"{row['data']}, {row['metric']}"): _result(row) for row in rows}
    made = pivot("", list(dict.fromkeys(column for _, column in cells)), cells, missing="-")
    for name in names(content["rows"], "data"):
        by_source: dict[str, list[str]] = {}
        for row in content["published"].get(name, ()):
            by_source.setdefault(row["source"], []).append(f"{row['model']} {row['test']:g}")
        for source, results in by_source.items():
            made += ["", f"Published on {name} ({source}): {'; '.join(results)}."]
    ratios = [
        [row["data"], row["model"], f"{row['hist-boosting']:.3f}", f"{row['trees']:.3f}"]
        for row in content.get("ratios", ())
    ]
    if ratios:
        made += ["", "Errors of attention, divided by those of boosted trees:", ""]
        made += table(("data", "model", "hist-boosting", "the best of boosted trees"), ratios)
    if content.get("marks"):
        made += ["", "What was aimed at:", "", *mark_table(content["marks"])]
    return made


def _result(row: Row) -> str:
    """The test result, and over several splits its deviation and difference to the reference."""
    if row["std"] is None:
        return f"{row['test']:.4g}"
    found, text = row["difference"], f"{row['test']:.4g} ± {row['std']:.2g}"
    if found is not None:
        return f"{text}; {found['mean']:+.3g} ({found['low']:+.3g} to {found['high']:+.3g})"
    return f"{text}; the reference" if row["model"] == row["reference"] else text
