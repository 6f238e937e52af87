r"""The system's chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RESET = """async () => {
  document.getElementById("search").value = "";
  document.getElementById("matches").hidden = true;
  document.getElementById("sharpness").value = 0;
  document.getElementById("sharpness").dispatchEvent(new Event("input"));
  clear(explorer);
  for (const side of explorer.sides) {
    side.off.clear();
    side.find(".view").selectedIndex = 0;
    side.colour = "";
    await side.changeView();
    await Plotly.relayout(side.plot.element, { dragmode: "pan" });
    await side.plot.reset();
  }
}"""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for path in map(shutil.which, BROWSERS) if path), None)


@contextmanager
def started() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Shown:
    """A page of the explorer in the browser, and what it complained of."""

    def __init__(self, browser: Any, path: Path, script: str = "", **options: Any) -> None:
        self.complaints: list[str] = []
        options.setdefault("viewport", {"width": 1200, "height": 800})
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self._complain(message.type, message.text))
        self.page.on("pageerror", lambda error: self._complain("error", str(error)))
        self.page.on("request", lambda request: self._requested(request.url, path))
        if script:
            self.page.add_init_script(script)
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)

    def _complain(self, kind: str, text: str) -> None:
        if kind == "error" or "Content Security Policy" in text:
            self.complaints.append(text)

    def _requested(self, url: str, path: Path) -> None:
        if url != path.resolve().as_uri() and not url.startswith(("data:", "blob:")):
            self.complaints.append(f"asked for {url}")

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def find(self, selector: str, side: int = 0) -> Any:
        """An element of one side."""
        return self.page.locator(".side").nth(side).locator(selector)

    def click_node(self, node: int, side: int = 0, answered: bool = True) -> None:
        """Presses the mouse where a node is drawn, and waits for the answer if there should be
        one."""
        before = self.evaluate("explorer.times.answers || 0")
        plot = self.find(".plot", side)
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        read = "([side, node]) => explorer.sides[side].plot.placer()(node)"
        x, y = self.evaluate(read, [side, node])
        self.page.mouse.click(box["x"] + x, box["y"] + y)
        self.settle()
        if answered:
            self.until("before => explorer.times.answers > before", before)

    def until(self, condition: str, argument: Any = None) -> None:
        """Waits until a condition holds; Playwright's own way makes code of text, which the page
        forbids."""
        for _ in range(250):
            if self.evaluate(condition, argument):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"never: {condition}, {argument}")

    def settle(self) -> None:
        """Waits until what was done has been answered and drawn."""
        frame = "requestAnimationFrame"
        self.evaluate(f"() => new Promise((resume) => {frame}(() => {frame}(resume)))")

    def reset(self) -> None:
        """Brings a page that several tests use back to its beginning."""
        self.evaluate(RESET)
        self.page.mouse.move(0, 0)
        self.settle()

    def listed(
        self, panel: str = "global", column: int = 2, side: int = 0
    ) -> list[tuple[str, float]]:
        """The ids and weights of a list."""
        rows = self.find(f".panels .{panel} tbody tr", side)
        read = """(rows, column) => rows.map(row => [
            row.cells[0].innerText, Number(row.cells[column].firstChild.dataset.weight)])"""
        return [(name, weight) for name, weight in rows.evaluate_all(read, column)]

    def text(self, selector: str, side: int = 0) -> str:
        text: str = self.find(selector, side).inner_text()
        return text

    def close(self) -> None:
        self.context.close()


def pixel(shown, node, side=0):
    """The colour of the dots where a node is drawn: red, green, blue, opacity."""
    read = """([side, node]) => {
      const { plot } = explorer.sides[side];
      const [x, y] = plot.placer()(node);
      const copy = document.createElement("canvas");
      [copy.width, copy.height] = [plot.dots.canvas.width, plot.dots.canvas.height];
      const pen = copy.getContext("2d");
      pen.drawImage(plot.dots.canvas, 0, 0);
      return [...pen.getImageData(Math.round(x), Math.round(y), 1, 1).data];
    }"""
    return shown.evaluate(read, [side, node])
