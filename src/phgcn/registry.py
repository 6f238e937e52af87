r"""The models by name: one entry per model, read by training, tuning, the command line, the reports and the tables.

To add a model, call :func:`register` once, here or in the package that holds the model::

    register(ModelEntry("sage", "GraphSAGE", "my_package.sage:SAGE", settings=("hidden_channels", "num_layers", "dropout")))

This module imports nothing heavy: classes and functions may be named as ``"module:attribute"`` and are imported on first use,
so that ``phgcn train --help`` lists all models without importing torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .text import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

DEFAULT_MODEL = "global-gnn"
"""The model of ``phgcn train`` and ``phgcn tune`` unless they are told otherwise."""

TABLE_MODEL = "table"
"""The model of graphs without edges unless they are told otherwise."""

PrepareEdges = Callable[["Data", Mapping[str, Any], int], "tuple[Tensor, ...]"]
"""Takes the graph, the settings and the seed; returns what the model takes after ``x``: ``edge_index``, then the rest."""


@dataclass(frozen=True)
class ModelEntry:
    """What the rest of the package knows about a model.

    Args:
        name (str): The name in commands and files.
        title (str): The name in tables and figures.
        model (str or callable): The class, or ``"module:Class"``. Called with ``in_channels``, ``out_channels`` and the
            settings below as keyword arguments.
        settings (tuple of str): The fields of :class:`phgcn.train.Settings` that the class takes.
        fixed (dict, optional): Arguments that this model sets and the user cannot, for a variant of another model.
            (default: none)
        prepare_edges (str or callable, optional): Computes the model's inputs after ``x`` from ``(data, settings, seed)``, or
            ``"module:function"``. (default: :obj:`None`, ``edge_index`` of the graph)
        edge_settings (tuple of str, optional): The fields of :class:`phgcn.train.Settings` that only ``prepare_edges`` takes.
            (default: none)
        training_settings (tuple of str, optional): The fields of :class:`phgcn.train.Settings` that its training takes and that
            of other models does not. (default: none)
        edge_values (tuple of str or callable, optional): Which of ``"edge_attr"`` and ``"edge_weight"`` its forward pass takes,
            or a function of the settings that tells; with ``edge_attr`` the class takes ``edge_dim``. (default: none)
        over_ranks (bool, optional): Whether the class takes a :class:`phgcn.distributed.PartEdges` in place of ``edge_index``,
            so that several processes can train it on one graph. (default: :obj:`False`)
        defaults (dict, optional): Settings of this model that start from other values than :class:`phgcn.train.Settings`.
            (default: none)
        reads_columns (bool, optional): Whether the class takes ``task``, and the indices of ``numeric`` columns and of
            ``coordinates``, as a model of tables does. (default: :obj:`False`)
        takes_num_nodes (bool, optional): Whether the class takes ``num_nodes``, as a model of one graph alone does.
            (default: :obj:`False`)
    """

    name: str
    title: str
    model: str | Callable[..., Any]
    settings: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    prepare_edges: str | PrepareEdges | None = None
    edge_settings: tuple[str, ...] = ()
    training_settings: tuple[str, ...] = ()
    over_ranks: bool = False
    takes_num_nodes: bool = False
    reads_columns: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    edge_values: tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]] = ()

    def model_class(self) -> Callable[..., Any]:
        """Imports and returns the class."""
        return _load(self.model)

    def edge_values_of(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns which features of edges the model takes with these settings."""
        return self.edge_values(settings) if callable(self.edge_values) else self.edge_values

    def inputs(self, data: Data, settings: Mapping[str, Any], seed: int) -> tuple[Tensor, ...]:
        """Computes what the model takes after ``x``."""
        if self.prepare_edges is None:
            return (data.edge_index,)
        edge_settings = {key: settings[key] for key in self.edge_settings}
        inputs: tuple[Tensor, ...] = _load(self.prepare_edges)(data, edge_settings, seed)
        return inputs


def _load(target: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(target):
        return target
    module, _, attribute = target.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return loaded


_ENTRIES: dict[str, ModelEntry] = {}


def register(entry: ModelEntry) -> None:
    """Adds a model. A name can be taken once; registering an equal entry again changes nothing."""
    if _ENTRIES.setdefault(entry.name, entry) != entry:
        raise ValueError(f"model is {entry.name!r}; allowed: a name that is not registered yet ({', '.join(_ENTRIES)} are)")


def find_model(name: str) -> ModelEntry:
    """Returns the entry of a model."""
    if name not in _ENTRIES:
        raise ValueError(f"model is {name!r}{did_you_mean(name, _ENTRIES)}; allowed: {', '.join(_ENTRIES)}")
    return _ENTRIES[name]


def model_names() -> tuple[str, ...]:
    """Returns the names of all models, in the order they were registered."""
    return tuple(_ENTRIES)


class ModelClasses(Mapping[str, Callable[..., Any]]):
    """The classes of all registered models by name; variants, which are another model with fixed settings, left out."""

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
    "hidden_channels", "num_layers", "local", "body", "norm", "jk", "global_layers", "global_at", "dropout", "input_dropout",
    "global_dropout", "residual", "heads", "embedding_dim", "decay", "learn_decay", "mass", "labels",
    "key_share", "method", "tolerance",
)  # fmt: skip


_BOTH = ("edge_attr", "edge_weight")
_OF_LOCAL = {"gcn": ("edge_weight",), "sgc": ("edge_weight",), "gat": ("edge_attr",), "eda": _BOTH}


def _values_of_local(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns which features of edges GlobalGNN takes: those of its local layers."""
    return _OF_LOCAL.get(settings["local"], ())


def _own_channel(entry: ModelEntry) -> ModelEntry:
    """The variant of a model whose layers have an own channel."""
    without = tuple(key for key in entry.settings if key != "residual")
    name, title = f"{entry.name}-residual", f"{entry.title} + own channel"
    return replace(entry, name=name, title=title, settings=without, fixed={"residual": True})


_PHGCN = ModelEntry("phgcn", "PH-GCN", "phgcn.nn.models:PHGCN", (*_GAT_EDA, *_GLOBAL), edge_values=_BOTH, over_ranks=True)
_EDA = ModelEntry("gat-eda", "GAT-EDA", "phgcn.nn.models:GATEDA", _GAT_EDA, edge_values=_BOTH, over_ranks=True)
_GCN = ModelEntry("gcn", "GCN", "phgcn.nn.models:GCN", (*_STACK, "residual"), edge_values=("edge_weight",), over_ranks=True)


_TABLE = (
    "hidden_channels", "num_layers", "parts", "heads", "embedding_dim", "decay", "key_share", "dropout", "method", "tolerance",
)  # fmt: skip
_TABLE_DEFAULTS = {
    "hidden_channels": 256, "num_layers": 3, "heads": 8, "embedding_dim": 4, "decay": 4.0, "dropout": 0.0,
    "scaling": "standard", "learning_rate": 0.01, "schedule": "cosine", "warmup": 90, "weight_decay": 0.0,
    "clip_norm": 1.0, "epochs": 300, "evaluate_every": 10, "patience": 300,
}  # fmt: skip


for _entry in (
    _PHGCN,
    _own_channel(_PHGCN),
    _EDA,
    _own_channel(_EDA),
    ModelEntry(
        "gat", "GAT", "phgcn.nn.models:GAT", (*_STACK, "residual", "attention_dropout"), edge_values=("edge_attr",),
        over_ranks=True,
    ),
    _GCN,
    _own_channel(_GCN),
    ModelEntry("mlp", "MLP", "phgcn.nn.models:MLP", _STACK, over_ranks=True),
    ModelEntry(
        "global-gnn", "GlobalGNN", "phgcn.nn.global_gnn:GlobalGNN", _GLOBAL_GNN, training_settings=("local_epochs",),
        edge_values=_values_of_local, over_ranks=True,
    ),
    ModelEntry(
        TABLE_MODEL, "TableNetwork", "phgcn.nn.table_network:TableNetwork",
        _TABLE, training_settings=("evaluate_every", "batch_rows"), reads_columns=True, defaults=_TABLE_DEFAULTS,
    ),
):  # fmt: skip
    register(_entry)
