r"""Joins trainings into a JSON and a table: means over splits, and differences from one model."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import read_json, write_json, write_text
from ..report.style import COLOURS, panels, save
from .significance import paired

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg")


def write(
    out: Path, name: str, metric: str, reference: str, test_over_train: float, published: dict[str, Any]
) -> dict[str, Any]:
    """Writes both files from the trainings that are there; returns the content of the JSON.

    Args:
        out (Path): The folder; trainings are in ``out / name``.
        name, metric, reference, test_over_train, published: As in
        :class:`phgcn.reproduce.trainings.Experiment`.
    """
    trainings = [read_json(file) for file in sorted((out / name).glob("*.json"))]
    rows = [_row(data, model, trainings) for data, model in sorted({(job["data"], job["model"]) for job in trainings})]
    for row in rows:
        row["difference"] = _difference(row, reference, rows, test_over_train)
    files = [str(out / f"{name}.{suffix}") for suffix in ("json", "md", *KINDS)]
    content = {"metric": metric, "reference": reference, "rows": rows, "published": published, "trainings": trainings}
    content["files"] = files
    write_json(Path(files[0]), content)
    write_text(Path(files[1]), "\n".join(markdown(content)) + "\n")
    if rows:
        for file in files[2:]:
            save(draw(content), Path(file))
    return content


def draw(content: dict[str, Any]) -> Figure:
    """Draws the test results of all models, a panel for each data set: means, deviations over
    splits, the reference in red."""
    names = sorted({row["data"] for row in content["rows"]})
    models = {name: _best_first([row for row in content["rows"] if row["data"] == name], content) for name in names}
    tallest = max(len(rows) for rows in models.values())
    figure, axes = panels(len(names), columns=3, width=4.2, height=0.24 * tallest + 0.9)
    for axis, (name, rows) in zip(axes, models.items(), strict=True):
        for place, row in enumerate(rows):
            colour = COLOURS[1] if row["model"] == content["reference"] else COLOURS[0]
            axis.errorbar(row["test"], place, xerr=row["std"] or 0, fmt="o", color=colour, markersize=5)
        axis.set_yticks(range(len(rows)), [row["model"] for row in rows], fontsize=8)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(axis="x", linewidth=0.4, alpha=0.5)
        axis.set_xlabel(f"{content['metric']}, test", fontsize=8)
        axis.set_title(name, fontsize=10)
    return figure


def _best_first(rows: list[dict[str, Any]], content: dict[str, Any]) -> list[dict[str, Any]]:
    """Sorts models, and leaves out the mean, beside which all others look the same."""
    shown = [row for row in rows if row["model"] != "mean"]
    return sorted(shown or rows, key=lambda row: -row["test"] if content["metric"] == "accuracy" else row["test"])


def _row(data: str, model: str, trainings: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the splits of one model on one data set."""
    own = sorted((job for job in trainings if (job["data"], job["model"]) == (data, model)), key=lambda job: int(job["split"]))
    tests = [job["test"] for job in own]
    return {
        "data": data,
        "model": model,
        "splits": [job["split"] for job in own],
        "tests": tests,
        "test": statistics.mean(tests),
        "std": statistics.stdev(tests) if len(tests) > 1 else None,
        "val": statistics.mean(job["val"] for job in own),
        "seconds": statistics.median(job["seconds"] for job in own),
    }


def _difference(
    row: dict[str, Any], reference: str, rows: list[dict[str, Any]], test_over_train: float
) -> dict[str, Any] | None:
    """Compares the test results with those of another model, on the splits that both have; None
    with fewer than two."""
    for other in rows:
        if other["data"] == row["data"] and other["model"] == reference != row["model"]:
            both = sorted(set(row["splits"]) & set(other["splits"]))
            if len(both) < 2:
                return None
            first, second = ([r["tests"][r["splits"].index(split)] for split in both] for r in (row, other))
            found = paired(first, second, test_over_train)
            return {"mean": found.mean, "low": found.low, "high": found.high, "p": found.p, "splits": found.splits}
    return None


def markdown(content: dict[str, Any]) -> list[str]:
    """Returns the lines of a table, the models of each data set by their test results."""
    heading = (
        "data",
        "model",
        f"{content['metric']}, test",
        "splits",
        "validation",
        f"against {content['reference']}",
        "seconds",
    )
    lines = [f"| {' | '.join(heading)} |", "|" + " --- |" * len(heading)]
    sign = -1 if content["metric"] == "accuracy" else 1
    for row in sorted(content["rows"], key=lambda row: (row["data"], sign * row["test"])):
        spread = "" if row["std"] is None else f" ± {row['std']:.2g}"
        found, text = row["difference"], ""
        if found is not None:
            text = f"{found['mean']:+.3g} ({found['low']:+.3g} to {found['high']:+.3g})"
        cells = row["data"], row["model"], f"{row['test']:.4g}{spread}", len(row["splits"]), f"{row['val']:.4g}", text
        lines.append("| " + " | ".join(map(str, cells)) + f" | {row['seconds']:.0f} |")
    return lines
