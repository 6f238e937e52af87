"""Makes text from files safe to print, and to open in a spreadsheet."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# a cell that begins with one of these is a formula to a spreadsheet
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def printable(text: object) -> str:
    """Returns a text on one line, with ``?`` for each control character of a terminal."""
    return "".join(
        letter if letter.isprintable() else "?" for letter in " ".join(str(text).split())
    )


def amount(value: float) -> str:
    """Formats a number for a sentence: ``27,501``, ``3.142``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def counted(count: int, noun: str) -> str:
    """Formats a count of things: ``1 edge``, ``2,000 edges``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(names: Iterable[str], most: int = 300) -> str:
    """Lists whole names, those beyond about ``most`` letters by their number."""
    shown, left = "", list(names)
    while left and len(shown) < most:
        shown += f", {left.pop(0)}"
    return shown[2:] + (f" and {counted(len(left), 'other')}" if left else "")


def without_formula(cell: str) -> str:
    """Puts an apostrophe before a cell that a spreadsheet would take for a formula."""
    return f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell


def did_you_mean(words: Iterable[str], known: Iterable[str], most: int = 1) -> str:
    """Returns `` (did you mean 'heads'?)`` for words spelled nearly like known ones, or ""."""
    written, similar = {name.lower(): name for name in known}, []
    for word in words:
        close = difflib.get_close_matches(word.lower(), written, n=most, cutoff=0.6)
        if close:
            similar.append(" or ".join(repr(written[name]) for name in close))
    return f" (did you mean {' and '.join(similar)}?)" if similar else ""
