r"""Lines of Markdown, and figures as text: what all tables of the documents are made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (heading, ["---"] * len(heading), *rows)]


def pivot(
    corner: str,
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], str],
    missing: str = "missing",
) -> list[str]:
    """Makes a table of cells by line and column; lines stand in the order of their first cells."""
    lines = dict.fromkeys(line for line, _ in cells)
    rows = [[line, *(cells.get((line, name), missing) for name in columns)] for line in lines]
    return table([corner, *columns], rows)


def short(value: float) -> str:
    """Three decimals without the leading 0: .074."""
    # + 0.0: no -0
    return f"{round(value, 3) + 0.0:.3f}".lstrip("0") if value < 1 else f"{value:.2f}"


def digits(value: float) -> str:
    """Whole numbers from 10 on, else one decimal."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def machine(about: dict[str, Any]) -> str:
    """The processor; older files call it ``cpu``."""
    return str(about.get("machine") or about["cpu"])


def origin(measured: dict[str, Any]) -> str:
    """Where and when a file was measured, for the text beside its table."""
    about = measured["provenance"]
    tree = ", with uncommitted changes" if about.get("dirty") else ""
    return f"commit {about['commit'][:7]}{tree}, {about['date'][:10]}"


def spread(row: dict[str, Any], mean: str = "mean", std: str = "std") -> str:
    """A mean and its standard deviation with one decimal."""
    return f"{row[mean]:.1f} ± {row[std]:.1f}"


def interval(row: dict[str, Any]) -> str:
    """A difference in points with its 95 % interval."""
    return f"{row['difference']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"


def bold(text: str, condition: bool = True) -> str:
    return f"**{text}**" if condition else text


def mark_table(marks: Sequence[dict[str, Any]]) -> list[str]:
    return table(
        ["figure", "measured", "mark", ""],
        [
            [
                m["what"],
                f"{m['value']:.{m.get('decimals', 2)}f}{m['unit']}",
                f"{'≥' if m['at_least'] else '≤'} {m['mark']:g}{m['unit']}",
                "reached" if m["reached"] else "missed",
            ]
            for m in marks
        ],
    )
