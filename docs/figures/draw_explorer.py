r"""Photographs the explorer's page of the songs of docs/tutorial.md, trained as there.

    python docs/figures/draw_explorer.py

Writes ``explorer.png``, ``explorer-two.png`` and ``explorer-phone.png`` beside this script. Needs
phgcn[explore], playwright and chromium."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from page import HERE, write_songs

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")
COVER = "cover-17"
HIDE = """document.querySelectorAll(".panels section:not(.node, .global)").forEach(
    (section) => { section.hidden = true; })"""


def phgcn(folder: Path, command: str) -> None:
    subprocess.run([sys.executable, "-m", "phgcn", *command.split()], cwd=folder, check=True)


def write_pages(folder: Path) -> None:
    """Makes the songs, trains two networks on them, and writes the pages of one and of both."""
    write_songs(folder)
    phgcn(folder, "train songs --out runs/songs")
    phgcn(folder, "train songs --model gat-eda --config settings.toml --splits 1 --out runs/local")
    phgcn(folder, "explore runs/songs -o one.html")
    phgcn(folder, "explore runs/songs runs/local -o two.html")


@contextmanager
def opened(browser: Any, page: Path, width: int, height: int, **options: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    shown = context.new_page()
    shown.goto(page.as_uri())
    shown.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
    yield shown
    context.close()


def focus(page: Any, node: str) -> None:
    page.evaluate("node => explorer.focusOn(explorer.ids.indexOf(node))", node)


def photograph(page: Any, name: str, last: str = "body") -> None:
    """Takes a picture of the page down to the end of its last part."""
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(1000)
    ends = [part.bounding_box() for part in page.locator(last).all()]
    height = max(end["y"] + end["height"] for end in ends) + 5
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": height}
    page.screenshot(path=HERE / name, clip=clip, full_page=True)


def draw(browser: Any, folder: Path) -> None:
    with opened(browser, folder / "one.html", 1000, 860) as page:
        focus(page, COVER)
        page.locator("select.head").select_option(label="3")
        photograph(page, "explorer.png", ".about, .columns")
    with opened(browser, folder / "two.html", 1000, 860) as page:
        confusion = page.locator(".side").nth(1).locator(".confusion")
        confusion.locator(".set").select_option("all")
        wrong = confusion.locator("tbody button.wrong").all()
        max(wrong, key=lambda cell: int(cell.inner_text())).click()
        page.evaluate("explorer.focusOn(explorer.selection.nodes[0])")
        page.evaluate(HIDE)  # a picture of the whole page would be long
        photograph(page, "explorer-two.png", ".panels")
    with opened(
        browser, folder / "one.html", 390, 844, has_touch=True, color_scheme="dark"
    ) as page:
        photograph(page, "explorer-phone.png", ".about")


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_pages(Path(folder))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        draw(browser, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
