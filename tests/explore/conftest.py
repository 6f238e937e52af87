from __future__ import annotations

import browser as browsers
import pytest
from contents import NODES, content, model
from small_graphs import small_graph

from phgcn.explore import write_page


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of one model and of two."""
    folder = tmp_path_factory.mktemp("pages")
    write_page(content(), folder / "one.html")
    write_page(content(model(), model("global-gnn")), folder / "two.html")
    return folder


@pytest.fixture(scope="module")
def opened(browser, pages):
    """Opens a page once for all tests."""
    shown = {}

    def open_once(name):
        if name not in shown:
            shown[name] = browsers.Shown(browser, pages / f"{name}.html", accept_downloads=True)
        return shown[name]

    yield open_once
    for page in shown.values():
        page.close()


def at_its_beginning(opened, name):
    page = opened(name)
    page.reset()
    yield page
    assert page.complaints == []


@pytest.fixture
def one(opened):
    """The page of one model, as it was when it was opened; the test fails if the page complains on
    its console."""
    yield from at_its_beginning(opened, "one")


@pytest.fixture
def two(opened):
    """The page of two models."""
    yield from at_its_beginning(opened, "two")


@pytest.fixture(scope="module")
def data():
    return small_graph(NODES)
