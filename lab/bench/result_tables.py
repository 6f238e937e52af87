r"""Tables of the paper's experiments for the README and docs/, as lines of Markdown.

Not run by itself: ``lab/bench/documents.py`` writes them into the documents.  Every function takes
the contents of JSON files."""

from __future__ import annotations

from phgcn_lab import table_report, trainings_report
from phgcn_lab.markdown import bold, origin, pivot, spread, table
from phgcn_lab.results import chosen, names
from phgcn_lab.scaling_report import growth
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
MARGIN = 1.0  # Accuracies that differ by at most so many percentage points count as equivalent
OURS = ("exact", "lattice", "separable")


# Table 2


def accuracies(rows: list[dict]) -> list[str]:
    """Test accuracies under ``paper`` with the published ones in brackets, and what ours are
    above.
    """
    shown = [*table_report.main_rows(rows), *chosen(rows, model="phgcn", method="separable")]
    shown = chosen(shown, protocol="paper")
    cells = {}
    for model, title in TITLES.items():
        if model.endswith("-residual"):  # not in the paper
            continue
        for row in sorted(chosen(shown, model=model), key=lambda row: str(row["method"])):
            method = row["method"]
            named = f"{title} ({FILTERS[method]})" if method in FILTERS else title
            cells[named, row["graph"]] = _beside_published(row)
    for model, method in (("phgcn", "separable"), ("gat-eda", None)):
        title = "PH-GCN (`separable`)" if method else TITLES[model]
        for row in chosen(shown, model=model, method=method):
            above = points(row["mean"] - row["published"])
            cells[f"*{title} less published*", row["graph"]] = above
    return pivot("", names(shown, "graph"), cells, missing="not run yet")


def _beside_published(row: dict) -> str:
    return spread(row) + (f" ({row['published']:.1f})" if row["published"] is not None else "")


def claims(rows: list[dict]) -> list[str]:
    """PH-GCN with the paper's filter less every other model: percentage points, p of the corrected
    and of the ordinary paired t-test.
    """
    shown = chosen(rows, protocol="paper")
    others = [m for m in TITLES if m != "phgcn" and not m.endswith("-residual")]
    cells = {
        (ours["graph"], TITLES[row["model"]]): _both_tests(ours, row)
        for ours in chosen(shown, model="phgcn", method="separable")
        for row in chosen(table_report.main_rows(shown), graph=ours["graph"])
        if row["model"] in others
    }
    return pivot("graph", [TITLES[model] for model in others], cells)


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
    cells = {}
    for graph in GEOM_GCN_GRAPHS:
        of_graph = chosen(rows, protocol="geom", graph=graph)
        for model, title in GEOM_GCN.items():
            (ours,) = chosen(of_graph, model=model, method="published")
            (computed,) = chosen(of_graph, model=model, method="computed")
            cells[graph, title] = f"{_beside_published(ours)}; {computed['mean']:.1f}"
    return pivot("graph", list(GEOM_GCN.values()), cells)


def points(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no -0


def probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def interval(test: dict, prefix: str) -> str:
    return f"{points(test[f'{prefix}low'])} to {points(test[f'{prefix}high'])}"


def methods(tests: dict) -> list[str]:
    """The paper's filter less the exact sum, bold where the interval lies within the margin."""
    shown = chosen(tests["methods"], method="separable")
    cells = {
        (test["graph"], f"`{test['protocol']}`"): bold(
            f"{points(test['to_exact_difference'])} ({interval(test, 'to_exact_')})",
            equivalent(test),
        )
        for test in shown
    }
    protocols = [f"`{name}`" for name in names(shown, "protocol")]
    return [methods_summary(tests), "", *pivot("graph", protocols, cells)]


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


def scaling(cpu: dict, gpu: dict) -> list[str]:
    """Our methods, forward: how time grows with the number of points on each device."""
    ours = [key for key in names(cpu["rows"], "method", "cloud") if key[0] in OURS]
    rows = [[*key, *(growth(content, *key, "forward") for content in (cpu, gpu))] for key in ours]
    where = [f"{c['provenance']['device']}: {origin(c)}" for c in (cpu, gpu)]
    return ["; ".join(where) + ":", "", *table(["method", "cloud", "CPU", "GPU"], rows)]


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
