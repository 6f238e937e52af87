"""Draws docstrings of the library at random, for a reader who rates them from 1 to 5.

python docs/draw_docstrings.py --seed 1 --count 40
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "phgcn"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--source", type=Path, default=SOURCE)
    options = parser.parse_args()
    found = []
    for path in sorted(options.source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
                found.append((path.relative_to(options.source), node))
    print(f"seed {options.seed}: {options.count} of {len(found)} docstrings")
    for path, node in random.Random(options.seed).sample(found, options.count):
        header = ast.unparse(node).splitlines()
        signature = next(line for line in header if line.lstrip().startswith(("def", "class")))
        print(f"\n{path}: {signature}\n{inspect.cleandoc(ast.get_docstring(node) or '')}")


if __name__ == "__main__":
    main()
