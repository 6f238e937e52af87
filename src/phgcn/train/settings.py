"""The settings of a training: their meaning, the values allowed, and where they come from.

Four sources are read in this order: the defaults; a start (:mod:`phgcn.train.candidates`); the
tuned table ``[graph.model]`` of ``configs.toml`` or a file (``--config``), before which no start is
read if it is the table; single changes (``--set``). A file holds one setting per line,
``heads = 8``, and may name its ``model``. :mod:`phgcn.registry` lists each model's settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..registry import DEFAULT_MODEL, TABLE_MODEL, find_model
from ..text import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIGS = Path(__file__).resolve().with_name("configs.toml")
DEFAULT = "default"

MOST = 10**9  # upper bound of whole numbers: beyond it sizes of tensors overflow

INFINITY = float("inf")


def _setting(default: Any, meaning: str, allowed: str, ok: Callable[[Any], bool]) -> Any:
    return field(default=default, metadata={"meaning": meaning, "allowed": allowed, "ok": ok})


def _count(default: int, meaning: str) -> Any:
    allowed = f"whole numbers from 1 to {MOST}"
    return _setting(default, meaning, allowed, lambda value: 1 <= value <= MOST)


def _count_from_0(default: int, meaning: str) -> Any:
    return _setting(default, meaning, "whole numbers from 0 on", lambda value: value >= 0)


def _share(default: float, meaning: str) -> Any:
    return _setting(default, meaning, "numbers from 0 to below 1", lambda value: 0 <= value < 1)


def _positive(default: float, meaning: str) -> Any:
    return _setting(default, meaning, "positive numbers", lambda value: 0 < value < INFINITY)


def _not_negative(default: float, meaning: str) -> Any:
    return _setting(default, meaning, "numbers from 0 on", lambda value: 0 <= value < INFINITY)


def _switch(default: bool, meaning: str) -> Any:
    return _setting(default, meaning, "true, false", lambda value: True)


def _choice(choices: Sequence[str], meaning: str, default: str = "") -> Any:
    """Makes a setting of a few values; the first is the default unless one is named."""
    allowed = ", ".join(f'"{choice}"' for choice in choices)
    return _setting(default or choices[0], meaning, allowed, lambda value: value in choices)


@dataclass(frozen=True)
class Settings:
    """The settings of a model and of its training; no graph in particular shaped the defaults."""

    # the network
    hidden_channels: int = _count(8, "hidden channels per head or virtual node; of GlobalGNN all")
    heads: int = _count(8, "attention heads; of GCN and MLP, groups of hidden_channels")
    num_layers: int = _count(2, "layers with the output layer; of GlobalGNN the local layers")
    local: str = _choice(
        ("gcn", "sgc", "sage", "gat", "gin", "eda", "none"),
        "the layer that reads neighbours; none is an MLP",
    )
    body: str = _choice(("residual", "polynomial"), "local layers added, or as in Polynormer")
    jk: str = _choice(
        ("last", "sum", "cat"), "output of the last layer, or of all, added or joined"
    )
    global_layers: int = _count_from_0(0, "blocks of global attention behind gates that start at 0")
    global_at: str = _choice(
        ("top", "each", "input"), "blocks after the last local layer, in each, or before them"
    )
    dropout: float = _share(0.5, "dropout of every layer's input; of GlobalGNN of its output")
    input_dropout: float = _share(0.0, "dropout of the features before the first layer")
    attention_dropout: float = _share(0.0, "dropout of attention")
    global_dropout: float = _share(0.0, "dropout in blocks of global attention")
    norm: str = _choice(("none", "batch", "layer"), "normalisation between layers")
    residual: bool = _switch(False, "a learned channel for the node itself")
    # attention and labels
    embedding_dim: int = _count(4, "dimensions of the embedding that distances are taken in")
    decay_local: float = _positive(1.0, "how fast attention to neighbours decays with distance")
    decay_global: float = _positive(10.0, "how fast attention to all nodes decays with distance")
    decay: float = _positive(1.0, "the same for blocks of global attention and for labels")
    parts: str = _choice(
        ("network", "labels", "both"), "a table's inputs: columns, labels of other rows", "both"
    )
    labels: bool = _switch(False, "also read labels of training nodes, which the run then contains")
    key_share: float = _setting(
        0.6,
        "random share of training nodes whose labels the others read in a step",
        "numbers between 0 and 1",
        lambda value: 0 < value < 1,
    )
    learn_decay: bool = _switch(False, "learn the decays, starting from these")
    mass: bool = _switch(False, "blocks also read the log of the softmax denominator, a density")
    method: str = _choice(
        ("auto", "exact", "lattice", "lattice-fine", "separable"),
        "global attention; auto is exact where that is quicker",
    )
    tolerance: float = _not_negative(0.0, "the largest error of attention that auto takes; 0: any")
    # features
    scaling: str = _choice(
        ("none", "standard", "range"),
        "features as they are, to mean 0 and deviation 1, or to 0 to 1 over training nodes",
    )
    normalise: bool = _switch(False, "divide a node's features by the sum of their absolute values")
    # the optimiser and the loss
    learning_rate: float = _positive(0.005, "Adam's learning rate, the largest of the schedule")
    schedule: str = _choice(("constant", "cosine"), "the learning rate after the warm-up")
    warmup: int = _count_from_0(0, "epochs in which the learning rate rises linearly from 0")
    weight_decay: float = _not_negative(
        5e-4, "Adam's weight decay; never of gates, decays and norms of GlobalGNN"
    )
    clip_norm: float = _not_negative(0.0, "upper bound of the norm of all gradients; 0 is none")
    class_weights: str = _choice(
        ("none", "balanced"), "weights of classes in the loss; balanced: one over training nodes"
    )
    label_smoothing: float = _share(0.0, "share of each training label spread over all classes")
    edge_dropout: float = _share(0.0, "random share of edges left out of each training step")
    node_dropout: float = _share(0.0, "random share of nodes without features in a training step")
    amp: bool = _switch(False, "compute in bfloat16 where torch's autocast does; on a GPU only")
    # how long
    epochs: int = _count(1000, "epochs at most")
    local_epochs: int = _count_from_0(0, "first epochs at most without global attention")
    batch_rows: int = _count_from_0(0, "random rows of a table in each step, with keys; 0 for all")
    evaluate_every: int = _count(1, "epochs between two evaluations on the validation nodes")
    patience: int = _count(100, "epochs without a better one before the training or phase stops")
    select: str = _choice(
        ("loss", "metric"), "the best epoch by validation loss, or metric (ties: smaller loss)"
    )


# settings of every training, whatever the model
_TRAINING = (
    *("scaling", "normalise"),
    *("learning_rate", "schedule", "warmup", "weight_decay", "clip_norm", "class_weights"),
    *("label_smoothing", "edge_dropout", "node_dropout", "amp"),
    *("epochs", "patience", "select"),
)

# the headings of groups of settings, by the first setting of each group
GROUPS = {
    "hidden_channels": "the network",
    "embedding_dim": "attention and labels",
    "scaling": "features",
    "learning_rate": "the optimiser and the loss",
    "epochs": "how long",
}

_FIELDS = {entry.name: entry for entry in fields(Settings)}


def keys(model: str) -> list[str]:
    """Returns all settings of a training of this model, in the order of the files."""
    entry = find_model(model)
    taken = {*entry.settings, *entry.training_settings, *_TRAINING}
    if unknown := sorted(taken - set(_FIELDS)):
        raise ValueError(
            f"{model} is registered with the setting {unknown[0]!r}; allowed: {', '.join(_FIELDS)}"
        )
    return [key for key in _FIELDS if key in taken]


def attends(model: str, settings: Settings) -> bool:
    """Returns whether a model with these settings attends to all nodes, or to all labelled ones."""
    if model == DEFAULT_MODEL:
        return settings.global_layers > 0 or settings.labels
    return settings.parts != "network" if model == TABLE_MODEL else "decay_global" in keys(model)


def values_of(key: str) -> list[str]:
    """Returns the values of a setting that has few: names, or true and false."""
    if key not in _FIELDS:
        return []
    allowed = [part.strip('" ') for part in _FIELDS[key].metadata["allowed"].split(",")]
    return [value for value in allowed if " " not in value and _FIELDS[key].metadata["ok"](value)]


def used(settings: Settings, model: str) -> dict[str, Any]:
    return {key: getattr(settings, key) for key in keys(model)}


def change(settings: Settings, values: Mapping[str, Any], model: str, source: str) -> Settings:
    """Replaces some settings, each checked; ``source`` is named in errors."""
    allowed = keys(model)
    for key in values:
        if key not in allowed:
            problem = "no setting of" if key in _FIELDS else "not known to"
            meant = did_you_mean([key], allowed)
            raise ValueError(
                f"{source}: the setting {key!r} is {problem} {model}{meant}; allowed: "
                f"{', '.join(allowed)}"
            )
    return replace(settings, **{key: _checked(key, value, source) for key, value in values.items()})


def _checked(key: str, value: Any, source: str) -> Any:
    expected, about = type(_FIELDS[key].default), _FIELDS[key].metadata
    if expected is float and type(value) is int:
        value = float(value)
    if type(value) is not expected or not about["ok"](value):
        raise ValueError(f"{source}: {key} is {value!r}; allowed: {about['allowed']}")
    return value


class Resolved(NamedTuple):
    """The settings of a training, and the source of each setting that the model uses.

    A source is ``"default"``, ``"start for ..."``, ``"search"``, ``"configs.toml [graph.model]"``,
    the path of a file, ``"--set"`` or ``"fixed by MODEL"``."""

    settings: Settings
    sources: dict[str, str]


def resolve(
    model: str,
    graph: str | None = None,
    config: str | Path | None = None,
    changes: Sequence[str] = (),
    start: tuple[Mapping[str, Any], str] | None = None,
) -> Resolved:
    """Collects the settings of a training: defaults, a start, a table or file, single changes.

    Args:
        model (str): The model's name.
        graph (str, optional): The name of the graph, whose table in ``configs.toml`` is read.
        config (str or Path, optional): A file to read instead of that table.
        changes (list of str, optional): Settings as ``"heads=4"``.
        start (tuple, optional): Settings to start from instead of the defaults, and the name of
            their source, as :func:`phgcn.train.candidates.start_settings` returns them. A table for
            the graph comes before them.
    """
    entry, begun = find_model(model), Settings()
    if config is not None:
        table, source = _read_for(model, Path(config)), str(config)
    else:
        table, source = tuned(model, graph), tuned_source(model, graph)
    unsaid: list[tuple[Mapping[str, Any], str]] = [(entry.defaults, DEFAULT)]
    if start is not None and not (config is None and table):
        unsaid.append(start)
    said = [(table, source), (dict(map(parse, changes)), "--set")]
    for values, source in unsaid:
        begun = change(begun, values, model, source)
    settings = begun
    for values, source in said:
        settings = change(settings, values, model, source)
    settings = follow_epochs(begun, settings, {key for values, _ in said for key in values})
    sources = dict.fromkeys(keys(model), DEFAULT)
    sources |= {key: source for values, source in (*unsaid, *said) for key in values}
    return Resolved(settings, sources | dict.fromkeys(entry.fixed, f"fixed by {model}"))


def shorten(settings: Settings, epochs: int) -> Settings:
    """Returns the settings of a shorter training, with the share of its warm-up."""
    every = min(settings.evaluate_every, epochs)
    short = replace(settings, epochs=epochs, evaluate_every=every)
    return follow_epochs(settings, short, ())


def follow_epochs(begun: Settings, settings: Settings, said: Collection[str]) -> Settings:
    """Scales the warm-up with the epochs, and keeps a patience of all epochs such a patience, each
    unless it is in ``said``, the names of changed settings."""
    if "warmup" not in said:
        warmup = begun.warmup * settings.epochs // begun.epochs
        settings = replace(settings, warmup=warmup)
    if "patience" not in said and begun.patience == begun.epochs:
        settings = replace(settings, patience=settings.epochs)
    return settings


def _read_for(model: str, path: Path) -> dict[str, Any]:
    named, values = read(path)
    if named not in (None, model):
        raise ValueError(f"{path}: model is {named!r}; allowed: {model!r}, as asked for")
    return values


def tuned(model: str, graph: str | None) -> dict[str, Any]:
    return dict(_tables().get(_table_name(graph), {}).get(model, {}))


def tuned_source(model: str, graph: str | None) -> str:
    """Returns the name of this graph and model's table in :func:`resolve`."""
    return f"{CONFIGS.name} [{_table_name(graph)}.{model}]"


def _table_name(graph: str | None) -> str:
    return (graph or "").replace("_", "-")


@cache
def _tables() -> dict[str, Any]:
    """Reads ``configs.toml``: settings by graph and model."""
    tables: dict[str, Any] = tomllib.loads(CONFIGS.read_text(encoding="utf-8"))
    return tables


def describe_sources(resolved: Resolved, model: str) -> list[str]:
    """Returns a line per source with its settings, ``"--set: heads=4"``."""
    values = used(resolved.settings, model) | dict(find_model(model).fixed)
    by_source: dict[str, list[str]] = {}
    for key, source in resolved.sources.items():
        by_source.setdefault(source, []).append(f"{key}={_toml(values[key])}")
    return [f"{source}: {', '.join(entries)}" for source, entries in by_source.items()]


def read(path: str | Path) -> tuple[str | None, dict[str, Any]]:
    """Reads a file: the model that it names, if any, and its unchecked settings."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: the settings cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: the settings are not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: not a TOML file ({error})") from None
    return values.pop("model", None), values


def parse(text: str) -> tuple[str, Any]:
    """Splits ``"heads=4"`` into a key and a value; a value that is not TOML is a string."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not key or not value:
        raise ValueError(f"--set is {text!r}; allowed: key=value, for example heads=4")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return key, value


def as_toml(settings: Settings, model: str, heading: str, without: Sequence[str] = ()) -> str:
    """Returns the text of a file with the settings, except ``without``, and their meanings."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    lines.append(f"model = {_toml(model)}")
    values = {key: value for key, value in used(settings, model).items() if key not in without}
    written = {key: f"{key} = {_toml(value)}" for key, value in values.items()}
    width, group = max(map(len, written.values())), ""
    for key in _FIELDS:
        group = GROUPS.get(key, group)
        if key not in written:
            continue
        if (heading := f"# {group}") not in lines:
            lines += ["", heading]
        lines.append(f"{written[key]:{width}}  # {_FIELDS[key].metadata['meaning']}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
