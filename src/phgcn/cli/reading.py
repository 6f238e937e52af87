r"""Options that say how a graph is read, shared by the commands that begin with one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

if TYPE_CHECKING:
    from ..data import Columns

Command = TypeVar("Command", bound=Callable[..., Any])


def _option(flag: str, text: str) -> Any:
    return Annotated[str | None, typer.Option(flag, help=text, show_default=False)]


OPTIONS = {
    "task": _option("--task", "classification, regression or multilabel. \\[default: by the labels]"),
    "id": _option("--id", "The column of node ids. \\[default: id]"),
    "label": _option("--label", "The column of labels. \\[default: label]"),
    "features": _option("--features", "The columns of features, separated by commas. \\[default: all others]"),
    "categorical": _option("--categorical", "Features that are names, though they look like numbers."),
    "split": _option("--split-column", "Columns that say train, val or test, one for each split; the protocol is official."),
    "coordinates": _option("--coordinates", "Features that are coordinates on a map, such as lat,lon."),
    "source": _option("--source", "The column where edges begin. \\[default: source]"),
    "target": _option("--target", "The column where edges end. \\[default: target]"),
    "edge_weight": _option("--edge-weight", "The column of edge weights, or none. \\[default: weight, if there is one]"),
    "edge_features": _option("--edge-features", "The columns of edge features, or none; others are left out."),
}
LISTS = ("features", "categorical", "split", "edge_features", "coordinates")


def flag_of(key: str) -> str:
    """Returns the option that sets a field of :class:`phgcn.data.Columns`, or ``task``."""
    return "--split-column" if key == "split" else f"--{key.replace('_', '-')}"


class Reading(NamedTuple):
    """How a graph is read: the options that were given, by the fields of :class:`phgcn.data.Columns`, and ``task``."""

    given: dict[str, str]

    @property
    def task(self) -> str | None:
        return self.given.get("task")

    def words(self) -> list[str]:
        """Returns the options as they are written on the command line."""
        return [word for key, value in self.given.items() for word in (flag_of(key), value)]

    def columns(self) -> Columns:
        """Returns which columns are what."""
        from ..data.columns import NO_COLUMN, Columns

        names: dict[str, Any] = {key: value for key, value in self.given.items() if key != "task"}
        for key in LISTS:
            if key in names:
                names[key] = [] if names[key] == NO_COLUMN else [name.strip() for name in names[key].split(",") if name.strip()]
        return Columns(**names)


def reads_graph(command: Command) -> Command:
    """Gives a command the options above; it gets them as one argument, ``reading``."""
    # Not by get_type_hints: on Python 3.10 it hides the option of a parameter whose default is None inside an Optional.
    signature = inspect.signature(command, eval_str=True)
    own = [entry for name, entry in signature.parameters.items() if name != "reading"]
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in OPTIONS.items()]

    @wraps(command)
    def call(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in OPTIONS}
        return command(
            *arguments, **options, reading=Reading({key: value for key, value in given.items() if value is not None})
        )

    call.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    call.__annotations__ = {entry.name: entry.annotation for entry in (*own, *added)}
    return call  # type: ignore[return-value]
