"""Options for reading a graph, shared by the commands that begin with one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast

import typer

if TYPE_CHECKING:
    from ..data import Columns

Command = TypeVar("Command", bound=Callable[..., Any])


def flag_of(key: str) -> str:
    """Returns the option of a field of :class:`phgcn.data.Columns`, or of ``task``."""
    special = {"split": "--split-column", "source": "--edge-source", "target": "--edge-target"}
    return special.get(key, f"--{key.replace('_', '-')}")


def _option(key: str, text: str) -> Any:
    return Annotated[str | None, typer.Option(flag_of(key), help=text, show_default=False)]


HELP = {
    "task": "classification, regression or multilabel. \\[default: by the labels]",
    "id": "The column of node ids. \\[default: id]",
    "label": "The column of labels. \\[default: label]",
    "features": "The columns of features, separated by commas. \\[default: all others]",
    "categorical": "Features that are names, though they look like numbers.",
    "split": "Columns that say train, val or test, one for each split; the protocol is official.",
    "coordinates": "Features that are coordinates on a map, such as lat,lon.",
    "source": "The column where edges begin. \\[default: source]",
    "target": "The column where edges end. \\[default: target]",
    "edge_weight": "The column of edge weights, or none. \\[default: weight, if there is one]",
    "edge_features": "The columns of edge features, or none; others are left out.",
    "decimal": "The decimal sign, . or a comma; the other may group thousands. "
    "\\[default: by the file]",
    "encoding": "That of files of text, such as latin-1. \\[default: utf-8]",
    "unknown_ids": "drop leaves out edges to ids that no node has. \\[default: refuse]",
}
OPTIONS = {key: _option(key, text) for key, text in HELP.items()}
HELP_TABLES = {
    "nodes": "The table of nodes, a file with any name, instead of GRAPH.",
    "edges": "The table of edges, a file with any name; needs --nodes.",
}
TABLES = {key: _option(key, text) for key, text in HELP_TABLES.items()}
# names that said edges in no way, and are easily taken for the label: they go in 0.4
DEPRECATED = {
    f"old_{key}": Annotated[str | None, typer.Option(f"--{key}", hidden=True)]
    for key in ("source", "target")
}


class Reading(NamedTuple):
    """The given options for reading a graph: fields of ``Columns`` and ``task``."""

    given: dict[str, str]

    @property
    def task(self) -> str | None:
        return self.given.get("task")

    def words(self) -> list[str]:
        """Returns the options as written on the command line."""
        return [word for key, value in self.given.items() for word in (flag_of(key), value)]

    def columns(self) -> Columns:
        from ..data.columns import LISTS, NO_COLUMN, Columns

        names: dict[str, Any] = {key: value for key, value in self.given.items() if key != "task"}
        for key in LISTS:
            if key in names:
                words = map(str.strip, names[key].split(","))
                names[key] = [] if names[key] == NO_COLUMN else [word for word in words if word]
        return Columns(**names)


def takes_tables(command: Command) -> Command:
    """Gives a command that takes ``graph`` the options ``--nodes`` and ``--edges``."""
    signature = inspect.signature(command, eval_str=True)
    graph = signature.parameters["graph"]
    own = [*signature.parameters.values()]
    own[own.index(graph)] = graph.replace(default=None)

    @wraps(command)
    def call(**options: Any) -> Any:
        nodes, edges = (options.pop(name) for name in TABLES)
        named = _named_graph(options["graph"], nodes, edges)
        if named is None and graph.default is inspect.Parameter.empty:
            allowed = "a known name, the path of a graph, or --nodes FILE --edges FILE"
            raise ValueError(f"GRAPH is missing; allowed: {allowed}")
        return command(**{**options, "graph": named})

    return cast("Command", _with_options(call, own, TABLES))


def _named_graph(graph: str | None, nodes: str | None, edges: str | None) -> str | None:
    """Returns the graph named in one of two ways, or :obj:`None`."""
    from ..data.load import PAIR

    if nodes is None and edges is None:
        return graph
    if nodes is None:
        raise ValueError("--nodes is missing; allowed: --nodes FILE --edges FILE")
    if graph is not None:
        raise ValueError(f"a graph, {graph!r}, and --nodes are given; allowed: one of them")
    return f"{nodes}{PAIR}{edges or ''}"


def reads_graph(command: Command) -> Command:
    """Gives a command the options above, as one argument ``reading``."""
    # Not by get_type_hints: on Python 3.10 it hides the option of a parameter whose default is None
    # inside an Optional.
    signature = inspect.signature(command, eval_str=True)
    own = [entry for name, entry in signature.parameters.items() if name != "reading"]

    @wraps(command)
    def call(**options: Any) -> Any:
        given = {name: options.pop(name) for name in OPTIONS}
        for old in DEPRECATED:
            name = old.removeprefix("old_")
            if (value := options.pop(old)) is not None:
                instead = f"write {flag_of(name)}"
                print(f"--{name} is deprecated and goes in 0.4: {instead}", file=sys.stderr)
                given[name] = value if given[name] is None else given[name]
        named = {key: value for key, value in given.items() if value is not None}
        return command(**options, reading=Reading(named))

    return cast("Command", takes_tables(_with_options(call, own, OPTIONS | DEPRECATED)))


def _with_options(
    call: Callable[..., Any], own: list[inspect.Parameter], options: dict[str, Any]
) -> Any:
    """Gives a function the signature of a command with more options."""
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, kind, default=None, annotation=option)
        for name, option in options.items()
    ]
    entries = [*(entry.replace(kind=kind) for entry in own), *added]
    call.__signature__ = inspect.Signature(entries)  # type: ignore[attr-defined]
    call.__annotations__ = {entry.name: entry.annotation for entry in entries}
    return call
