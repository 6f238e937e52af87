from __future__ import annotations

import os
from pathlib import Path

import browser as browsers
import pytest

SCREENSHOTS = os.environ.get("PHGCN_SCREENSHOTS")
"""A folder for the pictures of docs/explorer.md; without it, none are made."""


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of a process."""
    pytest.importorskip("playwright", reason="the package playwright is not installed")
    pytest.importorskip("plotly", reason="the package plotly is not installed")
    if browsers.CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt install chromium")
    with browsers.started() as running:
        yield running


@pytest.fixture
def show(browser):
    """Opens pages, which are closed after the test; one that complained on its console fails it."""
    shown = []

    def open_page(path, script="", **options):
        shown.append(browsers.Shown(browser, path, script, **options))
        return shown[-1]

    yield open_page
    complaints = [text for page in shown for text in page.complaints]
    for page in shown:
        page.close()
    assert complaints == []


@pytest.fixture
def photograph():
    """Writes a picture of what is seen, where pictures are wanted."""

    def write(shown, name):
        if SCREENSHOTS:
            shown.evaluate("scrollTo(0, 0)")
            shown.page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))

    return write
