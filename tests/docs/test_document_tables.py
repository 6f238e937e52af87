"""Every table of measured figures in the documents is the one that its JSON gives."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "lab/README")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

MEASURED = re.compile(r"±|\d(?:x|\s?(?:ms|s|min|%|[KMG]i?B))(?!\w)|\d\.\d|\b(?:ms|GB|MiB)\b")
"""A number with a unit, a deviation or decimals, or a heading with a unit."""

NOT_MEASURED = {
    ("docs/data.md", "protocol"): "shares of nodes that define a protocol",
    ("docs/layers.md", "argument"): "the constants of a formula",
    ("CHANGELOG.md", "room"): "lines of two commits, counted by git",
}
"""Tables with such numbers that no measurement gave: document and first heading."""
OF_THE_CODE = {
    "dependencies",
    "environment",
    "extras",
    "lab-extras",
    "settings",
    "candidates",
    "rooms",
    "walk-cpu",
    "walk-gpu",
    "works-with",
}
"""Blocks between marks that another test compares with the code."""


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """Lets scripts of ``benchmarks`` be imported: they stand beside each other and not in a
    package.
    """
    folder = str(ROOT / "lab" / "bench")
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
    return [
        found.splitlines() for found in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE)
    ]


def test_every_marked_table_is_what_its_json_gives(documents):
    for name, table in documents.TABLES.items():
        text = (ROOT / table.page).read_text(encoding="utf-8")
        assert text.count(documents.block(name)) == 1, f"{table.page}, {name}: run make tables"


def test_every_generated_page_is_what_its_json_gives(documents):
    for path in documents.PAGES:
        assert (ROOT / path).read_text(encoding="utf-8") == documents.page_text(path), (
            f"{path}: run make tables"
        )


def there(documents, table):
    return all((ROOT / source).is_file() for source in table.sources)


def test_every_table_names_commit_and_date(documents):
    for name, table in documents.TABLES.items():
        text = documents.block(name).partition("-->")[2]
        assert not there(documents, table) or ("ommit" in text and re.search(r"20\d\d-", text)), (
            f"{name} does not say at which commit and when it was measured"
        )


def test_no_figure_is_much_older_than_its_code_unsaid(documents):
    ages = importlib.import_module("ages")
    if not ages.is_whole():
        pytest.skip("the history is not there")
    tables = [table for table in documents.TABLES.values() if there(documents, table)]
    for source in sorted({source for table in tables for source in table.sources}):
        origins = documents.origins(documents.content(source))
        age = ages.age(source, {commit for commit, _ in origins})
        assert age <= ages.LIMIT or Path(source).stem in ages.OLD, (
            f"{source}: {age} commits in {ages.rooms(source)} since it was measured; measure it "
            "anew, or say in lab/bench/ages.py why it is old"
        )


def test_what_is_said_to_be_old_is_of_the_commits_named(documents):
    ages = importlib.import_module("ages")
    sources = {Path(s).stem: s for table in documents.TABLES.values() for s in table.sources}
    for name, old in ages.OLD.items():
        commits = {commit for commit, _ in documents.origins(documents.content(sources[name]))}
        assert commits == set(old.commits), f"{name} was measured anew: take it off ages.OLD"


def test_an_old_table_says_so(documents, monkeypatch):
    ages = importlib.import_module("ages")
    old = ages.Old(("d0a6f32",), "measured long ago")
    monkeypatch.setitem(ages.OLD, "split_overlap", old)
    assert "\nOld: measured long ago.\n" in documents.block("split-overlap")


def test_ages_count_commits_in_rooms():
    ages = importlib.import_module("ages")
    if not ages.is_whole():
        pytest.skip("the history is not there")
    joined = ages.commits_since("47654a3", ["src"])
    assert (
        ages.commits_since("HEAD", ["src"]) == 0 < joined == ages.commits_since("3e4b9fd", ["src"])
    )
    assert ages.commits_since("3e4b9fd", ["no/such/room"]) == 0


def test_every_commit_that_is_named_exists_or_was_joined_into_one(documents):
    ages = importlib.import_module("ages")
    if not ages.is_whole():
        pytest.skip("the history is not there")
    texts = (path.read_text(encoding="utf-8") for path in DOCUMENTS)
    named = {commit for text in texts for commit in re.findall(r"\b[0-9a-f]{7}\b", text)}
    measured = {
        commit
        for table in documents.TABLES.values()
        for source in table.sources
        if (ROOT / source).is_file()
        for commit, _ in documents.origins(documents.content(source))
    }
    known = ages.history()
    assert set(ages.JOINED.values()) <= known and not known & set(ages.JOINED)
    assert named | measured <= known | set(ages.JOINED)
    gone = set(ages.JOINED) - named - measured
    assert not gone, f"no figure names {gone} any more: take them off ages.JOINED"


def test_parts_of_a_file_have_commits_of_their_own(documents):
    whole = {
        "provenance": {"commit": "a" * 40, "date": "2026-01-02T03"},
        "rows": [{"commit": "b" * 40}],
    }
    assert documents.origins(whole) == {("a" * 7, "2026-01-02"), ("b" * 7, "2026-01-02")}


def test_figures_of_uncommitted_code_are_said(documents, monkeypatch):
    assert documents.is_dirty([{"provenance": {"dirty": True}}])
    assert not documents.is_dirty({"dirty": False, "rows": [{"dirty": None}, 1]})
    monkeypatch.setattr(documents, "is_dirty", lambda found: True)
    assert "not committed" in documents.block("split-overlap")


def test_every_mark_is_of_a_known_table(documents):
    for path in DOCUMENTS:
        page = str(path.relative_to(ROOT))
        for name in marks(path.read_text(encoding="utf-8")):
            assert name in OF_THE_CODE or documents.TABLES[name].page == page, (
                f"{page} has the mark {name}"
            )


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


@pytest.mark.parametrize(
    "cell", ["12 ms", "0.91", "88.4 ± 0.8", "1.4 s", "3x", "17 %", "84 GB", "epoch, ms"]
)
def test_figures_are_recognised(cell):
    assert MEASURED.search(f"| {cell} |")


def test_tests_of_significance_follow_from_the_accuracies():
    from phgcn_lab import table_report

    results = ROOT / "docs" / "results"
    rows = json.loads((results / "table.json").read_text())
    kept = json.loads((results / "table-differences.json").read_text())
    assert table_report.differences(rows) == kept["differences"]
    assert table_report.methods(rows) == kept["methods"]


def test_counts_of_graphs_are_those_of_the_files():
    import phgcn.data

    kept = {
        row["graph"]: row
        for row in json.loads((ROOT / "docs" / "results" / "graphs.json").read_text())["rows"]
    }
    rows = phgcn.data.table()
    assert [row.name for row in rows] == list(kept)
    for row in rows:
        assert row.published._asdict() == kept[row.name]["published"]
        if row.found is not None and kept[row.name]["counted"] is not None:
            assert row.found._asdict() == kept[row.name]["counted"], row.name


def anchors(path):
    """The anchors of a document, as GitHub makes them of its headings."""
    text = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_inside_the_project_leads_somewhere():
    for path in DOCUMENTS:
        text = re.sub(
            r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if link.startswith(("http://", "https://")):
                continue
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path.relative_to(ROOT)} links to {link}"
            assert not anchor or anchor in anchors(file), (
                f"{path.relative_to(ROOT)} links to {link}"
            )
