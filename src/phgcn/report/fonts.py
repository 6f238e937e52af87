"""Fonts for ids and classes of users in any script."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ..text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# a font that has a box for every character, which comes with Matplotlib
LAST_RESORT = "Last Resort"


def label(text: object) -> str:
    """Returns a text on one line without formulas, with ``?`` for characters of no font."""
    clean = printable(text)
    letters = (letter if _families(letter) else "?" for letter in clean)
    return "".join(letters).replace("$", r"\$")  # between two $ Matplotlib reads a formula


def use_fonts(figure: Figure) -> None:
    """Gives texts of a figure fallback fonts for characters that the default font lacks."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        families = dict.fromkeys(name for letter in text.get_text() for name in _families(letter))
        if len(families) > 1:
            text.set_fontfamily(list(families))


@cache
def _families(letter: str) -> tuple[str, ...]:
    """Returns the default family and, if only another has the character, that one."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    path = findfont(FontProperties())
    default = get_font(path).family_name
    if letter.isspace() or ord(letter) in _characters(path):
        return (default,)
    fonts = (font for font in fontManager.ttflist if LAST_RESORT not in font.name)
    return next(
        ((default, font.name) for font in fonts if ord(letter) in _characters(font.fname)), ()
    )


@cache
def _characters(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
