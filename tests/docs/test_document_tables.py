"""Every table of measured figures in the documents is the one that its JSON gives."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *sorted((ROOT / "docs").rglob("*.md"))]

MEASURED = re.compile(r"±|\d(?:x|\s?(?:ms|s|min|%|[KMG]i?B))(?!\w)|\d\.\d|\b(?:ms|GB|MiB)\b")
"""A number with a unit, a deviation or decimals, or a heading with a unit."""

NOT_MEASURED = {
    ("docs/lattice.md", "D"): "spacings and hops of the schemes, from the code",
    ("docs/data.md", "protocol"): "shares of nodes that define a protocol",
    ("docs/layers.md", "argument"): "the constants of a formula",
}
"""Tables with such numbers that no measurement gave: document and first heading."""
OF_THE_CODE = {"dependencies", "environment", "extras", "settings", "rooms", "walk-cpu", "walk-gpu", "works-with"}
"""Blocks between marks that another test compares with the code."""


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """Lets scripts of ``benchmarks`` be imported: they stand beside each other and not in a package."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def documents(scripts):
    return importlib.import_module("documents")


def marks(text):
    return re.findall(r"<!-- (?!end )([\w-]+)(?:: [^\n]*)? -->", text)


def without_marked(text):
    return re.sub(r"<!-- ([\w-]+)(?:: [^\n]*)? -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)


def tables(text):
    """The tables of a document, each as its lines."""
    return [found.splitlines() for found in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE)]


def test_every_marked_table_is_what_its_json_gives(documents):
    for name, table in documents.TABLES.items():
        text = (ROOT / table.page).read_text(encoding="utf-8")
        assert text.count(documents.block(name)) == 1, f"{table.page}, {name}: run make tables"


def test_every_generated_page_is_what_its_json_gives(documents):
    for path in documents.PAGES:
        assert (ROOT / path).read_text(encoding="utf-8") == documents.page_text(path), f"{path}: run make tables"


def test_every_mark_is_of_a_known_table(documents):
    for path in DOCUMENTS:
        page = str(path.relative_to(ROOT))
        for name in marks(path.read_text(encoding="utf-8")):
            assert name in OF_THE_CODE or documents.TABLES[name].page == page, f"{page} has the mark {name}"


def test_no_table_of_measured_figures_stands_outside_marks(documents):
    allowed = set()
    for path in DOCUMENTS:
        page = str(path.relative_to(ROOT))
        if page in documents.PAGES:
            continue
        for lines in tables(without_marked(path.read_text(encoding="utf-8"))):
            if MEASURED.search("\n".join(lines)):
                key = page, lines[0].strip("| ").split(" | ")[0]
                assert key in NOT_MEASURED, f"{page} has figures outside marks: {lines[0]}"
                allowed.add(key)
    assert allowed == set(NOT_MEASURED)


@pytest.mark.parametrize("cell", ["12 ms", "0.91", "88.4 ± 0.8", "1.4 s", "3x", "17 %", "84 GB", "epoch, ms"])
def test_figures_are_recognised(cell):
    assert MEASURED.search(f"| {cell} |")


def test_tests_of_significance_follow_from_the_accuracies():
    from phgcn.reproduce import table_report

    results = ROOT / "docs" / "results"
    rows = json.loads((results / "table.json").read_text())
    kept = json.loads((results / "table-differences.json").read_text())
    assert table_report.differences(rows) == kept["differences"]
    assert table_report.methods(rows) == kept["methods"]


def test_counts_of_graphs_are_those_of_the_files():
    import phgcn.data

    kept = {row["graph"]: row for row in json.loads((ROOT / "docs" / "results" / "graphs.json").read_text())["rows"]}
    rows = phgcn.data.table()
    assert [row.name for row in rows] == list(kept)
    for row in rows:
        assert row.published._asdict() == kept[row.name]["published"]
        if row.found is not None and kept[row.name]["counted"] is not None:
            assert row.found._asdict() == kept[row.name]["counted"], row.name


@pytest.mark.parametrize("method", ["lattice", "lattice-fine", "separable"])
def test_weights_of_copies_are_those_of_the_code(method):
    kept = json.loads((ROOT / "benchmarks" / "results" / "coincident.json").read_text())["rows"]
    row = next(row for row in kept if (row["dim"], row["method"]) == (4, method))
    weights = importlib.import_module("coincident").copy_weights(method, 4)
    assert [min(weights), max(weights)] == pytest.approx([row["least"], row["most"]], abs=1e-6)


def anchors(path):
    """The anchors of a document, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_inside_the_project_leads_somewhere():
    for path in DOCUMENTS:
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if link.startswith(("http://", "https://")):
                continue
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path.relative_to(ROOT)} links to {link}"
            assert not anchor or anchor in anchors(file), f"{path.relative_to(ROOT)} links to {link}"
