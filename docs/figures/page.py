r"""What the figures of the documents share: the width of a page, one style of type, and saving."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

from phgcn.report.style import COLOURS

HERE = Path(__file__).resolve().parent
WIDTH = 8.0
"""Inches of a page, on which a figure is 800 pixels wide."""
LINE, INK, FAINT, POINT = "#c9ced6", "#3b4252", "#8a93a3", "#d62728"
METHODS = dict(
    zip(("exact", "lattice", "lattice-fine", "separable"), ("#3b4252", *COLOURS), strict=False)
)
"""The colour of each method, in all figures."""

STYLE = {
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
}


def new(height: float, rows: int = 1, columns: int = 1, **options: object) -> tuple:
    """Makes a figure as wide as a page, and its panels."""
    plt.rcParams.update(STYLE)
    size = (WIDTH, height)
    return plt.subplots(rows, columns, figsize=size, layout="constrained", **options)


def mosaic(height: float, layout: list[list[str]], **options: object) -> tuple:
    """Makes a figure as wide as a page, and its panels by name."""
    plt.rcParams.update(STYLE)
    return plt.subplot_mosaic(layout, figsize=(WIDTH, height), layout="constrained", **options)


def save(figure: plt.Figure, name: str) -> None:
    """Writes ``NAME.svg`` and ``NAME.png`` beside this script: whole or not at all, and the same
    bytes every time."""
    plt.rcParams["svg.hashsalt"] = name
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        path = HERE / f"{name}.{kind}"
        temporary = path.with_name(f".{os.getpid()}-{path.name}")
        try:
            figure.savefig(temporary, dpi=150, metadata=metadata)
            if kind == "png":  # few colours: a third of the bytes
                Image.open(temporary).convert("RGB").quantize(200).save(temporary, optimize=True)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        print(path)


def write_songs(folder: Path) -> None:
    """Makes the songs of docs/tutorial.md in a folder, by the code of that page."""
    text = (HERE.parent / "tutorial.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, re.S)
    assert program is not None
    subprocess.run([sys.executable, "-c", program[1]], cwd=folder, check=True)
