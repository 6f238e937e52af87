r"""The command ``phgcn``, called in this process."""

from __future__ import annotations

from phgcn.cli import app


def words(*arguments: object) -> list[str]:
    """The words of a command line: texts are split at spaces, other things are one word each."""
    split = [text.split() if isinstance(text, str) else [str(text)] for text in arguments]
    return [word for part in split for word in part]


def code_of(*arguments: object) -> int:
    return app.run(words(*arguments))


def call(*arguments: object) -> None:
    assert code_of(*arguments) == 0
