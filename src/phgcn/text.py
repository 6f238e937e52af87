r"""Text that came from a file, made safe to print, and to open in a spreadsheet."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins with one of these is a formula to a spreadsheet."""


def printable(text: object) -> str:
    """Returns a text on one line, with a ``?`` for each letter that a terminal would obey instead of print."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(text).split()))


def without_formula(cell: str) -> str:
    """Puts an apostrophe before a cell that a spreadsheet would take for a formula."""
    return f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Returns `` (did you mean 'heads'?)`` for a word that is spelled nearly like a known one, else an empty text."""
    similar = difflib.get_close_matches(word, list(known), n=most, cutoff=0.6)
    return f" (did you mean {' or '.join(map(repr, similar))}?)" if similar else ""
