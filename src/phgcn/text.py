r"""Text that came from a file, made safe to print, and to open in a spreadsheet."""

from __future__ import annotations

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins with one of these is a formula to a spreadsheet."""


def printable(text: object) -> str:
    """Returns a text on one line, with a ``?`` for each letter that a terminal would obey instead of print."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(text).split()))


def without_formula(cell: str) -> str:
    """Puts an apostrophe before a cell that a spreadsheet would take for a formula."""
    return f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell
