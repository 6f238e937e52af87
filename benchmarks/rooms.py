r"""Counts the lines of each room of the package, before and after a change.

    python benchmarks/rooms.py --before ../before

A room is a folder or file of ``src/phgcn``; what repeats the paper counts as ``reproduce`` in either tree.  Code is what is
neither blank, nor comment, nor docstring.  Writes ``benchmarks/results/rooms.json``.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from pathlib import Path

import common

ROOT = Path(__file__).resolve().parent.parent
PAPER = ("experiments", "embed", "nn/geom_gcn", "data/motif", "cli/reproduce", "cli/embed")
"""Where the tree before kept what is in ``reproduce`` now."""


def count_lines(path: Path) -> tuple[int, int]:
    """Returns all lines of a file, and those of code."""
    text = path.read_text(encoding="utf-8")
    lines, strings = text.splitlines(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code = [n for n, line in enumerate(lines, 1) if n not in strings and line.strip() and not line.strip().startswith("#")]
    return len(lines), len(code)


def count_rooms(tree: Path) -> dict[str, dict[str, int]]:
    """Returns the lines of each room, and of the library without ``reproduce``."""
    package = tree / "src" / "phgcn"
    lines: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        room = "reproduce" if name.startswith(PAPER) else name.split("/")[0] if "/" in name else "(top level)"
        for place in (room,) if room == "reproduce" else (room, "library"):
            every, of_code = count_lines(path)
            lines[place] += every
            code[place] += of_code
    return {room: {"lines": lines[room], "code": code[room]} for room in sorted(lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="the tree before the change")
    parser.add_argument("--out", default=common.RESULTS / "rooms.json", help="where the JSON goes")
    options = parser.parse_args()
    rooms = {"before": count_rooms(options.before), "after": count_rooms(ROOT)}
    for tree, counts in rooms.items():
        print(tree, {room: c["lines"] for room, c in counts.items()})
    common.write_json(options.out, {"provenance": common.provenance(), "rooms": rooms})


if __name__ == "__main__":
    main()
