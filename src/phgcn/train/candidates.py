"""The candidates of ``phgcn train`` without a model, and the first settings of a named model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from ..nn.label_attention import LABEL_DECAY
from ..registry import DEFAULT_MODEL, TABLE_MODEL
from .graph import count_edges, indicators
from .settings import Settings, attends, change, keys, resolve

FEW_FEATURES = 64
WORD_SHARE = 0.1  # features of which a smaller share is not 0 are taken for words

# nodes and edges from which on training on a CPU takes long, whatever the model
LARGE, HUGE = 300_000, 800_000

# multiplications of an epoch (:func:`epoch_work`) from which on training on a CPU takes long
LONG, VERY_LONG = 5e8, 1.1e9

POINT = 6000  # multiplications that take as long as one node and head of attention to all nodes

_TRAINING: dict[str, Any] = {
    "epochs": 500,
    "patience": 100,
    "select": "metric",
    "learning_rate": 0.005,
}
_LOCAL: dict[str, Any] = {
    **_TRAINING,
    "norm": "batch",
    "residual": True,
    "hidden_channels": 128,
    "num_layers": 3,
    "learn_decay": True,
}
_GCN = {**_LOCAL, "local": "gcn"}
_SAGE = {
    **_LOCAL,
    "local": "sage",
    "num_layers": 2,
    "norm": "layer",
    "hidden_channels": 64,
    "learning_rate": 0.01,
}
_DEEP = {
    **_LOCAL,
    "num_layers": 8,
    "hidden_channels": 64,
    "dropout": 0.2,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
}
_WORDS = {
    **_LOCAL,
    "local": "sgc",
    "num_layers": 8,
    "jk": "sum",
    "norm": "none",
    "residual": False,
    "hidden_channels": 64,
    "input_dropout": 0.5,
    "learning_rate": 0.02,
    "weight_decay": 0.002,
    "normalise": True,
}
_MLP = {
    **_LOCAL,
    "local": "none",
    "num_layers": 2,
    "hidden_channels": 64,
    "learning_rate": 0.02,
    "input_dropout": 0.2,
}
_SIMILAR = {"global_layers": 1, "global_at": "input", "decay": 10.0, "heads": 4}
_LABELS = {"labels": True, "decay": LABEL_DECAY}
_PAPER = {**_TRAINING, "heads": 4, "learning_rate": 0.01}

# settings by which ``global-gnn`` attends to all nodes, or to all labelled ones
ATTENDING = ("global_layers", "labels")

GLOBAL_GNN = {**_GCN, **_SIMILAR}  # settings of ``global-gnn`` where it is asked for by name
PERIODIC_WIDTH = 16  # periodic features of a numeric column
LEAST_EPOCHS = 100  # in which each choice of a table's parts is tried
BATCH_ROWS = 2**12  # rows of a table that are drawn for each step, if it has more

_BATCHES = {
    "batch_rows": BATCH_ROWS,
    "epochs": 600,
    "patience": 200,
    "warmup": 60,
    "evaluate_every": 50,
}
_LARGE_BATCHES = {"epochs": 1000, "patience": 1000, "warmup": 100, "evaluate_every": 500}

# multiplications of a training on a table up to which three are trained in full on three splits
SHORT = 2.5e11

SPLITS = {0: 3, 1: 3, 2: 1}
EPOCHS = {0: 500, 1: 300, 2: 200}  # splits and epochs at most by default, by :func:`work_class`


class Start(NamedTuple):
    """Settings to start from, and the reason."""

    values: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A model with settings."""

    name: str
    model: str
    settings: Settings

    @property
    def attention(self) -> bool:
        """Whether it attends to all nodes."""
        return attends(self.model, self.settings)


def candidates(
    data: Data, device: str, changes: Mapping[str, Any] | None = None, on_map: bool = False
) -> list[Candidate]:
    """Returns the candidates for a graph, by its size and whether its features are words.

    Args:
        data (torch_geometric.data.Data): The graph.
        device (str): The device of the training.
        changes (dict, optional): Settings of all candidates. Models without one of them are left
            out; networks without attention remain without it.
        on_map (bool, optional): Whether some features are coordinates on a map. Candidates then
            read labels by them too. (default: :obj:`False`)
    """
    changes = changes or {}
    filled = data.description["filled"] if "description" in data else share_filled(data.x)
    words = data.x.size(1) > FEW_FEATURES and filled < WORD_SHARE
    local = {
        "mlp": _MLP,
        "gcn": _GCN,
        "sage": _SAGE,
        **({"words": _WORDS} if words else {"deep": _DEEP}),
    }
    paper = {"phgcn": _PAPER, "phgcn, no dropout": {**_PAPER, "dropout": 0.0, "learn_decay": True}}
    if size_class(data, device):  # each layer and candidate takes long
        local, paper = {"mlp": _MLP, "sage": {**_SAGE, "norm": "batch"}}, {}
    similar = {
        "similar nodes": {**_MLP, **_SIMILAR},
        "similar nodes + sage": {**_MLP, **_SIMILAR, "local": "sage"},
        "similar labels": {**_MLP, **_SIMILAR, "global_layers": 0, "labels": True},
    }
    if on_map:
        paper = {}
        for name in ("mlp", "sage"):
            similar[f"labels on the map + {name}"] = {**local[name], **_LABELS}
    scaled, found = _scaling(data), dict[tuple[str, Settings], Candidate]()
    for model, networks, changed in (
        (DEFAULT_MODEL, local, _plain(changes)),
        (DEFAULT_MODEL, similar, changes),
        ("phgcn", paper, changes),
    ):
        if not set(changes) <= set(keys(model)):
            continue
        for name, values in networks.items():
            settings = change(Settings(), {**values, **scaled}, model, name)
            settings = change(settings, limits(data, model, settings, device), model, name)
            candidate = _changed(Candidate(name, model, settings), changed)
            if candidate.attention == (networks is not local):
                found.setdefault((model, candidate.settings), candidate)
    if not found:
        change(Settings(), changes, DEFAULT_MODEL, "settings")  # says which it does not know
    return list(found.values())


def _plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the changes for a network without attention."""
    return {key: value for key, value in changes.items() if key not in ATTENDING}


def start_settings(data: Data, model: str, device: str) -> Start | None:
    """Returns settings that suit the graph better than the model's defaults, if there are any."""
    values = dict(GLOBAL_GNN) if model == DEFAULT_MODEL else {}
    values |= _scaling(data)
    narrow = "scaling" in values and data.x.size(1) <= FEW_FEATURES
    if narrow and model != DEFAULT_MODEL and "dropout" in keys(model):
        values["dropout"] = 0.0
    settings = resolve(model, start=(values, "start")).settings
    if model == DEFAULT_MODEL or work_class(data, model, settings, device):
        values |= limits(data, model, settings, device)
    if model == TABLE_MODEL and int(data.num_nodes) > BATCH_ROWS:
        values |= _BATCHES | (_LARGE_BATCHES if size_class(data, device) else {})
    return (
        Start(values, f"start for {int(data.num_nodes):,} nodes, {data.x.size(1):,} features")
        if values
        else None
    )


def _scaling(data: Data) -> dict[str, Any]:
    """Returns the setting that scales columns of numbers to mean 0 and deviation 1."""
    numbers = "feature_columns" in data and not bool(indicators(data).all())
    return {"scaling": "standard"} if numbers else {}


def limits(data: Data, model: str, settings: Settings, device: str) -> dict[str, Any]:
    """Returns the most epochs of a training: fewer where one takes long."""
    epochs = EPOCHS[work_class(data, model, settings, device)]
    return {"epochs": epochs, "patience": min(100, epochs // 4)}


def with_attention(best: Candidate, changes: Mapping[str, Any]) -> list[Candidate]:
    """Returns a local network with attention on top, by features and by labels; none that
    ``changes`` make local again."""
    added: dict[str, dict[str, Any]] = {
        "attention": {"global_layers": 1, "global_at": "top"},
        "labels": _LABELS,
    }
    found = [
        Candidate(f"{best.name} + {name}", best.model, replace(best.settings, **values))
        for name, values in added.items()
    ]
    found = [_changed(candidate, changes) for candidate in found]
    return [candidate for candidate in found if candidate.attention]


def without_attention(best: Candidate, changes: Mapping[str, Any]) -> Candidate | None:
    """Returns the network without attention to all nodes, or :obj:`None`."""
    if best.model != DEFAULT_MODEL:
        return None
    plain = {key: getattr(Settings(), key) for key in (*_SIMILAR, *ATTENDING)}
    settings = replace(best.settings, **plain)
    return _changed(Candidate(f"{best.name}, without", best.model, settings), _plain(changes))


def _changed(candidate: Candidate, changes: Mapping[str, Any]) -> Candidate:
    settings = change(candidate.settings, changes, candidate.model, "settings")
    return replace(candidate, settings=settings)


def size_class(data: Data, device: str) -> int:
    """Returns 1 for a graph that is large for its device, 2 for a huge one, else 0."""
    size = int(data.num_nodes) + count_edges(data)
    return 0 if device != "cpu" or size < LARGE else 1 if size < HUGE else 2


def work_class(data: Data, model: str, settings: Settings, device: str) -> int:
    """Returns 1 if an epoch of a model takes long on a device, 2 if very long, else 0."""
    size = size_class(data, device)
    if device != "cpu" or model == TABLE_MODEL:  # which draws its rows in batches
        return size
    work = epoch_work(data, model, settings)
    return max(size, int(work >= LONG) + int(work >= VERY_LONG))


def epoch_work(data: Data, model: str, settings: Settings) -> float:
    """Estimates the multiplications of an epoch: linear maps, edges, and attention."""
    nodes, heads, layers = int(data.num_nodes), settings.heads, settings.num_layers
    attending = layers
    width = heads * settings.hidden_channels
    mapped, summed = layers - 1, layers
    if model == DEFAULT_MODEL:
        width, attending = settings.hidden_channels, settings.global_layers + settings.labels
        mapped = 0 if settings.local == "sgc" else mapped
        summed = 0 if settings.local == "none" else layers
    filled = data.description["filled"] if "description" in data else share_filled(data.x)
    maps = nodes * width * (filled * data.x.size(1) + mapped * width)
    sums = summed * count_edges(data) * width
    points = nodes * heads * attending if attends(model, settings) else 0
    return float(maps + sums + POINT * points)


def table_work(data: Data, settings: Settings) -> float:
    """Estimates the multiplications of a step on a table: rows by columns and hidden channels, and
    attention to labels."""
    rows, width = int(data.num_nodes), settings.hidden_channels
    rows = min(rows, settings.batch_rows or rows)
    columns = data.x.size(1) * (1 + PERIODIC_WIDTH)
    maps = width * (columns + (settings.num_layers - 1) * width)
    return float(rows * (maps + POINT * settings.heads))


def part_epochs(data: Data, settings: Settings, device: str) -> int:
    """Returns the epochs in which each choice of a table's ``parts`` is tried: all of them, or
    fewer where they take long."""
    if device != "cpu":
        return settings.epochs
    epochs = max(LEAST_EPOCHS, int(SHORT / table_work(data, settings)))
    return min(settings.epochs, epochs)


def default_splits(data: Data, model: str, settings: Settings, device: str) -> int:
    """Returns the number of splits by default: 1 where a training takes long."""
    if model == TABLE_MODEL and part_epochs(data, settings, device) < settings.epochs:
        return 1
    return SPLITS[work_class(data, model, settings, device)]


def share_filled(x: torch.Tensor) -> float:
    values = x if x.layout == torch.strided else x.values()
    return float(values.count_nonzero()) / max(1, x.size(0) * x.size(1))
