r"""The results of :mod:`phgcn.reproduce.table`: rows as JSON, tables as Markdown, and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ..files import read_json, write_json, write_text
from ..provenance import provenance
from ..registry import find_model
from ..report.style import COLOURS, panels, save
from .published import BEST, published
from .significance import TEST_OVER_TRAIN, paired
from .table_jobs import SEED, Job, is_done

OURS = ("phgcn", "phgcn-residual")
PROVENANCE = (
    "command", "settings_from", "commit", "dirty", "begun_at_commit", "seed", "date", "machine", "cores", "threads", "device",
)  # fmt: skip

Row = dict[str, Any]


def write(out: Path, jobs: Sequence[Job], order: Sequence[str], quick: bool) -> dict[str, Any]:
    """Writes the table of the runs that are there; those that are not are named in it.

    Rows of ``table.json`` that are not among these jobs stay.

    Args:
        out (Path): The folder.
        jobs (list of Job): What is asked for.
        order (list of str): The names of all jobs of the whole table, in the order of its rows.
        quick (bool): Whether this is the quick version.

    Returns:
        ``rows``, ``differences``, ``methods``, ``missing`` (names of runs, and why they are missing) and ``files``.
    """
    kept = read_rows(out, quick)
    rows_by_name, missing = gather(out, jobs, kept)
    names_asked = {job.name for job in jobs}
    rows_by_name |= {name: row for name, row in kept.items() if name not in names_asked}
    rows = [rows_by_name[name] for name in sorted(rows_by_name, key=partial(_place, order))]
    content = {"rows": rows, "differences": differences(rows), "methods": methods(rows), "missing": missing}
    write_json(out / "table.json", rows)
    derived = {key: value for key, value in content.items() if key != "rows"}
    write_json(out / "table-differences.json", {"provenance": provenance(SEED), **derived})
    write_json(out / "tuning.json", studies(out))
    write_text(out / "table.md", markdown(content, quick))
    files = [out / name for name in ("table.json", "table-differences.json", "tuning.json", "table.md")]
    if main_rows(rows):
        figure = draw(rows)
        files += [save(figure, out / f"table.{kind}") for kind in ("png", "svg")]
    return {**content, "files": [str(file) for file in files]}


def studies(out: Path) -> list[dict[str, Any]]:
    """Reads all trials of the searches for settings: those in the folder, and those that ``tuning.json`` has beside them."""
    path = out / "tuning.json"
    by_cell = {(study["graph"], study["model"]): study for study in (read_json(path) if path.is_file() else [])}
    for tune_file in sorted((out / "tune").glob("*/tune.json")):
        study = {key: value for key, value in read_json(tune_file).items() if key not in ("study", "config")}
        by_cell[study["graph"], study["model"]] = study
    return [by_cell[cell] for cell in sorted(by_cell, key="-".join)]


# Rows


def _place(order: Sequence[str], name: str) -> tuple[int, str]:
    """Returns what rows are sorted by; those that the whole table does not have come last, by name."""
    return (order.index(name) if name in order else len(order), name)


def row_name(row: Row) -> str:
    """Returns the name of the job that a row is the result of."""
    return "-".join(part for part in (row["graph"], row["model"], row["protocol"], row["method"]) if part)


def read_rows(out: Path, quick: bool) -> dict[str, Row]:
    """Reads the rows of the table so far, by the names of their jobs."""
    path = out / "table.json"
    rows = read_json(path) if path.is_file() else []
    return {row_name(row): row for row in rows if row["quick"] == quick}


def gather(out: Path, jobs: Sequence[Job], kept: Mapping[str, Row]) -> tuple[dict[str, Row], dict[str, str]]:
    """Collects the rows of jobs that are done, by name, and why others are missing."""
    rows, missing = {}, {}
    for job in jobs:
        folder = out / "runs" / job.name
        begun = (folder / "run.json").is_file()
        try:
            if is_done(job, out, kept):
                rows[job.name] = row(job, folder) if begun else kept[job.name]
            elif begun:
                missing[job.name] = f"{len(list(folder.glob('split-*.csv')))} of {job.splits} splits are trained"
            else:
                missing[job.name] = "not begun"
        except ValueError as error:
            missing[job.name] = str(error)
    return rows, missing


def row(job: Job, folder: Path) -> Row:
    """Makes a row of the table from a run; accuracies in percent."""
    result, origin = read_json(folder / "result.json"), read_json(folder / "provenance.json")
    known, best = published(job.graph, job.model, job.protocol), BEST[job.protocol].get(job.graph)
    return {
        "graph": job.graph,
        "model": job.model,
        "protocol": job.protocol,
        "method": job.method,
        "mean": 100 * result["test"]["mean"],
        "std": 100 * result["test"]["std"],
        "per_split": [100 * split["test"] for split in result["splits"]],
        "published": known and known.mean,
        "published_std": known and known.std,
        "published_source": known and known.source,
        "best_published": best and best.mean,
        "best_published_model": best and best.source,
        "config": result["config"],
        "val_loss": result["val_loss"]["mean"],
        "val_accuracy": 100 * result["val_metric"]["mean"],
        "epochs": result["epochs"],
        "seconds_per_epoch": result["seconds_per_epoch"],
        "seeds": result["seeds"],
        "quick": job.quick,
        **{key: origin.get(key) for key in PROVENANCE},
        "versions": result["versions"],
    }


def chosen(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Selects the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def main_rows(rows: Sequence[Row]) -> list[Row]:
    """Selects the rows of the paper's table: attention through the lattice, Geom-GCN with its published neighbourhoods."""
    return [row for row in rows if row["method"] in (None, "lattice", "published")]


def names(rows: Sequence[Row], key: str) -> list[str]:
    """Returns the values of a key, each once, in the order they come."""
    return list(dict.fromkeys(row[key] for row in rows))


# What is computed from them


def differences(rows: Sequence[Row]) -> list[Row]:
    """Compares PH-GCN, with and without the node's own channel, with every other model on the same splits."""
    compared, rows_of_table = [], main_rows(rows)
    for first in rows_of_table:
        if first["model"] not in OURS:
            continue
        for second in chosen(rows_of_table, graph=first["graph"], protocol=first["protocol"]):
            if second["model"] == first["model"] or (second["model"] in OURS and first["model"] == "phgcn"):
                continue
            compared.append(_difference(first, second) | {"model": first["model"], "against": second["model"]})
    return compared


def methods(rows: Sequence[Row]) -> list[Row]:
    """Compares every method of global attention with the exact sum: same settings, splits and seeds."""
    compared_methods = []
    for row in rows:
        exact = chosen(rows, **{key: row[key] for key in ("graph", "model", "protocol")}, method="exact")
        if row["method"] is None or not exact:
            continue
        compared = {} if row["method"] == "exact" else _difference(row, exact[0])
        keys = ("graph", "model", "protocol", "method", "mean", "std", "seconds_per_epoch", "device")
        compared_methods.append(
            {**{key: row[key] for key in keys}, **{f"to_exact_{key}": compared.get(key) for key in _TESTED}}
        )
    return compared_methods


_TESTED = ("difference", "low", "high", "p")


def _difference(first: Row, second: Row) -> Row:
    tested = asdict(paired(first["per_split"], second["per_split"], TEST_OVER_TRAIN[first["protocol"]]))
    tested["difference"] = tested.pop("mean")
    return {"graph": first["graph"], "protocol": first["protocol"], **tested}


# Markdown

_TEST = (
    "Differences in percentage points with p of the corrected resampled t-test (Nadeau and Bengio, 2003), paired by split and "
    "two-sided: splits of one graph overlap, which the ordinary paired t-test would take for independence. Bold: p < .05, not "
    "corrected for the number of comparisons."
)


def markdown(content: dict[str, Any], quick: bool) -> str:
    rows, parts = content["rows"], ["# The paper's Table 2"]
    if quick:
        parts.append("**A quick version: few splits and epochs. It shows the form, not the results.**")
    for protocol in names(rows, "protocol"):
        of_protocol = chosen(rows, protocol=protocol)
        parts += [f"## Protocol {protocol}", *_accuracies(of_protocol, protocol)]
        parts += _significance(chosen(content["differences"], protocol=protocol))
        parts += _methods(chosen(content["methods"], protocol=protocol))
    if content["missing"]:
        lines = [f"- {name}: {why}" for name, why in content["missing"].items()]
        parts += [f"## Missing: {len(lines)} runs", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _accuracies(rows: Sequence[Row], protocol: str) -> list[str]:
    main = main_rows(rows)
    if not main:
        return []
    graphs, lines = names(main, "graph"), []
    highest = {graph: max(row["mean"] for row in chosen(main, graph=graph)) for graph in graphs}
    for model in names(main, "model"):
        cells = []
        for graph in graphs:
            of_cell = chosen(main, graph=graph, model=model)
            cells.append(_cell(of_cell[0], highest[graph]) if of_cell else "missing")
        lines.append([find_model(model).title, *cells])
    computed_rows = chosen(rows, method="computed")
    for model in names(computed_rows, "model"):
        by_graph = {row["graph"]: row for row in chosen(computed_rows, model=model)}
        texts = (_cell(by_graph[graph], highest[graph]) if graph in by_graph else "missing" for graph in graphs)
        lines.append([f"{find_model(model).title}, neighbourhoods computed here", *texts])
    if BEST[protocol]:
        known = [BEST[protocol][graph] for graph in graphs]
        lines.append(["best published", *(f"{best.mean:.1f} ({best.source})" for best in known)])
    splits = sorted({len(row["per_split"]) for row in main})
    text = (
        f"Test accuracy in percent, mean ± standard deviation over {' or '.join(map(str, splits))} splits; the best of ours in "
        "bold; published in brackets. PH-GCN attends through the lattice."
    )
    return [text, table(["model", *graphs], lines)]


def _cell(row: Row, best: float) -> str:
    ours = f"{row['mean']:.1f} ± {row['std']:.1f}"
    ours = f"**{ours}**" if row["mean"] == best else ours
    if row["published"] is None:
        return ours
    deviation = "" if row["published_std"] is None else f" ± {row['published_std']:.1f}"
    return f"{ours} ({row['published']:.1f}{deviation})"


def _significance(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    graphs, lines = names(rows, "graph"), []
    for model in names(rows, "model"):
        for against in names(chosen(rows, model=model), "against"):
            tested = {row["graph"]: row for row in chosen(rows, model=model, against=against)}
            cells = (_tested(tested[graph], "difference", "p") if graph in tested else "missing" for graph in graphs)
            lines.append([f"{find_model(model).title} − {find_model(against).title}", *cells])
    return ["### Against each baseline", _TEST, table(["", *graphs], lines)]


def _tested(row: Row, difference: str, p: str) -> str:
    text = f"{row[difference]:+.1f} (p = {row[p]:.3f})"
    return f"**{text}**" if row[p] < 0.05 else text


def _methods(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines = []
    for row in rows:
        compared = "" if row["to_exact_p"] is None else _tested(row, "to_exact_difference", "to_exact_p")
        time = f"{1000 * row['seconds_per_epoch']:.1f}"
        accuracy = f"{row['mean']:.1f} ± {row['std']:.1f}"
        cells = [row["graph"], find_model(row["model"]).title, row["method"], accuracy, compared, time]
        lines.append([*cells, row["device"]])
    text = "PH-GCN with the same settings, splits and seeds; the difference is that to the exact sum, tested as above."
    heading = ["graph", "model", "method", "accuracy %", "to exact", "ms per epoch", "device"]
    return ["### Does the approximation cost accuracy?", text, table(heading, lines)]


def table(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [heading, ["---"] * len(heading), *lines])


# Figure


def draw(rows: Sequence[Row]) -> Any:
    """Draws a panel per graph: the mean of every model with its standard deviation, by protocol, and what was published."""
    main = main_rows(rows)
    graphs, models, protocols = (names(main, key) for key in ("graph", "model", "protocol"))
    figure, axes = panels(len(graphs), columns=4, width=3.6, height=0.33 * len(models) + 1.2)
    for axis, graph in zip(axes, graphs, strict=True):
        for number, protocol in enumerate(protocols):
            of_panel = chosen(main, graph=graph, protocol=protocol)
            shift = 0.16 * (number - (len(protocols) - 1) / 2)
            places = [models.index(row["model"]) + shift for row in of_panel]
            axis.errorbar(
                [row["mean"] for row in of_panel], places, xerr=[row["std"] for row in of_panel], fmt="o", markersize=4,
                linewidth=1.2, color=COLOURS[number], label=f"protocol {protocol}",
            )  # fmt: skip
            known = [(row, place) for row, place in zip(of_panel, places, strict=True) if row["published"] is not None]
            if known:
                axis.scatter(
                    [row["published"] for row, _ in known], [place for _, place in known], marker="d", s=26,
                    facecolors="none", edgecolors=COLOURS[number], label=f"published, {protocol}", zorder=3,
                )  # fmt: skip
        axis.set_yticks(range(len(models)), [find_model(model).title for model in models], fontsize=8)
        axis.set_ylim(len(models) - 0.5, -0.5)
        axis.grid(axis="x", linewidth=0.4, alpha=0.5)
        axis.set_title(graph, fontsize=10)
        axis.set_xlabel("test accuracy %", fontsize=8)
    marks = {label: mark for axis in axes for mark, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure
