"""``phgcn graphs`` and ``phgcn doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from . import options

if TYPE_CHECKING:
    from ..data import Row


def graphs(as_json: options.Json = False) -> None:
    """List the known graphs, and their files.

    The columns are those of the paper's Table 1, as counted in the file and as published. Files are
    looked for in `$PHGCN_DATA`, else in the user's cache.

    Examples:

    - `phgcn graphs`

    - `PHGCN_DATA=~/graphs phgcn graphs --json`
    """
    from ..data import table as rows_of
    from .display import console, print_json, print_line, table

    rows = rows_of()
    if as_json:
        print_json([_as_json(row) for row in rows])
        return
    folders = sorted({str(row.path.parent) for row in rows if row.path})
    lines = []
    for row in rows:
        counted = row.found or ("-",) * len(row.published)
        pairs = zip(counted, row.published, strict=True)
        counts = [f"{here} / {published}" for here, published in pairs]
        file = "not here" if row.path is None else row.path.name if len(folders) == 1 else row.path
        lines.append((row.name, *counts, row.masks or "", row.metric, file))
    headings = ("graph", "nodes", "edges", "features", "classes", "masks", "metric", "file")
    shown = table("Known graphs: counted in the file / published", headings, lines)
    shown.columns[0].no_wrap = True
    for column in shown.columns[-3:]:
        column.justify, column.overflow = "left", "fold"
    out = console()
    out.print(shown)
    where = f", in {', '.join(folders)}" if folders else ""
    print_line(out, f"{len([row for row in rows if row.path])} of {len(rows)} here{where}")


def _as_json(row: Row) -> dict[str, Any]:
    from dataclasses import asdict

    counted = None if row.found is None else row.found._asdict()
    path = None if row.path is None else str(row.path)
    return {**asdict(row), "published": row.published._asdict(), "found": counted, "path": path}


_warm = "Compile all kernels now, for the CPU and every GPU, so that no command waits later."
Warm = Annotated[bool, Option("--warm", help=_warm)]


def doctor(warm: Warm = False, as_json: options.Json = False) -> None:
    """Check the installation: versions, devices, what `auto` picks on each, compiled kernels,
    folders, and a self-test.

    Exits with 1 if something is wrong.

    Examples:

    - `phgcn doctor`

    - `phgcn doctor --warm`

    - `phgcn doctor --json`
    """
    from .display import console, print_json, print_line, table
    from .doctor import compile_all, examine

    if warm:
        compile_all()
    report = examine(gpus=warm)
    if as_json:
        print_json(report)
    else:
        out = console()
        titles = {"auto": 'Method that "auto" picks in 4 dimensions'}
        for part in ("versions", "devices", "auto", "folders", "kernels"):
            title, rows = titles.get(part, part.capitalize()), list(report[part].items())
            out.print(table(title, ("", ""), rows, numbers_from=9))
        tests = [
            (row["what"], "ok" if row["ok"] else "WRONG", f"{row['seconds']:.2f} s", row["found"])
            for row in report["tests"]
        ]
        out.print(table("Self-test", ("", "", "", "found"), tests, numbers_from=9))
        print_line(out, "all is well" if report["ok"] else "something is wrong, see above")
    if not report["ok"]:
        raise typer.Exit(1)
