"""Pages of the documents: how they begin, and whether what they say of variables, dependencies and
code is so.
"""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

import phgcn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT, LAB = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in ("", "lab")
)
SOURCES = ("src/phgcn", "lab/src/phgcn_lab")
MOST_WORDS = 31_000  # of README.md and docs/*.md
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "results")
INCLUDED = {"contributing.md", "changelog.md"}
"""Pages of the site that are files of the project's root."""
RUN_ELSEWHERE = {
    "layers.md": "tests/nn/test_examples.py",
    "tutorial.md": "tests/cli/test_documents.py",
}
RUN_ELSEWHERE |= dict.fromkeys(
    ("own-graphs.md", "explorer.md", "commands.md"), "tests/cli/test_documents.py"
)
"""Pages whose Python blocks another test runs."""
PRELUDE = """
import torch, phgcn
x, edge_index, batch = torch.randn(300, 16), torch.randint(0, 300, (2, 900)), torch.zeros(300, dtype=torch.long)
some = torch.tensor([0, 1])
positions, values = torch.randn(3000, 4), torch.randn(3000, 16)
"""  # noqa: E501
"""What blocks that show a call take as given."""


def python_blocks(path):
    return re.findall(
        r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def first_cells(page, mark):
    """What the first cells of a marked table name in backquotes."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = re.search(rf"<!-- {mark} -->\n\n(.*?)\n\n<!-- end {mark} -->", text, flags=re.DOTALL)[1]
    return {
        name
        for line in block.splitlines()[2:]
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.name not in INCLUDED], ids=lambda path: path.stem
)
def test_a_page_begins_with_what_it_is_for(path):
    title, first, *_ = path.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ") and "\n" not in title
    assert re.match(r"[A-Za-z][\w' -]+[a-z:,]", first), f"{path.name} begins with: {first[:60]}"
    assert re.search(r"\b(?:you|Look up here)\b", first), (
        f"{path.name} does not say what the reader can do: {first[:60]}"
    )


WITH_PYTHON = [path for path in (ROOT / "README.md", *PAGES) if python_blocks(path)]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=lambda path: path.stem)
def test_python_blocks_of_a_page_run(path, tmp_path, monkeypatch):
    if path.name in RUN_ELSEWHERE:
        assert path.name in (ROOT / RUN_ELSEWHERE[path.name]).read_text(encoding="utf-8")
        return
    if path.name == "data.md":
        pytest.importorskip("torch_geometric")
        monkeypatch.chdir(write_texas(tmp_path))
        monkeypatch.setenv("PHGCN_DATA", str(tmp_path))
    names = {}
    is_readme = path.name == "README.md"  # runs exactly as it stands
    # one after the other, as they are read
    for code in (*(() if is_readme else (PRELUDE,)), *python_blocks(path)):
        code = (
            code if is_readme else re.sub(r"(?<!\d)(200|20)_000\b", "3_000", code)
        )  # as it stands but for the number of points
        exec(compile(code, path.name, "exec"), names)


def write_texas(folder):
    """A folder in which a small graph stands for texas."""
    from small_graphs import small_graph

    from phgcn.data import save_graph

    save_graph(small_graph(), folder / "texas.npz")
    return folder


def read_variables():
    """The environment variables that the source names in a call or subscript of ``os.environ``, or
    as ``envvar``.
    """
    names = set()
    for path in (path for tree in SOURCES for path in (ROOT / tree).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "environ" not in text and "envvar" not in text:
            continue
        constants = dict(re.findall(r'^([A-Z_]+) = "([A-Z_]+)"', text, flags=re.MULTILINE))
        for node in ast.walk(ast.parse(text)):
            source = (
                ast.unparse(node)
                if isinstance(node, (ast.Call, ast.Subscript, ast.Compare, ast.keyword))
                else ""
            )
            found = re.match(r"os\.(?:environ\.\w+\(|environ\[|getenv\()(['\w]+)", source)
            found = (
                found
                or re.match(r"('\w+') in os\.environ$", source)
                or re.match(r"envvar=('\w+')$", source)
            )
            if found:
                names.add(found[1].strip("'") if found[1].startswith("'") else constants[found[1]])
    return names


def test_every_environment_variable_has_its_line():
    assert first_cells("environment.md", "environment") == read_variables()


def package_name(requirement):
    return re.match(r"[\w.-]+", requirement)[0]


def test_every_dependency_and_extra_has_its_reason():
    assert first_cells("install.md", "dependencies") == set(
        map(package_name, PROJECT["dependencies"])
    )
    assert first_cells("install.md", "extras") == set(PROJECT["optional-dependencies"])
    assert first_cells("install.md", "lab-extras") == set(LAB["optional-dependencies"])


def test_the_lab_belongs_to_the_library_of_its_commit():
    assert (
        LAB["version"] == phgcn.__version__
        and f"phgcn[plot,explore]=={phgcn.__version__}" in LAB["dependencies"]
    )


def test_what_the_library_imports_is_declared_and_used():
    imported = set()
    for path in (ROOT / "src" / "phgcn").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    declared = set(map(package_name, PROJECT["dependencies"]))
    assert declared <= imported


def test_the_versions_that_are_run_are_those_that_are_promised():
    sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    pinned = re.search(r'^PINNED = "(.+?)"', sessions, flags=re.MULTILINE)[1]
    assert f"torch{pinned}" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    python, torch, pyg = re.search(
        r'"oldest": \("(.+?)", "==(.+?)\.0", "==(.+?)\.0"\)', sessions
    ).groups()
    assert PROJECT["requires-python"] == f">={python}"
    assert {f"torch>={torch}", f"torch_geometric>={pyg}"} <= set(PROJECT["dependencies"])
    names = re.findall(r'^    "([\w.-]+)": \("3\.\d+"', sessions, flags=re.MULTILINE)
    rows = json.loads(
        (ROOT / "lab" / "bench" / "results" / "versions.json").read_text(encoding="utf-8")
    )["rows"]
    assert [row["session"] for row in rows] == names and not any(
        row["failures"] or row["errors"] for row in rows
    )


def test_the_documents_are_short():
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    # signs such as the bars of a table are no words
    words = sum(len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))) for page in pages)
    assert words < MOST_WORDS, f"README.md and docs/*.md have {words} words; allowed: {MOST_WORDS}"
