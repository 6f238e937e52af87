r"""Tables of the paper's experiments for the README and docs/, as lines of Markdown.

Not run by itself: ``lab/bench/documents.py`` writes them into the documents.  Every function takes
the contents of JSON files."""

from __future__ import annotations

from phgcn_lab import motif_report, table_report, trainings_report
from phgcn_lab.markdown import bold, origin, spread, table
from phgcn_lab.results import chosen, names, page
from phgcn_lab.significance import LEVEL, TEST_OVER_TRAIN, paired
from phgcn_lab.when import report as when_report

TITLES = {
    "gcn": "GCN",
    "gat": "GAT",
    "geom-gcn-i": "Geom-GCN-I",
    "geom-gcn-p": "Geom-GCN-P",
    "geom-gcn-s": "Geom-GCN-S",
    "gat-eda": "GAT-EDA",
    "mlp": "MLP",
    "gcn-residual": "GCN + own channel",
    "gat-eda-residual": "GAT-EDA + own channel",
    "phgcn": "PH-GCN",
    "phgcn-residual": "PH-GCN + own channel",
}
FILTERS = {"lattice": "the former `lattice`", "separable": "`separable`, the paper's filter"}
"""What a method of a row is, where a model attends to all nodes."""
GEOM_GCN_GRAPHS = (
    *("texas", "cornell", "cornell-2020", "wisconsin", "cora", "citeseer", "actor", "pubmed"),
)
GEOM_GCN = {"geom-gcn-i": "-I", "geom-gcn-p": "-P", "geom-gcn-s": "-S"}
MARGIN = 1.0
"""Accuracies that differ by at most so many percentage points count as equivalent."""
OURS = ("exact", "lattice", "separable")
MOTIF_HEADINGS = (
    *("model", "elements", "motifs differ in", "iterations", "accuracy %", "lowest late"),
    "learned by",
)


# Table 2


def table_page(rows: list[dict], tests: dict) -> str:
    return page(table_report.TITLE, table_report.markdown({"rows": rows, **tests}, quick=False))


def accuracies(rows: list[dict]) -> list[str]:
    """Test accuracies under ``paper`` with the published ones in brackets, and what ours are
    above.
    """
    shown = [*table_report.main_rows(rows), *chosen(rows, model="phgcn", method="separable")]
    shown = chosen(shown, protocol="paper")
    graphs = names(shown, "graph")
    lines = []
    for model, title in TITLES.items():
        if model.endswith("-residual"):  # not in the paper
            continue
        for method in sorted({row["method"] for row in chosen(shown, model=model)}, key=str):
            named = f"{title} ({FILTERS[method]})" if method in FILTERS else title
            found = {row["graph"]: row for row in chosen(shown, model=model, method=method)}
            lines.append([named, *(_beside_published(found.get(graph)) for graph in graphs)])
    for model, method in (("phgcn", "separable"), ("gat-eda", None)):
        found = {row["graph"]: row for row in chosen(shown, model=model, method=method)}
        above = [points(found[graph]["mean"] - found[graph]["published"]) for graph in graphs]
        title = "PH-GCN (`separable`)" if method else TITLES[model]
        lines.append([f"*{title} less published*", *above])
    return table(["", *graphs], lines)


def _beside_published(row: dict | None) -> str:
    if row is None:
        return "not run yet"
    return spread(row) + (f" ({row['published']:.1f})" if row["published"] is not None else "")


def claims(rows: list[dict]) -> list[str]:
    """PH-GCN with the paper's filter less every other model: percentage points, p of the corrected
    and of the ordinary paired t-test.
    """
    shown = chosen(rows, protocol="paper")
    others = [model for model in TITLES if model not in ("phgcn", "phgcn-residual")]
    others = [model for model in others if not model.endswith("-residual")]
    lines = []
    for ours in chosen(shown, model="phgcn", method="separable"):
        main = chosen(table_report.main_rows(shown), graph=ours["graph"])
        cells = [_both_tests(ours, row) for model in others for row in chosen(main, model=model)]
        lines.append([ours["graph"], *cells])
    return table(["graph", *(TITLES[model] for model in others)], lines)


def _both_tests(first: dict, second: dict) -> str:
    corrected, ordinary = (
        paired(first["per_split"], second["per_split"], ratio)
        for ratio in (TEST_OVER_TRAIN["paper"], 0.0)
    )
    tests = f"{probability(corrected.p)} ({probability(ordinary.p)})"
    return bold(f"{points(corrected.mean)}, {tests}", corrected.significant)


def geom_gcn(rows: list[dict]) -> list[str]:
    """Means of Geom-GCN under ``geom``: ours, the published ones, and ours on neighbourhoods that
    were computed anew.
    """
    means = {
        (row["graph"], row["model"], row["method"]): row
        for row in chosen(rows, protocol="geom")
        if row["model"] in GEOM_GCN
    }

    def cell(graph: str, model: str) -> str:
        ours, computed = (means[graph, model, source] for source in ("published", "computed"))
        return f"{_beside_published(ours)}; {computed['mean']:.1f}"

    lines = [[graph, *(cell(graph, model) for model in GEOM_GCN)] for graph in GEOM_GCN_GRAPHS]
    return table(["graph", *GEOM_GCN.values()], lines)


def points(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no -0


def probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def interval(test: dict, prefix: str) -> str:
    return f"{points(test[f'{prefix}low'])} to {points(test[f'{prefix}high'])}"


def methods(tests: dict) -> list[str]:
    """The paper's filter less the exact sum, bold where the interval lies within the margin."""
    shown = chosen(tests["methods"], method="separable")
    protocols = names(shown, "protocol")
    cells = {(test["graph"], test["protocol"]): test for test in shown}
    rows = []
    for graph in names(shown, "graph"):
        line = [cells[graph, protocol] for protocol in protocols]
        texts = [
            bold(f"{points(t['to_exact_difference'])} ({interval(t, 'to_exact_')})", equivalent(t))
            for t in line
        ]
        rows.append([graph, *texts])
    heading = ["graph", *(f"`{name}`" for name in protocols)]
    return [methods_summary(tests), "", *table(heading, rows)]


def methods_summary(tests: dict) -> str:
    """Counts the significant and the equivalent among these comparisons."""
    compared = chosen(tests["methods"], method="separable")
    widest = max((t["to_exact_high"] - t["to_exact_low"]) / 2 for t in compared)
    significant = sum(t["to_exact_p"] < LEVEL for t in compared)
    same = sum(map(equivalent, compared))
    return (
        f"Significant differences: {significant} of {len(compared)}. Equivalence within "
        f"{MARGIN:g} point is shown in {same}; intervals reach up to ±{widest:.0f} points."
    )


def equivalent(test: dict) -> bool:
    """Whether the 95 % interval of the difference to the exact sum lies within the margin."""
    return test["to_exact_low"] >= -MARGIN and test["to_exact_high"] <= MARGIN


# Experiments


def motif(content: dict) -> list[str]:
    """The columns of the report's table that the page speaks of."""
    columns = [motif_report.HEADINGS.index(heading) for heading in MOTIF_HEADINGS]
    rows = [[row[column] for column in columns] for row in motif_report.rows(content)]
    return table(MOTIF_HEADINGS, rows)


def scaling(cpu: dict, gpu: dict) -> list[str]:
    """The time at the largest size of a method and cloud, forward, and the exponent of the number
    of points there; a ratio where it comes from two sizes.
    """
    devices = [{(f["method"], f["cloud"]): _growth(c, f) for f in _forward(c)} for c in (cpu, gpu)]
    found = [key for key in devices[0] if key[0] in OURS]
    rows = [[*key, *(cells.get(key, "-") for cells in devices)] for key in found]
    where = [f"{c['provenance']['device']}: {origin(c)}" for c in (cpu, gpu)]
    return ["; ".join(where) + ":", "", *table(["method", "cloud", "CPU", "GPU"], rows)]


def _forward(content: dict) -> list[dict]:
    return chosen(content["fits"], what="forward")


def _growth(content: dict, fit: dict) -> str:
    measured = chosen(content["rows"], method=fit["method"], cloud=fit["cloud"], kind="forward")
    times = {row["count"]: row["median"] for row in measured}
    used = sum(fit["from"] <= count <= fit["to"] for count in times)
    exponent = f"{fit['exponent']:.2f}" + ("*" if used == 2 else "")
    return f"{exponent}, {_digits(1000 * times[max(times)])} ms at {max(times):,}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def when(content: dict) -> list[str]:
    figure = ["![Global attention on less off, with intervals](results/when.png)", ""]
    return [*(figure if content["rows"] else []), *when_report.table_lines(content)]


def tables(content: dict) -> list[str]:
    figure = "![Test errors of all models on tables](results/tables.png)"
    return [figure, "", *trainings_report.markdown(content)]


def city(content: dict) -> list[str]:
    figure = "![Test accuracy of all models on streets](results/city.png)"
    return [figure, "", *trainings_report.markdown(content)]


def labels(content: dict) -> list[str]:
    figure = "![Test results with and without labels on ten graphs](results/labels.png)"
    return [figure, "", *trainings_report.markdown(content)]


# The gallery, and versions


def gallery(content: dict) -> list[str]:
    lines = []
    for row in content["rows"]:
        name, about = row["example"], row["about"]
        took = f"{row['processor_seconds']} processor seconds, imports included"
        lines += [f"## {row['title']}", "", about[0].upper() + about[1:], ""]
        lines += [f"![{row['title']}](figures/gallery-{name}.png)", ""]
        lines += [f"[{name}.py](../examples/{name}.py) took {took}, and printed:", ""]
        lines += ["```", *row["printed"].splitlines(), "```", ""]
    return [*lines, f"Made by `make gallery`, {content['provenance']['date'][:10]}."]


def versions(content: dict) -> list[str]:
    rows = []
    for row in content["rows"]:
        failed = row["failures"] + row["errors"]
        counts = (row["tests"] - failed - row["skipped"], failed, row["skipped"])
        packages = [row[name] for name in ("python", "torch", "torch_geometric", "numba", "numpy")]
        rows.append([f"`{row['session']}`", *packages, *map(str, counts), row["date"]])
    packages = ("Python", "torch", "PyG", "Numba", "NumPy")
    headings = ("session", *packages, "passed", "failed", "skipped", "date")
    tests = ", ".join(f"`{name}`" for name in content["tests"])
    return [*table(headings, rows), "", f"Tests: {tests}."]
