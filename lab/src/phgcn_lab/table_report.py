r"""The results of :mod:`phgcn_lab.table`: rows as JSON, tables as Markdown, and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phgcn.files import read_json, write_json
from phgcn.provenance import provenance
from phgcn.registry import find_model
from phgcn.report.style import COLOURS, headline

from .markdown import bold, pivot, spread, table
from .published import BEST, published
from .results import Dot, Row, chosen, dots, names, write_results
from .significance import LEVEL, TEST_OVER_TRAIN, paired
from .table_jobs import SEED, Job, is_done, job_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = ("phgcn", "phgcn-residual")
CELL = ("graph", "model", "protocol", "method")  # The keys that name a row
PROVENANCE = (
    *("command", "settings_from", "commit", "dirty", "begun_at_commit", "seed", "date"),
    *("machine", "cores", "threads", "device"),
)
TITLE = "The paper's Table 2"
QUICK = "**A quick version: few splits and epochs. It shows the form, not the results.**"


def write(out: Path, jobs: Sequence[Job], order: Sequence[str], quick: bool) -> dict[str, Any]:
    """Writes the table of the runs that are there; other rows of ``table.json`` stay.

    ``order`` names all jobs of the whole table. Returns ``rows``, ``differences``, ``methods``,
    ``missing``, why runs are missing by name, and ``files``.
    """
    kept = read_rows(out, quick)
    rows_by_name, missing = gather(out, jobs, kept)
    asked = {job.name for job in jobs}
    rows_by_name |= {name: row for name, row in kept.items() if name not in asked}

    def position(name: str) -> tuple[int, str]:
        return order.index(name) if name in order else len(order), name

    rows = [rows_by_name[name] for name in sorted(rows_by_name, key=position)]
    derived = {"differences": differences(rows), "methods": methods(rows), "missing": missing}
    content = {"rows": rows, **derived}
    figures = {"": draw(of_paper)} if (of_paper := paper_rows(rows)) else {}
    files = write_results(out, "table", rows, TITLE, markdown(content, quick), figures)
    others = {
        "table-differences": {"provenance": provenance(SEED), **derived},
        "tuning": studies(out),
    }
    for name, found in others.items():
        write_json(out / f"{name}.json", found)
        files.append(str(out / f"{name}.json"))
    return {**content, "files": files}


def studies(out: Path) -> list[Row]:
    """Reads all trials of the searches, those of ``tuning.json`` too."""
    path = out / "tuning.json"
    found = read_json(path) if path.is_file() else []
    found += [read_json(file) for file in sorted((out / "tune").glob("*/tune.json"))]
    by_cell = {
        f"{study['graph']}-{study['model']}": {
            key: value for key, value in study.items() if key not in ("study", "config")
        }
        for study in found
    }
    return [by_cell[cell] for cell in sorted(by_cell)]


# Rows


def read_rows(out: Path, quick: bool) -> dict[str, Row]:
    path = out / "table.json"
    rows = read_json(path) if path.is_file() else []
    return {job_name(*map(row.get, CELL)): row for row in chosen(rows, quick=quick)}


def gather(
    out: Path, jobs: Sequence[Job], kept: Mapping[str, Row]
) -> tuple[dict[str, Row], dict[str, str]]:
    """Collects the rows of jobs that are done, by name, and why others are missing."""
    rows, missing = {}, {}
    for job in jobs:
        folder = out / "runs" / job.name
        begun = (folder / "run.json").is_file()
        try:
            if is_done(job, out, kept):
                rows[job.name] = make_row(job, folder) if begun else kept[job.name]
                continue
            trained = len(list(folder.glob("split-*.csv")))
            why = f"{trained} of {job.splits} splits are trained" if begun else "not begun"
        except ValueError as error:
            why = str(error)
        missing[job.name] = why
    return rows, missing


def make_row(job: Job, folder: Path) -> Row:
    result, origin = read_json(folder / "result.json"), read_json(folder / "provenance.json")
    known, best = published(job.graph, job.model, job.protocol), BEST[job.protocol].get(job.graph)
    return {
        **{key: getattr(job, key) for key in CELL},
        "mean": 100 * result["test"]["mean"],
        "std": 100 * result["test"]["std"],
        "per_split": [100 * split["test"] for split in result["splits"]],
        "published": known and known.mean,
        "published_std": known and known.std,
        "published_source": known and known.source,
        "best_published": best and best.mean,
        "best_published_model": best and best.source,
        "val_loss": result["val_loss"]["mean"],
        "val_accuracy": 100 * result["val_metric"]["mean"],
        **{key: result[key] for key in ("config", "epochs", "seconds_per_epoch", "seeds")},
        "quick": job.quick,
        **{key: origin.get(key) for key in PROVENANCE},
        "versions": result["versions"],
    }


def main_rows(rows: Sequence[Row]) -> list[Row]:
    """Selects attention through the lattice, and Geom-GCN with its published neighbourhoods."""
    return [row for row in rows if row["method"] in (None, "lattice", "published")]


# What is computed from them


def differences(rows: Sequence[Row]) -> list[Row]:
    """PH-GCN, with and without the node's own channel, with every other model."""
    compared, table_rows = [], main_rows(rows)
    for first in (row for row in table_rows if row["model"] in OURS):
        for second in chosen(table_rows, graph=first["graph"], protocol=first["protocol"]):
            ours, against = first["model"], second["model"]
            if against == ours or (ours == "phgcn" and against in OURS):
                continue
            compared.append(_difference(first, second) | {"model": ours, "against": against})
    return compared


def methods(rows: Sequence[Row]) -> list[Row]:
    """Compares every method of global attention with the exact sum."""
    compared = []
    for row in rows:
        same = {key: row[key] for key in ("graph", "model", "protocol")}
        exact = chosen(rows, **same, method="exact")
        if row["method"] is None or not exact:
            continue
        tested = {} if row["method"] == "exact" else _difference(row, exact[0])
        keys = (*CELL, "mean", "std", "seconds_per_epoch", "device")
        to_exact = {
            f"to_exact_{key}": tested.get(key) for key in ("difference", "low", "high", "p")
        }
        compared.append({key: row[key] for key in keys} | to_exact)
    return compared


def _difference(first: Row, second: Row) -> Row:
    ratio = TEST_OVER_TRAIN[first["protocol"]]
    tested = paired(first["per_split"], second["per_split"], ratio).row()
    return {"graph": first["graph"], "protocol": first["protocol"], **tested}


# Markdown

_TEST = (
    "Differences in percentage points with p of the corrected resampled t-test (Nadeau and Bengio, "
    "2003), paired by split and "
    "two-sided: splits of one graph overlap, which the ordinary paired t-test would take for "
    "independence. Bold: p < .05, not "
    "corrected for the number of comparisons."
)
_METHODS = "PH-GCN with the same settings, splits and seeds; the difference is that to the exact sum, tested as above."  # noqa: E501


def markdown(content: Row, quick: bool) -> list[str]:
    rows, parts = content["rows"], [QUICK] if quick else []
    for protocol in names(rows, "protocol"):
        of_protocol = chosen(rows, protocol=protocol)
        parts += [f"## Protocol {protocol}", *_accuracies(of_protocol, protocol)]
        parts += _significance(chosen(content["differences"], protocol=protocol))
        parts += _methods(chosen(content["methods"], protocol=protocol))
    if content["missing"]:
        lines = [f"- {name}: {why}" for name, why in content["missing"].items()]
        parts += [f"## Missing: {len(lines)} runs", "\n".join(lines)]
    return "\n\n".join(parts).split("\n")


def accuracy_lines(rows: Sequence[Row], protocol: str) -> list[str]:
    main = chosen(main_rows(rows), protocol=protocol)
    graphs = names(main, "graph")
    highest = {graph: max(row["mean"] for row in chosen(main, graph=graph)) for graph in graphs}
    cells = {
        (find_model(row["model"]).title, row["graph"]): _cell(row, highest[row["graph"]])
        for model in names(main, "model")
        for row in chosen(main, model=model)
    }
    for graph, best in BEST[protocol].items():
        cells["best published", graph] = f"{best.mean:.1f} ({best.source})"
    return pivot("model", graphs, cells)


def _accuracies(rows: Sequence[Row], protocol: str) -> list[str]:
    if not (main := main_rows(rows)):
        return []
    splits = sorted({len(row["per_split"]) for row in main})
    text = (
        f"Test accuracy in percent, mean ± standard deviation over {' or '.join(map(str, splits))} "
        f"splits; the best of ours in "
        "bold; published in brackets. PH-GCN attends through the lattice."
    )
    return [text, "\n".join(accuracy_lines(rows, protocol))]


def _cell(row: Row, best: float) -> str:
    ours = bold(spread(row), row["mean"] == best)
    if row["published"] is None:
        return ours
    deviation = "" if row["published_std"] is None else f" ± {row['published_std']:.1f}"
    return f"{ours} ({row['published']:.1f}{deviation})"


def _significance(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    cells = {
        (f"{find_model(model).title} − {find_model(against).title}", row["graph"]): _tested(row)
        for model, against in names(rows, "model", "against")
        for row in chosen(rows, model=model, against=against)
    }
    lines = pivot("", names(rows, "graph"), cells)
    return ["### Against each baseline", _TEST, "\n".join(lines)]


def _tested(row: Row, prefix: str = "") -> str:
    difference, p = row[f"{prefix}difference"], row[f"{prefix}p"]
    return "" if p is None else bold(f"{difference:+.1f} (p = {p:.3f})", p < LEVEL)


def _methods(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines = []
    for row in rows:
        cells = [row["graph"], find_model(row["model"]).title, row["method"], spread(row)]
        time = f"{1000 * row['seconds_per_epoch']:.1f}"
        lines.append([*cells, _tested(row, "to_exact_"), time, row["device"]])
    heading = ["graph", "model", "method", "accuracy %", "to exact", "ms per epoch", "device"]
    return ["### Does the approximation cost accuracy?", _METHODS, "\n".join(table(heading, lines))]


# Figure


def draw(rows: Sequence[Row]) -> Figure:
    """Draws a panel per graph: the rows of the paper's table, ours and published."""
    shown = {
        (graph, "test accuracy %"): [
            dot for row in chosen(rows, graph=graph) for dot in _dots(row, COLOURS[0])
        ]
        for graph in names(rows, "graph")
    }
    figure = dots(shown, columns=4, width=2.05)
    headline(figure, "Dots: ours, mean and standard deviation; hollow: as published")
    return figure


def paper_rows(rows: Sequence[Row]) -> list[Row]:
    """Selects the rows that the paper's table has: its protocol, PH-GCN with its filter."""
    of_paper = [row for row in rows if row["protocol"] == "paper" and row["published"] is not None]
    return [row for row in of_paper if row["method"] in (None, "separable", "published")]


def _dots(row: Row, colour: str) -> list[Dot]:
    title, mean, deviation = find_model(row["model"]).title, row["mean"], row["std"]
    ours = Dot(title, mean, mean - deviation, mean + deviation, colour)
    if (known := row["published"]) is None:
        return [ours]
    return [ours, Dot(title, known, known, known, colour, filled=False)]
