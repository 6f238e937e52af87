r"""Measures the explorer's page in the system's chromium: size, first picture, clicks, frames.

Needs phgcn[explore], playwright and chromium.  A browser without a window draws on the CPU: frames
are slower than on a graphics card.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import common
import numpy as np
from registry import measurement

from phgcn.explore import Column, Content, Side, View, explore_runs, write_page
from phgcn.train import Plan, Run, Settings, find
from phgcn_lab.markdown import origin, table

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")

MARKS = {
    "pubmed": {"megabytes": 12, "picture_ms": 2000, "click_ms": 100},
    "large": {"megabytes": 60, "click_ms": 500},
}
CLICKS, FRAMES = 20, 20
LARGE, LARGE_HEADS, LARGE_DIM, LARGE_EDGES = 250_000, 4, 4, 1_000_000


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        yield page
        browser.close()


def measure_page(path: Path) -> dict[str, Any]:
    """Opens a page, clicks nodes, and pans; returns medians in milliseconds."""
    with opened(path) as page:
        times = page.evaluate("explorer.times")
        page.wait_for_timeout(2000)  # averages by class are computed
        frames = [drag(page, frame) for frame in range(FRAMES)]
        page.mouse.up()
        tried = [click_node(page, node * 97 + 11) for node in range(CLICKS)]
        clicks = [milliseconds for milliseconds in tried if milliseconds is not None]
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
    """Returns milliseconds until it is drawn, some of which are Playwright's."""
    box = page.locator(".plot").first.bounding_box()
    if frame == 0:
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
    begin = time.perf_counter()
    page.mouse.move(box["x"] + 202 + 2 * frame, box["y"] + 201 + frame)
    page.evaluate("() => new Promise((resume) => requestAnimationFrame(() => setTimeout(resume)))")
    page.evaluate("explorer.sides[0].plot.dots.gl.finish()")
    return 1000 * (time.perf_counter() - begin)


def click_node(page: Any, node: int) -> float | None:
    """Milliseconds until lists and dots have changed; :obj:`None` outside of the picture."""
    box = page.locator(".plot").first.bounding_box()
    x, y = page.evaluate("node => explorer.sides[0].plot.placer()(node)", node)
    before = page.evaluate("explorer.times.answers || 0")
    page.mouse.click(box["x"] + x, box["y"] + y)
    for _ in range(200):
        if page.evaluate("explorer.times.answers || 0") > before:
            return float(page.evaluate("explorer.times.answer"))
        page.wait_for_timeout(20)
    return None


def train_pubmed(folder: Path) -> tuple[Run, Any]:
    source, data = find("pubmed")
    settings = Settings(heads=8, num_layers=2, hidden_channels=8, epochs=15)
    plan = Plan(source, model="phgcn", splits=1, settings=settings)
    run = Run.create(folder / "pubmed", plan, data)
    run.train(data)
    return run, data


def pubmed(folder: Path) -> dict[str, Any]:
    run, data = train_pubmed(folder)
    path, begin = folder / "pubmed.html", time.perf_counter()
    result = explore_runs([run], path)
    wrote = {"megabytes": result["bytes"] / 1e6, "write_s": time.perf_counter() - begin}
    about = {"nodes": result["nodes"], "edges": int(data.edge_index.size(1))}
    about |= {"heads": 8, "layers": 2, "dim": run.plan.settings.embedding_dim}
    return {**about, **wrote, **measure_page(path)}


def large(folder: Path) -> dict[str, Any]:
    """Clusters in two layers of embeddings, with edges mostly within a cluster."""
    random = np.random.default_rng(common.SEED)
    labels = random.integers(8, size=LARGE)
    layers, shape = [], (LARGE, LARGE_HEADS, LARGE_DIM)
    for layer in range(2):
        centres = 4 * random.standard_normal((8, LARGE_HEADS, LARGE_DIM))
        positions = (centres[labels] + random.standard_normal(shape)).astype(np.float32)
        layers.append(View(f"layer {layer}", positions, [10.0] * LARGE_HEADS, [1.0] * LARGE_HEADS))
    order = np.argsort(labels, kind="stable")
    index = np.sort(random.integers(LARGE, size=LARGE_EDGES))
    beside = np.minimum(index + random.integers(1, 2000, size=LARGE_EDGES), LARGE - 1)
    targets, sources = order[index], order[beside]
    by_target = np.argsort(targets, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=LARGE))])
    kinds = Column("class", labels, [f"cluster {number}" for number in range(8)])
    said = Column("prediction", np.where(random.random(LARGE) < 0.9, labels, 0), kinds.categories)
    ids, sides = [f"node-{number}" for number in range(LARGE)], [Side("generated", layers, [said])]
    content = Content("generated", ids, starts, sources[by_target], [kinds], sides)
    path, begin = folder / "large.html", time.perf_counter()
    size = write_page(content, path)
    wrote = {"megabytes": size / 1e6, "write_s": time.perf_counter() - begin}
    about = {"nodes": LARGE, "edges": LARGE_EDGES, "heads": LARGE_HEADS}
    return {**about, "layers": 2, "dim": LARGE_DIM, **wrote, **measure_page(path)}


UNITS = {"megabytes": "MB", "picture_ms": "ms", "click_ms": "ms"}
MEANT = {"megabytes": "page", "picture_ms": "first picture", "click_ms": "a click (median)"}


def marks_of(measured: dict) -> list[str]:
    rows = []
    for part, title in (("pubmed", "pubmed"), ("large", "generated")):
        page = measured[part]
        layers = f"{page['layers']} layers of {page['heads']} heads"
        about = f"{title}, {page['nodes']:,} nodes, {layers}"
        for key, mark in page["marks"].items():
            unit, got = UNITS[key], f"{page[key]:.{int(key == 'megabytes')}f}"
            reached = "yes" if mark["reached"] else "no"
            limit = f"under {mark['mark']} {unit}"
            rows.append([about, MEANT[key], limit, f"{got} {unit}", reached])
        others = {"first picture": "picture_ms"} if part == "large" else {}
        others |= {"axes and tools": "axes_ms", "a frame while it is dragged (median)": "frame_ms"}
        rows += [[about, what, "", f"{page[key]:.0f} ms", ""] for what, key in others.items()]
        rows.append([about, "written in", "", f"{page['write_s']:.1f} s", ""])
    loads = [f"{p} at {origin(measured[p])}, load {measured[p]['load']}" for p in PARTS]
    lines = table(["page", "what", "mark", "measured", "reached"], rows)
    return [*lines, "", f"2 shared cores: {'; '.join(loads)}."]


PARTS = {"pubmed": pubmed, "large": large}


@measurement(
    tables=marks_of,
    only={"choices": PARTS, "nargs": "+", "default": [*PARTS], "help": "others stay in the file"},
)
def explore(options: argparse.Namespace) -> Iterator[dict]:
    """Size of the explorer's page, and its times in chromium."""
    content = json.loads(options.kept.read_text()) if options.kept.is_file() else {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            measured = PARTS[name](Path(folder))
        asked = MARKS[name].items()
        marks = {key: {"mark": mark, "reached": measured[key] <= mark} for key, mark in asked}
        content[name] = {**measured, "marks": marks, "provenance": common.provenance()}
        yield content
