r"""The results of :mod:`phgcn_lab.benchmark`: rows, differences and trials as JSON, tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from phgcn.data.names import GRAPHS as KNOWN
from phgcn.files import read_json, write_text
from phgcn.provenance import provenance
from phgcn.registry import find_model
from phgcn.train.global_path import summarise
from phgcn.train.metrics import mean_and_deviation

from ..markdown import bold, interval, pivot, spread, table
from ..published import BEST
from ..published import RIVALS as KNOWN_RIVALS
from ..results import Row, chosen, names, write_results
from ..significance import LEVEL, holm, paired_by_split
from .search import best_trial, ended
from .spaces import CHOOSING_SPLITS, HEAD_OFF, MODELS, OURS, SEED, TABLE_ORDER

MARKS = {
    "cora": 88.0,
    "pubmed": 90.0,
    "texas": 87.0,
    "wisconsin": 88.0,
    "actor": 37.5,
    "chameleon-filtered": 44.5,
    "squirrel-filtered": 44.5,
    "minesweeper": 97.6,
}
"""What was asked of GlobalGNN before it was measured, mean of ten splits."""
ROWS = (OURS, HEAD_OFF, *(model for model in MODELS if model != OURS))
RIVALS = ROWS[2:]
PAPER_ROWS = ("gcn", "gat-eda", "phgcn")
"""Models of ``phgcn reproduce table`` that stand below: other settings, searched by validation loss
under another protocol.
"""


def write(out: Path) -> Row:
    studies = sorted((read_json(path) for path in (out / "search").glob("*.json")), key=_position)
    trained = sorted((read_json(path) for path in (out / "train").glob("*.json")), key=_position)
    searches = {(study["graph"], study["model"]): study for study in studies}
    rows = [make_row(found, searches.get((found["graph"], found["model"]))) for found in trained]
    content = {"provenance": provenance(SEED), "rows": rows, "differences": differences(rows)}
    title = "GlobalGNN and its rivals"
    files = write_results(out, "benchmark", content, title, markdown(content), {})
    write_text(out / "benchmark-search.json", _one_trial_a_line(studies))
    return {**content, "files": [*files, str(out / "benchmark-search.json")]}


def _position(content: Row) -> tuple[int, int]:
    return TABLE_ORDER.index(content["graph"]), ROWS.index(content.get("row", content["model"]))


def make_row(content: Row, search: Row | None) -> Row:
    splits = sorted(content["splits"], key=lambda split: int(split["split"]))
    tests = {split["split"]: 100 * split["test"] for split in splits}
    unseen = [value for number, value in tests.items() if number not in CHOOSING_SPLITS]
    mean, std = mean_and_deviation(list(tests.values()))
    unseen_mean, unseen_std = mean_and_deviation(unseen) if unseen else (None, None)
    times = sorted(split["seconds_per_epoch"] for split in splits)
    trials = search["trials"] if search else []
    best = best_trial(search) if search else None
    attention = [split.get("global_attention", []) for split in splits]
    keys = ("graph", "model", "row", "protocol", "metric", "settings")
    return {
        **{key: content[key] for key in keys},
        "title": title(content["row"]),
        "quick": content["epochs"] is not None,
        "mean": mean,
        "std": std,
        "unseen_mean": unseen_mean,
        "unseen_std": unseen_std,
        "per_split": list(tests.values()),
        "split_numbers": list(tests),
        "val": [100 * split["val"] for split in splits],
        "best_epochs": [split["best_epoch"] for split in splits],
        "epochs": sum(split["epochs"] for split in splits),
        "seconds_per_epoch": times[len(times) // 2],
        "test_over_train": splits[0]["test_nodes"] / splits[0]["train_nodes"],
        "global_path": summarise(attention, KNOWN[content["graph"]].published.nodes),
        "search_trials": len(ended(trials)),
        "search_seconds": sum((trial["seconds"] for trial in trials), 0.0),
        "search_value": 100 * best["value"] if best else None,
        "commits": sorted({str(split["commit"]) for split in splits}),
        "devices": sorted({str(split["device"]) for split in splits}),
        "dirty": any(split["dirty"] for split in splits),
    }


def title(row: str) -> str:
    return "GlobalGNN, head off" if row == HEAD_OFF else find_model(row).title


def _one_trial_a_line(studies: Sequence[Row]) -> str:
    """One trial per line: there are thousands."""
    parts = []
    for study in studies:
        about = json.dumps({key: value for key, value in study.items() if key != "trials"})
        trials = ",\n  ".join(json.dumps(trial) for trial in study["trials"])
        parts.append(f'{about[:-1]}, "trials": [\n  {trials}\n ]}}')
    return "[" + ",\n ".join(parts) + "]\n"


# Differences


def differences(rows: Sequence[Row]) -> list[Row]:
    """Compares GlobalGNN with its head-off row, with the rival of the highest mean, and with every
    rival, on the same splits.

    Holm's correction is over the graphs for the first two kinds, and over all graphs and rivals for
    the third."""
    compared: list[Row] = []
    for ours in chosen(rows, row=OURS):
        of_graph = {row["row"]: row for row in chosen(rows, graph=ours["graph"])}
        rivals = [of_graph[name] for name in RIVALS if name in of_graph]
        best = max(rivals, key=lambda row: float(row["mean"]), default=None)
        pairs = [("head-off", of_graph.get(HEAD_OFF)), ("best rival", best)]
        for kind, other in (*pairs, *(("rival", rival) for rival in rivals)):
            tested = other and _difference(ours, other)
            compared += [{"kind": kind, **tested}] if tested else []
    for kind in ("head-off", "best rival", "rival"):
        of_kind = chosen(compared, kind=kind)
        for row, p in zip(of_kind, holm([row["p"] for row in of_kind]), strict=True):
            row["p_holm"] = p
    return compared


def _difference(first: Row, second: Row) -> Row | None:
    ours, others = (
        dict(zip(row["split_numbers"], row["per_split"], strict=True)) for row in (first, second)
    )
    if (tested := paired_by_split(ours, others, first["test_over_train"])) is None:
        return None
    unseen = [ours[n] - others[n] for n in ours if n in others and n not in CHOOSING_SPLITS]
    return {
        "graph": first["graph"],
        "against": second["row"],
        **tested.row(),
        "unseen_difference": sum(unseen) / len(unseen) if unseen else None,
    }


# Tables

NOTHING = ["Not measured yet."]


def markdown(content: Row) -> list[str]:
    parts = {
        "Mean of ten splits": accuracy_table,
        "Differences": difference_table,
        "Searches": effort_table,
    }
    made = [[f"## {heading}", "", *lines(content), ""] for heading, lines in parts.items()]
    return [line for part in made for line in part][:-1]


def accuracy_table(content: Row, paper: Sequence[Row] = ()) -> list[str]:
    """Test metric in percent; ``paper`` are rows of ``table.json``, to stand below."""
    rows, graphs = content["rows"], _graphs(content["rows"])
    highest = {graph: max(row["mean"] for row in chosen(rows, graph=graph)) for graph in graphs}
    ours = {
        (title(row["row"]), row["graph"]): bold(spread(row), row["mean"] == highest[row["graph"]])
        + _published(row)
        for row in _by_model(rows)
    }
    cells = {**ours, **_paper_cells(rows, paper), **_published_cells(rows)}
    return [*pivot("model", graphs, cells), *_notes(rows)] if rows else NOTHING


def _by_model(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: ROWS.index(row["row"]))


def _published(row: Row) -> str:
    known = KNOWN_RIVALS.get(row["model"], {}).get(row["graph"])
    return "" if known is None else f" ({known:.1f})"


def _notes(rows: Sequence[Row]) -> list[str]:
    """Names rows with fewer splits, and quick versions."""
    most = max((len(row["per_split"]) for row in rows), default=0)
    fewer = [
        f"{row['title']} on {row['graph']} ({len(row['per_split'])})"
        for row in rows
        if len(row["per_split"]) < most
    ]
    notes = [f"Fewer than {most} splits: {', '.join(fewer)}."] if fewer else []
    if any(row["quick"] for row in rows):
        said = "A quick version: few trials and epochs. It shows the form, not the results."
        notes.append(bold(said))
    return ["", *notes] if notes else []


Cells = dict[tuple[str, str], str]


def _paper_cells(rows: Sequence[Row], paper: Sequence[Row]) -> Cells:
    protocols = {row["graph"]: row["protocol"] for row in rows}
    same = [
        row
        for row in paper
        if row["method"] in (None, "lattice") and protocols.get(row["graph"]) == row["protocol"]
    ]
    cells: Cells = {}
    for model in PAPER_ROWS:
        if means := {row["graph"]: spread(row) for row in chosen(same, model=model)}:
            line = f"{find_model(model).title}, paper's recipe"
            cells |= {(line, graph): means.get(graph, "-") for graph in protocols}
    return cells


def _published_cells(rows: Sequence[Row]) -> Cells:
    cells = {}
    for graph, protocol in names(rows, "graph", "protocol"):
        known = BEST[protocol].get(graph)
        text = f"{known.mean:.1f} ({known.source})" if known else "-"
        cells["best published", graph] = text
    return cells


def difference_table(content: Row) -> list[str]:
    """GlobalGNN less its head-off row and less the best rival, with p after Holm; and the marks."""
    lines = []
    for graph in _graphs(content["differences"]):
        ours = chosen(content["rows"], graph=graph, row=OURS)[0]
        tested = chosen(content["differences"], graph=graph)
        cells = [_tested(chosen(tested, kind=kind)) for kind in ("head-off", "best rival")]
        mark = f"{ours['mean']:.1f} of {MARKS[graph]:g}" if graph in MARKS else "-"
        lines.append([graph, *cells, mark])
    heading = ["graph", "less head off", "less the best rival", "mark"]
    return [summary(content), "", *table(heading, lines)] if lines else NOTHING


def _tested(rows: Sequence[Row]) -> str:
    if not rows:
        return "missing"
    row = rows[0]
    text = bold(f"{interval(row)}, p = {row['p_holm']:.2f}", row["p_holm"] < LEVEL)
    return f"{title(row['against'])}: {text}" if row["kind"] == "best rival" else text


def summary(content: Row) -> str:
    """Compares GlobalGNN with head-off, every rival and the marks, in sentences."""
    rows = content["rows"]
    ours = {row["graph"]: row["mean"] for row in chosen(rows, row=OURS)}
    parts = []
    if off := chosen(content["differences"], kind="head-off"):
        lowest = min(off, key=lambda row: float(row["difference"]))
        parts.append(
            f"Against its own head-off row the difference is at least {lowest['difference']:+.1f} "
            f"points ({lowest['graph']}), "
            f"and significantly positive on {len(_significant(off, 1)) or 'no'} of {len(off)} "
            f"graphs."
        )
    against = chosen(content["differences"], kind="rival")
    low, high = _significant(against, -1), _significant(against, 1)
    named = ", ".join(f"{title(row['against'])} on {row['graph']}" for row in low)
    asked = [graph for graph in ours if graph in MARKS]
    reached = sum(ours[graph] >= MARKS[graph] for graph in asked)
    parts.append(
        f"Of {len(against)} comparisons with single rivals it is significantly above in "
        f"{len(high)} and below in "
        f"{len(low)}{f' ({named})' if named else ''}. Marks reached: {reached} of {len(asked)}."
    )
    return " ".join(parts)


def _significant(rows: Sequence[Row], sign: int) -> list[Row]:
    return [row for row in rows if row["p_holm"] < LEVEL and sign * row["difference"] > 0]


def effort_table(content: Row) -> list[str]:
    """Trials that came to an end in the searches of every model: the fewest and the most."""
    rows = [row for row in _by_model(content["rows"]) if row["row"] != HEAD_OFF]
    lines = []
    for name in names(rows, "row"):
        trials = [row["search_trials"] for row in chosen(rows, row=name)]
        lines.append([title(name), str(min(trials)), str(max(trials))])
    return table(["trials on a graph", "fewest", "most"], lines) if rows else NOTHING


def _graphs(rows: Sequence[Row]) -> list[str]:
    return sorted(names(rows, "graph"), key=TABLE_ORDER.index)
