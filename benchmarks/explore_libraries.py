r"""The libraries that could draw the explorer's dots: their size, and their frames with 100,000 points.  Run by explore.py."""

from __future__ import annotations

import base64
import hashlib
import json
import statistics
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path
from shutil import which
from typing import Any

import common

from phgcn.explore.page import SCRIPTS, library_text

POINTS, FRAMES = 100_000, 15
CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")

EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""Allows the style element without text, to which a script can add rules."""

CLOUD = f"""
let draws = 0; // calls that draw with WebGL
const count = (object, name) => {{
  const call = object[name];
  object[name] = function (...rest) {{ draws += 1; return call.apply(this, rest); }};
}};
for (const name of ["drawArrays", "drawElements"]) count(WebGLRenderingContext.prototype, name);
const extend = WebGLRenderingContext.prototype.getExtension;
WebGLRenderingContext.prototype.getExtension = function (name) {{
  const extension = extend.call(this, name);
  if (extension && !extension.counted && "drawArraysInstancedANGLE" in extension) {{
    for (const call of ["drawArraysInstancedANGLE", "drawElementsInstancedANGLE"]) count(extension, call);
    extension.counted = true;
  }}
  return extension;
}};
const x = new Float32Array({POINTS}), y = new Float32Array({POINTS});
let state = 1;
const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
for (let i = 0; i < x.length; i++) [x[i], y[i]] = [random() + random() + random(), random() + random() + random()];
"""
PLOTLY = """
async function start() {
  const marker = { size: 4, color: "#0072b2" };
  await Plotly.newPlot("plot", [{ type: "scattergl", mode: "markers", x, y, marker, hoverinfo: "skip" }],
    { width: 900, height: 700, hovermode: false, xaxis: { range: [0, 3] }, yaxis: { range: [0, 3] } });
  if (document.querySelector(".no-webgl")) throw new Error("WebGL was refused");
}
const pan = (frame) => Plotly.relayout("plot", { "xaxis.range": [0.01 * frame, 3 + 0.01 * frame] });
"""
BOKEH = """
let across;
async function start() {
  across = new Bokeh.Range1d({ start: 0, end: 3 });
  const up = new Bokeh.Range1d({ start: 0, end: 3 });
  const plot = new Bokeh.Plot({ x_range: across, y_range: up, width: 900, height: 700, output_backend: "webgl" });
  plot.lod_threshold = null;
  plot.add_layout(new Bokeh.LinearAxis(), "below");
  plot.add_layout(new Bokeh.LinearAxis(), "left");
  const source = new Bokeh.ColumnDataSource({ data: { x, y } });
  const look = { size: { value: 4 }, fill_color: { value: "#0072b2" }, line_color: { value: null } };
  plot.add_glyph(new Bokeh.Scatter({ x: { field: "x" }, y: { field: "y" }, ...look }), source);
  const root = new Bokeh.Document();
  root.add_root(plot);
  await Bokeh.embed.add_document_standalone(root, document.getElementById("plot"));
}
const pan = (frame) => across.setv({ start: 0.01 * frame, end: 3 + 0.01 * frame });
"""
OWN = """
let dots;
async function start() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [900, 700];
  document.getElementById("plot").append(canvas);
  dots = new Dots(canvas);
  dots.setPlaces(x, y);
  const colours = new Uint8Array(4 * x.length).fill(180);
  const order = Uint32Array.from(x, (_, node) => node);
  dots.setLook({ colours, sizes: new Float32Array(x.length).fill(4), shapes: new Uint8Array(x.length), order });
}
const frame = { left: 48, top: 8, width: 844, height: 652 };
const pan = (number) => dots.draw(frame, [[0.01 * number, 3 + 0.01 * number], [0, 3]], 1, Infinity);
"""
RUN = f"""
(async () => {{
  const begin = performance.now();
  await start();
  const painted = () => new Promise((resume) => requestAnimationFrame(() => setTimeout(resume)));
  await painted();
  const times = [];
  const started = performance.now() - begin;
  for (let frame = 0; frame < {FRAMES}; frame++) {{
    const before = performance.now();
    await pan(frame);
    await painted();
    times.push(performance.now() - before);
  }}
  document.body.dataset.result = JSON.stringify({{ start_ms: started, frames: times, loaded_ms: begin, draws }});
}})().catch((error) => (document.body.dataset.result = JSON.stringify({{ error: String(error).slice(0, 200) }})));
"""


@contextmanager
def started() -> Iterator[Any]:
    """The system's chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def bokeh_text() -> str:
    folder = resources.files("bokeh") / "server" / "static" / "js"
    return "\n".join((folder / f"{name}.min.js").read_text(encoding="utf-8") for name in ("bokeh", "bokeh-gl", "bokeh-api"))


def own_text() -> str:
    assert "dots.js" in SCRIPTS
    return (resources.files("phgcn.explore") / "page" / "dots.js").read_text(encoding="utf-8")


def measure(folder: Path) -> dict[str, Any]:
    """For each candidate its bytes, whether it draws with WebGL where code may not be made of text, and its frames."""
    candidates = {
        f"plotly {metadata.version('plotly')}": (library_text(), PLOTLY),
        f"bokeh {metadata.version('bokeh')}": (bokeh_text(), BOKEH),
        "dots.js": (own_text(), OWN),
    }
    rows = []
    for name, (library, script) in candidates.items():
        strict, loose = (draw(folder / "page.html", library, CLOUD + script + RUN, may_eval) for may_eval in (False, True))
        packed = len(base64.b64encode(zlib.compress(library.encode(), 6)))
        times = {} if "error" in loose else {key: loose[key] for key in ("loaded_ms", "start_ms")}
        rows.append({
            "name": name, "bytes": len(library.encode()), "packed_bytes": packed, "points": POINTS,
            "webgl_without_eval": strict.get("draws", 0) > 0, "webgl_with_eval": loose.get("draws", 0) > 0, **times,
            "blocked_styles": strict["blocked_styles"],
            "frame_ms": statistics.median(loose["frames"]) if "frames" in loose else None,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return {"rows": rows, "load": common.provenance()["load"]}


def draw(path: Path, library: str, script: str, may_eval: bool) -> dict[str, Any]:
    """Draws and pans under a policy with leave to make code of text and styles in the page, or without; returns times, or the
    error, and how many styles were blocked."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (library, script))
    scripts = [*(f"'sha256-{digest}'" for digest in digests), *(["'unsafe-eval'"] if may_eval else [])]
    styles = "'unsafe-inline'" if may_eval else EMPTY_STYLE
    policy = f"default-src 'none'; style-src {styles}; img-src data: blob:; script-src {' '.join(scripts)}"
    head = f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    path.write_text(f'{head}<body><div id="plot"></div><script>{library}</script><script>{script}</script>', encoding="utf-8")
    errors: list[str] = []
    blocked: list[str] = []
    with started() as browser:
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)[:200]))
        page.on("console", lambda message: blocked.append(message.text) if "inline style violates" in message.text else None)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-result]", state="attached", timeout=120_000)
        result: dict[str, Any] = json.loads(page.get_attribute("body", "data-result"))
    result["blocked_styles"] = len(blocked)
    return {**result, "error": errors[0]} if errors and "error" not in result else result
