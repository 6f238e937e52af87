r"""Fonts that have the characters of a text: ids and classes of users are in any script."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ..text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPLACEMENT = "?"
"""Stands for a character that no installed font has."""

LAST_RESORT = "Last Resort"
"""A font that has a box for every character, which comes with Matplotlib."""


def label(text: object) -> str:
    """Returns a text as it can be drawn: on one line, without formulas, each character one that some font has."""
    clean = printable(text)
    letters = (letter if _family_with(letter) else REPLACEMENT for letter in clean)
    return "".join(letters).replace("$", r"\$")  # between two $ Matplotlib reads a formula


def use_fonts(figure: Figure) -> None:
    """Lets each text of a figure that the default font cannot draw fall back on fonts that can."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        content = text.get_text()
        families = dict.fromkeys(family for letter in content if (family := _family_with(letter)))
        if set(families) - {_default()[0]}:
            text.set_fontfamily([_default()[0], *families])


@cache
def _default() -> tuple[str, str]:
    """Returns family and file of Matplotlib's default font."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    path = findfont(FontProperties())
    return str(get_font(path).family_name), str(path)


@cache
def _family_with(letter: str) -> str | None:
    """Returns the family of an installed font that has a character, the default one if it does; :obj:`None` if none has."""
    from matplotlib.font_manager import fontManager

    family, path = _default()
    if letter.isspace() or ord(letter) in _characters(path):
        return family
    fonts = (entry for entry in fontManager.ttflist if LAST_RESORT not in entry.name)
    return next((entry.name for entry in fonts if ord(letter) in _characters(entry.fname)), None)


@cache
def _characters(path: str) -> frozenset[int]:
    """Returns the characters of a font file; none of one that cannot be read, which is then not used."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
