"""The models by name: training, tuning, the command line, reports and tables read their entries.

To add a model, call :func:`register` once, here or in the package that holds the model::

    settings = ("hidden_channels", "num_layers", "dropout")
    register(ModelEntry("sage", "GraphSAGE", "my_package.sage:SAGE", settings))

Classes and functions may be named as ``"module:attribute"``. They are imported on first use:
``phgcn train --help`` lists all models without importing torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .text import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

DEFAULT_MODEL = "global-gnn"  # the default model of ``phgcn train`` and ``phgcn tune``
TABLE_MODEL = "table"  # the default model of graphs without edges

# computes the model's arguments after ``x`` from the graph and the seed, ``edge_index`` first
PrepareEdges = Callable[["Data", int], "tuple[Tensor, ...]"]


@dataclass(frozen=True)
class ModelEntry:
    """A model in the registry.

    Args:
        name (str): The name in commands and files.
        title (str): The name in tables and figures.
        model (str or callable): The class, or ``"module:Class"``. Called with ``in_channels``,
            ``out_channels`` and the settings below as keyword arguments.
        settings (tuple of str): The fields of :class:`phgcn.train.Settings` that the class takes.
        fixed (dict, optional): Arguments that a variant of another model sets.
        prepare_edges (str or callable, optional): Computes the model's arguments after ``x`` from
            ``(data, seed)``, or ``"module:function"``. (default: ``edge_index`` of the graph)
        training_settings (tuple of str, optional): The fields of :class:`phgcn.train.Settings` that
            only the training of this model takes.
        edge_values (tuple of str or callable, optional): The arguments of its forward pass among
            ``"edge_attr"`` and ``"edge_weight"``, or a function of the settings that returns them.
            A class with ``edge_attr`` takes ``edge_dim``.
        over_ranks (bool, optional): Whether the class takes a :class:`phgcn.distributed.PartEdges`
            as ``edge_index``, so that several processes can train it on one graph.
        defaults (dict, optional): Defaults that differ from :class:`phgcn.train.Settings`.
        columns (tuple of str, optional): The kinds of columns whose indices the class takes, of
            ``"numeric"`` and ``"coordinates"``. A class with columns takes ``task`` too.
        takes_num_nodes (bool, optional): Whether the class takes ``num_nodes``, as a model of one
            graph only does.
    """

    name: str
    title: str
    model: str | Callable[..., Any]
    settings: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    prepare_edges: str | PrepareEdges | None = None
    training_settings: tuple[str, ...] = ()
    over_ranks: bool = False
    takes_num_nodes: bool = False
    columns: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    edge_values: tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]] = ()

    def model_class(self) -> Callable[..., Any]:
        return _load(self.model)

    def edge_values_of(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the edge values that the model takes with these settings."""
        return self.edge_values(settings) if callable(self.edge_values) else self.edge_values

    def inputs(self, data: Data, seed: int) -> tuple[Tensor, ...]:
        """Computes the model's arguments after ``x``."""
        if self.prepare_edges is None:
            return (data.edge_index,)
        inputs: tuple[Tensor, ...] = _load(self.prepare_edges)(data, seed)
        return inputs


def _load(target: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(target):
        return target
    module, _, attribute = target.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return loaded


_ENTRIES: dict[str, ModelEntry] = {}


def register(entry: ModelEntry) -> None:
    """Adds a model under a new name. An equal entry can be added again."""
    if _ENTRIES.setdefault(entry.name, entry) != entry:
        allowed = f"a name that is not registered yet ({', '.join(_ENTRIES)} are)"
        raise ValueError(f"model is {entry.name!r}; allowed: {allowed}")


def find_model(name: str) -> ModelEntry:
    if name not in _ENTRIES:
        problem = f"model is {name!r}{did_you_mean([name], _ENTRIES)}"
        raise ValueError(f"{problem}; allowed: {', '.join(_ENTRIES)}")
    return _ENTRIES[name]


def model_names() -> tuple[str, ...]:
    return tuple(_ENTRIES)


class ModelClasses(Mapping[str, Callable[..., Any]]):
    """The classes of all registered models by name, without variants of other models."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in list(self):
            raise KeyError(name)
        return _ENTRIES[name].model_class()

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in _ENTRIES.items() if not entry.fixed)

    def __len__(self) -> int:
        return len(list(iter(self)))


_STACK = ("hidden_channels", "heads", "num_layers", "dropout", "norm")
_GAT_EDA = (*_STACK, "residual", "attention_dropout", "embedding_dim", "decay_local", "learn_decay")
_GLOBAL = ("decay_global", "method", "tolerance")
_GLOBAL_GNN = (
    *("hidden_channels", "num_layers", "local", "body", "norm", "jk", "residual"),
    *("dropout", "input_dropout", "global_dropout"),
    *("global_layers", "global_at", "heads", "embedding_dim", "decay", "learn_decay", "mass"),
    *("labels", "key_share", "method", "tolerance"),
)
_TABLE = (
    *("hidden_channels", "num_layers", "dropout", "parts", "heads", "embedding_dim"),
    *("decay", "key_share", "method", "tolerance"),
)
_TABLE_DEFAULTS: dict[str, Any] = (
    {"hidden_channels": 256, "num_layers": 3, "dropout": 0.0, "scaling": "standard"}
    | {"heads": 8, "embedding_dim": 4, "decay": 4.0, "key_share": 0.7}
    | {"learning_rate": 0.01, "schedule": "cosine", "warmup": 90}
    | {"weight_decay": 0.0, "clip_norm": 1.0}
    | {"epochs": 300, "evaluate_every": 10, "patience": 300}
)
_BOTH = ("edge_attr", "edge_weight")
_OF_LOCAL = {"gcn": ("edge_weight",), "sgc": ("edge_weight",), "gat": ("edge_attr",), "eda": _BOTH}


def _values_of_local(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the edge values of GlobalGNN's local layers."""
    return _OF_LOCAL.get(settings["local"], ())


def _register_stack(
    name: str, title: str, settings: tuple[str, ...], edge_values: tuple[str, ...], variant: bool
) -> None:
    """Registers a model of the paper's tables and, with ``variant``, one with an own channel."""
    model = f"phgcn.nn.models:{title.replace('-', '')}"
    entry = ModelEntry(name, title, model, settings, edge_values=edge_values, over_ranks=True)
    register(entry)
    if variant:
        rest = tuple(key for key in settings if key != "residual")
        name, title = f"{name}-residual", f"{title} + own channel"
        register(replace(entry, name=name, title=title, settings=rest, fixed={"residual": True}))


_register_stack("phgcn", "PH-GCN", (*_GAT_EDA, *_GLOBAL), _BOTH, variant=True)
_register_stack("gat-eda", "GAT-EDA", _GAT_EDA, _BOTH, variant=True)
_GAT = (*_STACK, "residual", "attention_dropout")
_register_stack("gat", "GAT", _GAT, ("edge_attr",), variant=False)
_register_stack("gcn", "GCN", (*_STACK, "residual"), ("edge_weight",), variant=True)
_register_stack("mlp", "MLP", _STACK, (), variant=False)
register(
    ModelEntry(
        "global-gnn",
        "GlobalGNN",
        "phgcn.nn.global_gnn:GlobalGNN",
        _GLOBAL_GNN,
        training_settings=("local_epochs",),
        edge_values=_values_of_local,
        over_ranks=True,
        columns=("coordinates",),
    )
)
register(
    ModelEntry(
        TABLE_MODEL,
        "TableNetwork",
        "phgcn.nn.table_network:TableNetwork",
        _TABLE,
        training_settings=("evaluate_every", "batch_rows"),
        columns=("numeric", "coordinates"),
        defaults=_TABLE_DEFAULTS,
    )
)
