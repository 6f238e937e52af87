import pytest

from phgcn.text import printable, without_formula


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain é 漢", "plain é 漢"),
        ("\x1b[31mred\x1b[0m", "?[31mred?[0m"),
        ("a\x00b", "a?b"),
        ("two\nlines\r\tand a tab", "two lines and a tab"),
        ("half \ud800", "half ?"),
        ("left\u202eright", "left?right"),
        (3, "3"),
    ],
)
def test_text_is_one_line_that_a_terminal_does_not_obey(text, printed):
    assert printable(text) == printed


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1"])
def test_formulas_get_an_apostrophe(cell):
    assert without_formula(cell) == f"'{cell}"
    assert without_formula(f"x{cell}") == f"x{cell}"
