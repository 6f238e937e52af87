r"""Measures the explorer's page in the system's chromium: size, first picture, clicks, frames; and the libraries it could use.

python benchmarks/explore.py                 # writes results/explore.json and docs/figures/explorer.png, some minutes
python benchmarks/explore.py --part large    # one of libraries, pubmed, large; the others stay as they are in the file

Needs phgcn[explore], playwright, bokeh and chromium.  A browser without a window draws on the CPU: frames of all candidates
are slower than on a graphics card, by the same measure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import explore_libraries
import numpy as np
from explore_libraries import started

from phgcn.explore import Column, Content, Side, View, explore_runs, write_page
from phgcn.train import Plan, Run, Settings, find

RESULT = common.RESULTS / "explore.json"
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "explorer.png"
MARKS = {
    "pubmed": {"megabytes": 12, "picture_ms": 2000, "click_ms": 100},
    "large": {"megabytes": 60, "click_ms": 500},
}
CLICKS, FRAMES = 20, 20
LARGE, LARGE_HEADS, LARGE_DIM, LARGE_EDGES = 250_000, 4, 4, 1_000_000


def measure_page(path: Path, picture: Path | None = None) -> dict[str, Any]:
    """Opens a page, clicks nodes with the mouse, and pans; returns medians in milliseconds."""
    with started() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        times = page.evaluate("explorer.times")
        page.wait_for_timeout(2000)  # averages by class are computed
        frames = [drag(page, frame) for frame in range(FRAMES)]
        page.mouse.up()
        clicks = [click for node in range(CLICKS) if (click := click_node(page, node * 97 + 11)) is not None]
        if picture:
            photograph(page, picture)
    return {
        "picture_ms": times["picture"],
        "axes_ms": times["axes"],
        "click_ms": statistics.median(clicks),
        "slowest_click_ms": max(clicks),
        "clicks": len(clicks),
        "frame_ms": statistics.median(frames),
        "load": common.provenance()["load"],
    }


def drag(page: Any, frame: int) -> float:
    """Drags the picture by some pixels and waits until it is drawn; returns milliseconds, some of which are Playwright's."""
    box = page.locator(".plot").first.bounding_box()
    if frame == 0:
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
    begin = time.perf_counter()
    page.mouse.move(box["x"] + 202 + 2 * frame, box["y"] + 201 + frame)
    page.evaluate("() => new Promise((resume) => requestAnimationFrame(() => setTimeout(resume)))")
    page.evaluate("explorer.sides[0].plot.dots.gl.finish()")
    return 1000 * (time.perf_counter() - begin)


def photograph(page: Any, path: Path) -> None:
    """Writes a picture of the last layer with a node in focus, for docs/explorer.md."""
    page.set_viewport_size({"width": 1200, "height": 800})
    page.locator("select.view").first.select_option("layer 1")
    page.wait_for_timeout(3000)
    click_node(page, 11)
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    page.screenshot(path=str(path))


def click_node(page: Any, node: int) -> float | None:
    """Clicks where a node is drawn; returns the milliseconds from the click until lists and dots have changed, as the page
    measured them, or :obj:`None` if the node lies outside the picture."""
    box = page.locator(".plot").first.bounding_box()
    x, y = page.evaluate("node => explorer.sides[0].plot.placer()(node)", node)
    before = page.evaluate("explorer.times.answers || 0")
    page.mouse.click(box["x"] + x, box["y"] + y)
    for _ in range(200):
        if page.evaluate("explorer.times.answers || 0") > before:
            return float(page.evaluate("explorer.times.answer"))
        page.wait_for_timeout(20)
    return None


def pubmed(folder: Path) -> dict[str, Any]:
    """Trains PH-GCN on pubmed for some epochs and measures its page."""
    source, data = find("pubmed")
    settings = Settings(heads=8, num_layers=2, hidden_channels=8, epochs=15)
    run = Run.create(folder / "pubmed", Plan(source, model="phgcn", splits=1, settings=settings), data)
    run.train(data)
    path, begin = folder / "pubmed.html", time.perf_counter()
    result = explore_runs([run], path)
    taken = time.perf_counter() - begin
    about = {
        "nodes": result["nodes"],
        "edges": int(data.edge_index.size(1)),
        "heads": 8,
        "layers": 2,
        "dim": settings.embedding_dim,
    }
    return {**about, "megabytes": result["bytes"] / 1e6, "write_s": taken, **measure_page(path, PICTURE)}


def large(folder: Path) -> dict[str, Any]:
    """Generates clusters in two layers of embeddings, with edges mostly within a cluster, and measures their page."""
    random = np.random.default_rng(common.SEED)
    labels = random.integers(8, size=LARGE)
    layers = []
    for layer in range(2):
        centres = 4 * random.standard_normal((8, LARGE_HEADS, LARGE_DIM))
        positions = (centres[labels] + random.standard_normal((LARGE, LARGE_HEADS, LARGE_DIM))).astype(np.float32)
        layers.append(View(f"layer {layer}", positions, [10.0] * LARGE_HEADS, [1.0] * LARGE_HEADS))
    order = np.argsort(labels, kind="stable")
    place = np.sort(random.integers(LARGE, size=LARGE_EDGES))
    targets, sources = order[place], order[np.minimum(place + random.integers(1, 2000, size=LARGE_EDGES), LARGE - 1)]
    by_target = np.argsort(targets, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=LARGE))])
    kinds = Column("class", labels, [f"cluster {number}" for number in range(8)])
    said = Column("prediction", np.where(random.random(LARGE) < 0.9, labels, 0), kinds.categories)
    ids = [f"node-{number}" for number in range(LARGE)]
    content = Content("generated", ids, starts, sources[by_target], [kinds], [Side("generated", layers, [said])])
    path, begin = folder / "large.html", time.perf_counter()
    size = write_page(content, path)
    taken = time.perf_counter() - begin
    about = {"nodes": LARGE, "edges": LARGE_EDGES, "heads": LARGE_HEADS, "layers": 2, "dim": LARGE_DIM}
    return {**about, "megabytes": size / 1e6, "write_s": taken, **measure_page(path)}


PARTS = {"libraries": explore_libraries.measure, "pubmed": pubmed, "large": large}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parts = parser.parse_args().part or list(PARTS)
    content = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    for name in parts:
        with tempfile.TemporaryDirectory() as folder:
            measured = PARTS[name](Path(folder))
        marks = {key: {"mark": mark, "reached": measured[key] <= mark} for key, mark in MARKS.get(name, {}).items()}
        content[name] = {**measured, "marks": marks, "provenance": common.provenance()}
        print(json.dumps(content[name], indent=1), file=sys.stderr)
        common.write_json(RESULT, content)


if __name__ == "__main__":
    main()
