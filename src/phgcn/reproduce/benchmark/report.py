r"""The results of :mod:`phgcn.reproduce.benchmark`: one JSON of all rows and differences, one of all trials, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...data.names import GRAPHS as KNOWN
from ...files import read_json, write_json, write_text
from ...provenance import provenance
from ...registry import find_model
from ...train.global_path import summarise
from ...train.metrics import mean_and_deviation
from ..published import BEST
from ..significance import LEVEL, holm, paired
from .search import best_trial, ended
from .spaces import CHOOSING_SPLITS, HEAD_OFF, MODELS, OURS, SEED, TABLE_ORDER

MARKS = {
    "cora": 88.0, "pubmed": 90.0, "texas": 87.0, "wisconsin": 88.0, "actor": 37.5, "chameleon-filtered": 44.5,
    "squirrel-filtered": 44.5, "minesweeper": 97.6,
}  # fmt: skip
"""What was asked of GlobalGNN before it was measured, mean of ten splits."""
ROWS = (OURS, HEAD_OFF, *(model for model in MODELS if model != OURS))
RIVALS = ROWS[2:]
PAPER_ROWS = ("mlp", "gcn", "gat", "gat-eda", "phgcn", "phgcn-residual")
"""Models of ``phgcn reproduce table`` that stand below: other settings, searched by validation loss under another protocol."""

Row = dict[str, Any]


def write(out: Path) -> dict[str, Any]:
    """Joins what is in the folder into ``benchmark.json``, ``benchmark-search.json`` and ``benchmark.md``."""
    studies = sorted((read_json(path) for path in (out / "search").glob("*.json")), key=_place)
    trained = sorted((read_json(path) for path in (out / "train").glob("*.json")), key=_place)
    searches = {(study["graph"], study["model"]): study for study in studies}
    rows = [make_row(content, searches.get((content["graph"], content["model"]))) for content in trained]
    content = {"provenance": provenance(SEED), "rows": rows, "differences": differences(rows)}
    write_json(out / "benchmark.json", content)
    write_text(out / "benchmark-search.json", _one_trial_a_line(studies))
    write_text(out / "benchmark.md", markdown(content))
    files = [str(out / name) for name in ("benchmark.json", "benchmark-search.json", "benchmark.md")]
    return {**content, "files": files}


def _place(content: Row) -> tuple[int, int]:
    """Returns what rows are sorted by: the graph, then the model."""
    return TABLE_ORDER.index(content["graph"]), ROWS.index(content.get("row", content["model"]))


def make_row(content: Row, search: Row | None) -> Row:
    """Makes a row of a file of trainings; metrics in percent."""
    splits = sorted(content["splits"], key=lambda split: int(split["split"]))
    tests = {split["split"]: 100 * split["test"] for split in splits}
    unseen = [value for number, value in tests.items() if number not in CHOOSING_SPLITS]
    times = sorted(split["seconds_per_epoch"] for split in splits)
    best = best_trial(search) if search else None
    return {
        **{key: content[key] for key in ("graph", "model", "row", "protocol", "metric", "settings")},
        "title": title(content["row"]),
        "quick": content["epochs"] is not None,
        **dict(zip(("mean", "std"), mean_and_deviation(list(tests.values())), strict=True)),
        **dict(zip(("unseen_mean", "unseen_std"), mean_and_deviation(unseen) if unseen else (None, None), strict=True)),
        "per_split": list(tests.values()),
        "split_numbers": list(tests),
        "val": [100 * split["val"] for split in splits],
        "best_epochs": [split["best_epoch"] for split in splits],
        "epochs": sum(split["epochs"] for split in splits),
        "seconds_per_epoch": times[len(times) // 2],
        "test_over_train": splits[0]["test_nodes"] / splits[0]["train_nodes"],
        "global_path": summarise(
            [split.get("global_attention", []) for split in splits], KNOWN[content["graph"]].published.nodes
        ),
        "search_trials": len(ended(search["trials"])) if search else 0,
        "search_seconds": sum(trial["seconds"] for trial in search["trials"]) if search else 0.0,
        "search_value": 100 * best["value"] if best else None,
        **{f"{key}s": sorted({str(split[key]) for split in splits}) for key in ("commit", "device")},
        "dirty": any(split["dirty"] for split in splits),
    }


def title(row: str) -> str:
    """Returns the name of a row in tables."""
    return "GlobalGNN, head off" if row == HEAD_OFF else find_model(row).title


def _one_trial_a_line(studies: Sequence[Row]) -> str:
    """Writes all searches as JSON with one line per trial: there are thousands."""
    parts = []
    for study in studies:
        about = json.dumps({key: value for key, value in study.items() if key != "trials"})
        trials = ",\n  ".join(json.dumps(trial) for trial in study["trials"])
        parts.append(f'{about[:-1]}, "trials": [\n  {trials}\n ]}}')
    return "[" + ",\n ".join(parts) + "]\n"


# Differences


def chosen(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Selects the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def differences(rows: Sequence[Row]) -> list[Row]:
    """Compares GlobalGNN with its head-off row, with the rival of the highest mean, and with every rival, on the same splits.

    Holm's correction is over the graphs for the first two kinds, and over all graphs and rivals for the third.
    """
    compared: list[Row] = []
    for ours in chosen(rows, row=OURS):
        of_graph = {row["row"]: row for row in chosen(rows, graph=ours["graph"])}
        rivals = [of_graph[name] for name in RIVALS if name in of_graph]
        best = max(rivals, key=lambda row: float(row["mean"]), default=None)
        pairs = [("head-off", of_graph.get(HEAD_OFF)), ("best rival", best), *(("rival", rival) for rival in rivals)]
        compared += [
            {"kind": kind, **tested} for kind, other in pairs if other is not None and (tested := _difference(ours, other))
        ]
    for kind in ("head-off", "best rival", "rival"):
        of_kind = chosen(compared, kind=kind)
        for row, p in zip(of_kind, holm([row["p"] for row in of_kind]), strict=True):
            row["p_holm"] = p
    return compared


def _difference(first: Row, second: Row) -> Row | None:
    """Compares two rows on the splits that both have; :obj:`None` if these are fewer than two."""
    values = [dict(zip(row["split_numbers"], row["per_split"], strict=True)) for row in (first, second)]
    numbers = [number for number in values[0] if number in values[1]]
    if len(numbers) < 2:
        return None
    tested = paired([values[0][n] for n in numbers], [values[1][n] for n in numbers], first["test_over_train"])
    unseen = [values[0][n] - values[1][n] for n in numbers if n not in CHOOSING_SPLITS]
    return {
        "graph": first["graph"], "against": second["row"], "difference": tested.mean, "low": tested.low, "high": tested.high,
        "p": tested.p, "splits": tested.splits, "unseen_difference": sum(unseen) / len(unseen) if unseen else None,
    }  # fmt: skip


# Tables


def markdown(content: dict[str, Any]) -> str:
    parts = ["# GlobalGNN and its rivals", "## Mean of ten splits", *_joined(accuracy_table(content))]
    parts += ["## Mean of the seven splits that chose nothing", *_joined(unseen_table(content))]
    parts += ["## Differences", *_joined(difference_table(content)), "## Time", *_joined(time_table(content))]
    parts += ["## Searches", *_joined(effort_table(content))]
    return "\n\n".join(parts) + "\n"


def _joined(lines: list[str]) -> list[str]:
    return ["\n".join(lines)]


NOTHING = ["Not measured yet."]


def accuracy_table(content: dict[str, Any], paper: Sequence[Row] = ()) -> list[str]:
    """Test metric in percent of every model on every graph, over all splits, and what was published.

    Args:
        content (dict): That of ``benchmark.json``.
        paper (list of dict, optional): The rows of ``table.json``, to stand below. (default: none)
    """
    return _metric_table(content["rows"], "mean", "std", [*_paper_lines(content, paper), _published_line(content)])


def unseen_table(content: dict[str, Any]) -> list[str]:
    """The same over the splits that had no say in the settings."""
    return _metric_table(content["rows"], "unseen_mean", "unseen_std", [])


def _metric_table(rows: Sequence[Row], mean: str, std: str, below: Sequence[Sequence[str]]) -> list[str]:
    graphs = _graphs(rows)
    if not graphs:
        return NOTHING
    highest = {graph: max((row[mean] or 0.0 for row in chosen(rows, graph=graph)), default=0.0) for graph in graphs}
    lines = []
    for name in _names(rows):
        cells = {row["graph"]: row for row in chosen(rows, row=name) if row[mean] is not None}
        lines.append([title(name), *(_cell(cells.get(graph), mean, std, highest[graph]) for graph in graphs)])
    return [*_table(["model", *graphs], [*lines, *below]), *_notes(rows)]


def _cell(row: Row | None, mean: str, std: str, highest: float) -> str:
    if row is None:
        return "missing"
    text = f"{row[mean]:.1f} ± {row[std]:.1f}"
    return f"**{text}**" if row[mean] == highest else text


def _notes(rows: Sequence[Row]) -> list[str]:
    """Says which rows are of fewer splits, or of a quick version."""
    most = max(len(row["per_split"]) for row in rows)
    fewer = [f"{row['title']} on {row['graph']} ({len(row['per_split'])})" for row in rows if len(row["per_split"]) < most]
    notes = [f"Fewer than {most} splits: {', '.join(fewer)}."] if fewer else []
    if any(row["quick"] for row in rows):
        notes.append("**A quick version: few trials and epochs. It shows the form, not the results.**")
    return ["", *notes] if notes else []


def _paper_lines(content: dict[str, Any], paper: Sequence[Row]) -> list[list[str]]:
    """Makes a line of each model of ``table.json``, under the same splits."""
    lines, graphs = [], _graphs(content["rows"])
    protocols = {row["graph"]: row["protocol"] for row in content["rows"]}
    for model in PAPER_ROWS:
        of_model = [row for row in chosen(paper, model=model) if row["method"] in (None, "lattice")]
        means = {row["graph"]: row for row in of_model if protocols.get(row["graph"]) == row["protocol"]}
        if means:
            cells = [f"{means[graph]['mean']:.1f} ± {means[graph]['std']:.1f}" if graph in means else "-" for graph in graphs]
            lines.append([f"{find_model(model).title}, paper's recipe", *cells])
    return lines


def _published_line(content: dict[str, Any]) -> list[str]:
    cells = []
    for graph in _graphs(content["rows"]):
        known = BEST[chosen(content["rows"], graph=graph)[0]["protocol"]].get(graph)
        cells.append(f"{known.mean:.1f} ({known.source})" if known else "-")
    return ["best published", *cells]


def difference_table(content: dict[str, Any]) -> list[str]:
    """GlobalGNN less its head-off row and less the best rival: mean, 95 % interval, p after Holm; and the marks."""
    graphs = _graphs(content["differences"])
    if not graphs:
        return NOTHING
    lines = []
    for graph in graphs:
        ours = chosen(content["rows"], graph=graph, row=OURS)[0]
        cells = [_tested(chosen(content["differences"], graph=graph, kind=kind)) for kind in ("head-off", "best rival")]
        mark = f"{ours['mean']:.1f} of {MARKS[graph]:g}" if graph in MARKS else "-"
        lines.append([graph, cells[0], cells[1], mark])
    heading = ["graph", "less head off", "less the best rival", "mark"]
    return [summary(content), "", *_table(heading, lines)]


def _tested(rows: Sequence[Row]) -> str:
    if not rows:
        return "missing"
    row = rows[0]
    text = f"{row['difference']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f}), p = {row['p_holm']:.2f}"
    text = f"**{text}**" if row["p_holm"] < LEVEL else text
    return f"{title(row['against'])}: {text}" if row["kind"] == "best rival" else text


def summary(content: dict[str, Any]) -> str:
    """Says in a few sentences how GlobalGNN stands: to head-off, to every rival, and to the marks."""
    rows = content["rows"]
    means = {(row["row"], row["graph"]): row["mean"] for row in rows}
    graphs = [graph for graph in _graphs(rows) if (OURS, graph) in means]

    def above(name: str) -> str:
        both = [graph for graph in graphs if (name, graph) in means]
        higher = sum(means[OURS, graph] > means[name, graph] for graph in both)
        return f"{title(name)} on {higher} of {len(both)}"

    off = chosen(content["differences"], kind="head-off")
    lowest = min(off, key=lambda row: float(row["difference"]), default=None)
    against = chosen(content["differences"], kind="rival")
    low = [row for row in against if row["p_holm"] < LEVEL and row["difference"] < 0]
    high = [row for row in against if row["p_holm"] < LEVEL and row["difference"] > 0]
    reached = [graph for graph in graphs if graph in MARKS and means[OURS, graph] >= MARKS[graph]]
    asked = [graph for graph in graphs if graph in MARKS]
    parts = [f"GlobalGNN has the higher mean than {above('sgformer')} and than {above('polynormer')} graphs."]
    if lowest is not None:
        better = sum(row["p_holm"] < LEVEL and row["difference"] > 0 for row in off)
        parts.append(
            f"Against its own head-off row the difference is at least {lowest['difference']:+.1f} points ({lowest['graph']}), "
            f"and significantly positive on {better or 'no'} of {len(off)} graphs."
        )
    named = ", ".join(f"{title(row['against'])} on {row['graph']}" for row in low)
    parts.append(
        f"Of {len(against)} comparisons with single rivals it is significantly above in {len(high)} and below in "
        f"{len(low)}{f' ({named})' if named else ''}. Marks reached: {len(reached)} of {len(asked)}."
    )
    return " ".join(parts)


def time_table(content: dict[str, Any]) -> list[str]:
    """Milliseconds per epoch, validation included, of the settings that each model was found to do best with."""
    cells = {(row["row"], row["graph"]): f"{1000 * row['seconds_per_epoch']:.1f}" for row in content["rows"]}
    return _cell_table("ms per epoch", content["rows"], cells)


def effort_table(content: dict[str, Any]) -> list[str]:
    """Trials that came to an end, and seconds, of the search of every model on every graph."""
    rows = [row for row in content["rows"] if row["row"] != HEAD_OFF]
    cells = {(row["row"], row["graph"]): f"{row['search_trials']}, {row['search_seconds']:.0f} s" for row in rows}
    return _cell_table("trials, time", rows, cells)


def _cell_table(heading: str, rows: Sequence[Row], cells: dict[tuple[str, str], str]) -> list[str]:
    """Makes a table of the models by the graphs."""
    graphs = _graphs(rows)
    if not graphs:
        return NOTHING
    lines = [[title(name), *(cells.get((name, graph), "missing") for graph in graphs)] for name in _names(rows)]
    return _table([heading, *graphs], lines)


def settings_table(content: dict[str, Any]) -> list[str]:
    """The settings that were chosen for GlobalGNN, graph by graph."""
    rows = chosen(content["rows"], row=OURS)
    if not rows:
        return NOTHING
    keys = list(rows[0]["settings"])
    lines = [[f"`{key}`", *(str(row["settings"].get(key, "-")).lower() for row in rows)] for key in keys]
    return _table(["setting", *(row["graph"] for row in rows)], lines)


def _graphs(rows: Sequence[Row]) -> list[str]:
    named = {row["graph"] for row in rows}
    return [graph for graph in TABLE_ORDER if graph in named]


def _names(rows: Sequence[Row]) -> list[str]:
    named = {row["row"] for row in rows}
    return [row for row in ROWS if row in named]


def _table(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in [heading, ["---"] * len(heading), *lines]]
