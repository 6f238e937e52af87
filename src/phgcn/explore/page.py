"""Writes the page: template, style, scripts, the drawing library and the data in one HTML file.

The page's Content-Security-Policy lets nothing be loaded, and runs only scripts whose hashes it
names. Names of nodes, classes and columns travel inside packed data and are shown as text."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources
from pathlib import Path

from ..files import replacing
from .content import Content
from .pack import Packed, pack_bytes

# the page's own scripts, in the order that they are run
SCRIPTS = (
    "unpack.js",
    "attention.js",
    "summaries.js",
    "dots.js",
    "colours.js",
    "plot.js",
    "overlay.js",
    "panels.js",
    "tables.js",
    "side.js",
    "pointer.js",
    "main.js",
)


def write_page(content: Content, out: str | Path) -> int:
    """Writes the page of some content to a file; returns its size in bytes."""
    page = page_bytes(content)
    with replacing(out) as temporary:
        temporary.write_bytes(page)
    return len(page)


def page_bytes(content: Content) -> bytes:
    """Returns the page of some content, as UTF-8."""
    style, library = _resource("page.css"), library_text()
    scripts = [_resource(name) for name in SCRIPTS]
    parts = {"library": pack_bytes(library.encode()), **Packed(content).parts}
    data = [
        f'<script type="application/octet-stream" id="data-{name}">{text}</script>'
        for name, text in parts.items()
    ]
    empty = "".join(f'<style id="{name}"></style>' for name in _library_styles(library))
    places = {
        "POLICY": _policy([library, *scripts], [style, ""]),
        "TITLE": html.escape(content.title),
        "STYLE": f"<style>{style}</style>{empty}",
        "DATA": "\n".join(data),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # text, place, text, place, ..., text
    template = re.split(r"\{\{(\w+)\}\}", _resource("page.html"))
    filled = [places[part] if number % 2 else part for number, part in enumerate(template)]
    return "".join(filled).encode()


def library_text() -> str:
    """Returns the drawing library of the installed package plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        get = "pip install 'phgcn[explore]'"
        raise ValueError(f"phgcn explore needs the package plotly: {get}") from None
    text: str = get_plotlyjs()
    return text


@cache
def _resource(name: str) -> str:
    return (resources.files(__package__) / "page" / name).read_text(encoding="utf-8")


def _policy(scripts: list[str], styles: list[str]) -> str:
    """Returns the Content-Security-Policy. The library makes an empty style element and adds rules
    to it, so that the empty style is allowed."""
    allowed = {
        "script-src": map(_hash, scripts),
        "style-src": map(_hash, styles),
        "img-src": ["data:", "blob:"],
    }
    rest = "default-src 'none'; base-uri 'none'; form-action 'none'"
    return "; ".join([rest, *(f"{kind} {' '.join(sources)}" for kind, sources in allowed.items())])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _library_styles(library: str) -> list[str]:
    return re.findall(r'getElementById\("([0-9a-f]{64})"\)', library)
