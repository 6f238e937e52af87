"""The site is built without a warning, and its reference has every public name."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOTES = DOCS / "engineering"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        str(DOCS),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_document_but_engineering_notes_is_a_page(site):
    for path in DOCS.rglob("*.md"):
        page = (site / path.relative_to(DOCS)).with_suffix(".html")
        assert page.is_file() == (path.parent != NOTES), page


def test_every_page_can_be_reached_from_the_first(site):
    first = (site / "index.html").read_text(encoding="utf-8")
    pages = [
        path.relative_to(DOCS).with_suffix(".html").as_posix()
        for path in DOCS.rglob("*.md")
        if path.name != "index.md" and path.parent != NOTES
    ]
    assert [page for page in pages if f'href="{page}"' not in first] == []


def test_the_reference_has_every_public_name(site, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    from public_surface import public_modules, public_names

    text = (site / "api.html").read_text(encoding="utf-8")
    for module in public_modules():
        for name, _ in public_names(module):
            assert f'.{name}"' in text, f"{module}.{name}"
