r"""Joins the trainings of tables into ``tables.json`` and ``tables.md``."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from ...files import read_json, write_json, write_text
from ..significance import paired
from .models import OURS

TEST_OVER_TRAIN = 0.20 / 0.64
PUBLISHED = {
    "california": [
        {"model": "TabR, Euclidean distance on one embedding", "test": 0.442},
        {"model": "TabR, labels added to the values", "test": 0.418},
        {"model": "TabR, tuned", "test": 0.403},
        {"model": "TabR's network without attention", "test": 0.499},
        {"model": "boosted trees, tuned", "test": 0.429},
    ]
}
"""Errors that others published, from the results of github.com/yandex-research/tabular-dl-tabr: 15 seeds on a split of its own
of the same sizes."""


def write(out: Path) -> dict[str, Any]:
    """Writes both files from the trainings that are there; returns the content of the first."""
    jobs = [read_json(file) for file in sorted((out / "tables").glob("*.json"))]
    rows = [_row(table, model, jobs) for table, model in sorted({(job["table"], job["model"]) for job in jobs})]
    for row in rows:
        row["against_network"] = _difference(row, "network", rows)
    content = {
        "rows": rows,
        "published": PUBLISHED,
        "trainings": jobs,
        "files": [str(out / f) for f in ("tables.json", "tables.md")],
    }
    write_json(out / "tables.json", content)
    write_text(out / "tables.md", "\n".join(markdown(content)) + "\n")
    return content


def _row(table: str, model: str, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the splits of one model on one table."""
    own = sorted((job for job in jobs if (job["table"], job["model"]) == (table, model)), key=lambda job: int(job["split"]))
    tests = [job["test"] for job in own]
    return {
        "table": table,
        "model": model,
        "ours": model in OURS,
        "splits": [job["split"] for job in own],
        "tests": tests,
        "test": statistics.mean(tests),
        "std": statistics.stdev(tests) if len(tests) > 1 else None,
        "val": statistics.mean(job["val"] for job in own),
        "seconds": statistics.median(job["seconds"] for job in own),
    }


def _difference(row: dict[str, Any], other: str, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Compares the test errors with those of another model, on the splits that both have; None with fewer than two."""
    for against in rows:
        if against["table"] == row["table"] and against["model"] == other != row["model"]:
            both = sorted(set(row["splits"]) & set(against["splits"]))
            if len(both) < 2:
                return None
            first, second = ([r["tests"][r["splits"].index(split)] for split in both] for r in (row, against))
            found = paired(first, second, TEST_OVER_TRAIN)
            return {"mean": found.mean, "low": found.low, "high": found.high, "p": found.p, "splits": found.splits}
    return None


def markdown(content: dict[str, Any]) -> list[str]:
    """Returns the lines of a table: the test errors of all models."""
    lines = [
        "| table | model | RMSE, test | splits | validation | against our network without attention | seconds |",
        "|" + " --- |" * 7,
    ]
    for row in sorted(content["rows"], key=lambda row: (row["table"], row["test"])):
        spread = "" if row["std"] is None else f" ± {row['std']:.2g}"
        against, text = row["against_network"], ""
        if against is not None:
            text = f"{against['mean']:+.3g} ({against['low']:+.3g} to {against['high']:+.3g})"
        cells = row["table"], row["model"], f"{row['test']:.4g}{spread}", len(row["splits"]), f"{row['val']:.4g}", text
        lines.append("| " + " | ".join(map(str, cells)) + f" | {row['seconds']:.0f} |")
    return lines
