r"""The settings of a training: their meaning, what is allowed, and the small TOML files they are kept in.

A file holds one setting per line, ``heads = 8``, and may name its ``model``.  Where a graph and a model are known by name,
the file ``<graph>-<model>.toml`` of ``phgcn/configs`` is used; a file of one's own replaces it, and single settings given
beside it replace those of the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
EMBEDDINGS = {"geom-gcn-i": "isomap", "geom-gcn-p": "poincare", "geom-gcn-s": "struc2vec"}
"""Models that sum over the neighbourhoods of an embedding, and which one."""
MODELS = ("phgcn", "phgcn-residual", "gat-eda", "gat", "gcn", "mlp", *EMBEDDINGS)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"phgcn-residual": ("phgcn", {"residual": True})}
"""Models that are another one with some of its settings fixed."""


def _setting(default: Any, meaning: str, allowed: str, ok: Callable[[Any], bool]) -> Any:
    return field(default=default, metadata={"meaning": meaning, "allowed": allowed, "ok": ok})


def _count(default: int, meaning: str) -> Any:
    return _setting(default, meaning, "whole numbers from 1 on", lambda value: value >= 1)


def _share(default: float, meaning: str) -> Any:
    return _setting(default, meaning, "numbers from 0 to below 1", lambda value: 0 <= value < 1)


def _positive(default: float, meaning: str) -> Any:
    return _setting(default, meaning, "positive numbers", lambda value: 0 < value < float("inf"))


def _switch(default: bool, meaning: str) -> Any:
    return _setting(default, meaning, "true, false", lambda value: True)


def _choice(default: str, meaning: str, choices: Sequence[str]) -> Any:
    return _setting(default, meaning, ", ".join(f'"{choice}"' for choice in choices), lambda value: value in choices)


@dataclass(frozen=True)
class Settings:
    """What a model and its training are made of; the defaults are those of no graph in particular."""

    hidden_channels: int = _count(8, "channels per head, or per virtual node of Geom-GCN, of the hidden layers")
    heads: int = _count(8, "attention heads; GCN and MLP have hidden layers of heads x hidden_channels")
    num_layers: int = _count(2, "layers, the output layer included")
    dropout: float = _share(0.5, "dropout of the input of every layer")
    attention_dropout: float = _share(0.0, "dropout of attention")
    norm: str = _choice("none", "normalisation between layers", ("none", "batch", "layer"))
    residual: bool = _switch(False, "a learned channel for the node itself")
    embedding_dim: int = _count(4, "dimensions of the embedding that distances are taken in")
    decay_local: float = _positive(1.0, "how fast attention to neighbours decays with distance")
    decay_global: float = _positive(10.0, "how fast attention to all nodes decays with distance")
    learn_decay: bool = _switch(False, "learn both decays, starting from these")
    method: str = _choice(
        "auto",
        "global attention; auto is exact where that is quicker",
        ("auto", "exact", "lattice", "lattice-fine", "separable"),
    )
    neighbourhood: str = _choice(
        "computed", "neighbours in latent space: ours, or those that Geom-GCN published", ("computed", "published")
    )
    normalise: bool = _switch(False, "divide each node's features by the sum of their absolute values")
    learning_rate: float = _positive(0.005, "Adam's fixed learning rate")
    weight_decay: float = _setting(5e-4, "Adam's weight decay", "numbers from 0 on", lambda value: 0 <= value < float("inf"))
    epochs: int = _count(1000, "epochs at most")
    patience: int = _count(100, "epochs without a smaller validation loss before training stops")


_TRAINING = ("normalise", "learning_rate", "weight_decay", "epochs", "patience")
_ALL_MODELS = ("hidden_channels", "heads", "num_layers", "dropout", "norm")
_MODEL_KEYS: dict[str, tuple[str, ...]] = {
    "mlp": _ALL_MODELS,
    "gcn": (*_ALL_MODELS, "residual"),
    "gat": (*_ALL_MODELS, "residual", "attention_dropout"),
    "gat-eda": (*_ALL_MODELS, "residual", "attention_dropout", "embedding_dim", "decay_local", "learn_decay"),
}
_MODEL_KEYS["phgcn"] = (*_MODEL_KEYS["gat-eda"], "decay_global", "method")
_MODEL_KEYS |= {name: ("hidden_channels", "num_layers", "dropout", "norm") for name in EMBEDDINGS}
_MODEL_KEYS |= {name: tuple(key for key in _MODEL_KEYS[base] if key not in fixed) for name, (base, fixed) in VARIANTS.items()}
_FIELDS = {entry.name: entry for entry in fields(Settings)}


def check_model(model: str) -> str:
    """The model's name, if there is such a model."""
    if model not in MODELS:
        raise ValueError(f"model is {model!r}; allowed: {', '.join(MODELS)}")
    return model


def variant(model: str) -> tuple[str, dict[str, Any]]:
    """The model that this one is, and the settings that are fixed in it."""
    return VARIANTS.get(check_model(model), (model, {}))


def model_keys(model: str) -> list[str]:
    """The settings that describe the model."""
    return [key for key in _FIELDS if key in _MODEL_KEYS[check_model(model)]]


def keys(model: str) -> list[str]:
    """All settings of a training of this model, in the order of the files."""
    training = (*_TRAINING, "neighbourhood") if model in EMBEDDINGS else _TRAINING
    return [key for key in _FIELDS if key in _MODEL_KEYS[check_model(model)] or key in training]


def used(settings: Settings, model: str) -> dict[str, Any]:
    """The settings that this model makes use of."""
    everything = asdict(settings)
    return {key: everything[key] for key in keys(model)}


def change(settings: Settings, values: Mapping[str, Any], model: str, source: str) -> Settings:
    """The settings with some of them replaced, each checked; ``source`` is named in errors."""
    allowed = keys(model)
    for key in values:
        if key not in allowed:
            known = "no setting of" if key in _FIELDS else "not known to"
            raise ValueError(f"{source}: the setting {key!r} is {known} {model}; allowed: {', '.join(allowed)}")
    return replace(settings, **{key: _checked(key, value, source) for key, value in values.items()})


def _checked(key: str, value: Any, source: str) -> Any:
    wanted, about = type(_FIELDS[key].default), _FIELDS[key].metadata
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted or not about["ok"](value):
        raise ValueError(f"{source}: {key} is {value!r}; allowed: {about['allowed']}")
    return value


def resolve(
    model: str, graph: str | None = None, config: str | Path | None = None, changes: Sequence[str] = ()
) -> tuple[Settings, Path | None]:
    """The settings of a training: the defaults, then a file, then single changes.

    Args:
        model (str): The model's name.
        graph (str, optional): The graph's name, to find the file that comes with the package. (default: :obj:`None`)
        config (str or Path, optional): A file to take instead. (default: :obj:`None`)
        changes (list of str, optional): Settings as ``"heads=4"``. (default: none)

    Returns:
        The settings, and the file that was read, if any.
    """
    check_model(model)
    path = Path(config) if config is not None else shipped(model, graph)
    settings = Settings()
    if path is not None:
        named, values = read(path)
        if named not in (None, model):
            raise ValueError(f"{path}: model is {named!r}; allowed: {model!r}, as asked for")
        settings = change(settings, values, model, str(path))
    return change(settings, dict(map(_parse, changes)), model, "--set"), path


def shipped(model: str, graph: str | None) -> Path | None:
    """The file that comes with the package for this graph and model, if there is one."""
    if graph is None or Path(graph).name != graph:
        return None
    path = CONFIGS / f"{graph.replace('_', '-')}-{model}.toml"
    return path if path.is_file() else None


def read(path: str | Path) -> tuple[str | None, dict[str, Any]]:
    """The model that a file names, if it does, and its settings, not checked yet."""
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


def _parse(text: str) -> tuple[str, Any]:
    """``"heads=4"`` as a key and a value; what is no TOML value is a string."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not key or not value:
        raise ValueError(f"--set is {text!r}; allowed: key=value, for example heads=4")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return key, value


def as_toml(settings: Settings, model: str, heading: str) -> str:
    """The text of a file with these settings, each with its meaning beside it."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    rows = [("model", _toml(model), "")]
    rows += [(key, _toml(value), _FIELDS[key].metadata["meaning"]) for key, value in used(settings, model).items()]
    width = max(len(f"{key} = {value}") for key, value, _ in rows)
    lines += [f"{f'{key} = {value}':{width}}  # {meaning}" if meaning else f"{key} = {value}" for key, value, meaning in rows]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
