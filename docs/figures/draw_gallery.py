r"""Runs the examples of docs/gallery.md, draws their pictures, and keeps what they print: ``make
gallery``.

Writes ``gallery-NAME.png`` beside this script and ``docs/results/gallery.json``; then run ``make
tables``."""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from PIL import Image

from phgcn.provenance import provenance

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TITLES = {
    "bilateral": "Bilateral filtering of an image",
    "smooth_cloud": "Smoothing on a point cloud",
    "transformer": "Attention inside of a transformer",
}


def processor_seconds() -> float:
    """The processor time of all finished processes that this one started, which other programs
    hardly change.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(name: str) -> dict[str, object]:
    """Runs an example; returns its title, what it is about, what it printed and its processor time,
    imports included.
    """
    script, picture = ROOT / "examples" / f"{name}.py", HERE / f"gallery-{name}.png"
    begin = processor_seconds()
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, script, picture],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = processor_seconds() - begin
    # few colours: a third of the bytes
    Image.open(picture).convert("RGB").quantize(200).save(picture, optimize=True)
    about = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").partition(
        ": "
    )[2]
    return {
        "example": name,
        "title": TITLES[name],
        "about": about,
        "printed": done.stdout,
        "processor_seconds": round(seconds, 1),
    }


def main() -> None:
    rows = [run(name) for name in TITLES]
    content = {"rows": rows, "provenance": provenance(seed=0, device="cpu")}
    path = ROOT / "docs" / "results" / "gallery.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
