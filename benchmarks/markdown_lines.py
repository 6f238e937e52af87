r"""Lines of Markdown, and figures as text: what all tables of the documents are made with."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (heading, ["---"] * len(heading), *rows)]


def short(value: float) -> str:
    """Three decimals without the leading 0: .074."""
    return f"{round(value, 3) + 0.0:.3f}".lstrip("0") if value < 1 else f"{value:.2f}"  # + 0.0: no -0


def digits(value: float) -> str:
    """Whole numbers from 10 on, else one decimal."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def machine(about: dict) -> str:
    """The processor; files from before provenance was one for all call it ``cpu``."""
    return about.get("machine") or about["cpu"]


def origin(measured: dict) -> str:
    """Where and when a file was measured, for the text beside its table."""
    about = measured["provenance"]
    tree = ", with uncommitted changes" if about.get("dirty") else ""
    return f"commit {about['commit'][:7]}{tree}, {about['date'][:10]}"


def mark_table(marks: list[dict]) -> list[str]:
    return table(
        ["ratio", "measured", "mark", ""],
        [
            [
                m["what"],
                f"{m['value']:.2f}{m['unit']}",
                f"{'≥' if m['at_least'] else '≤'} {m['mark']:g}{m['unit']}",
                "reached" if m["reached"] else "missed",
            ]
            for m in marks
        ],
    )
