r"""What is searched, and what is fixed: one space per model, the same on all graphs, and one row per graph, the same for all
models.

A space lists the values of each setting.  A key is a setting of :class:`phgcn.train.Settings` or, where the training has no
such setting, an argument of the model's class.  :data:`RECIPES` are tried first, in this order, on every graph: what the
model's authors used, or what is known to work, so that a small budget is well spent on all alike.  GlobalGNN is searched in two
steps, each with half of the trials and of the time: bodies without a global path, then the best of them with :data:`PATHS`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

OURS = "global-gnn"
SEED = 0
CHOOSING_SPLITS = (0, 1, 2)
"""Trials are judged by the mean validation metric on these splits; the others have no say in the settings."""


# Graphs


class GraphSetup(NamedTuple):
    """What is fixed for a graph, whatever the model.

    Args:
        protocol (str): Whose splits: ``"geom"`` or ``"official"``.
        epochs (int): Epochs at most.
        patience (int): Epochs without a better validation metric before training stops.
        effort (float): The time of a search, in units of the time that is asked for.
    """

    protocol: Literal["geom", "official"]
    epochs: int
    patience: int
    effort: float


# Large ones first, so that processes that work side by side end together.
GRAPHS = {
    "minesweeper": GraphSetup("official", 1000, 200, 3.0),  # deep networks that learn slowly
    "pubmed": GraphSetup("geom", 500, 100, 1.5),
    "actor": GraphSetup("geom", 300, 60, 1.0),
    "squirrel-filtered": GraphSetup("official", 500, 100, 1.0),
    "chameleon-filtered": GraphSetup("official", 500, 100, 1.0),
    "cora": GraphSetup("geom", 500, 100, 1.0),
    "citeseer": GraphSetup("geom", 500, 100, 1.0),
    "wisconsin": GraphSetup("geom", 500, 100, 0.7),
    "texas": GraphSetup("geom", 500, 100, 0.7),
    "cornell": GraphSetup("geom", 500, 100, 0.7),
}

TABLE_ORDER = (
    "cora", "citeseer", "pubmed", "cornell", "texas", "wisconsin", "actor", "chameleon-filtered", "squirrel-filtered",
    "minesweeper",
)  # fmt: skip


# Models

Space = dict[str, tuple[Any, ...]]

_TRAINING: Space = {
    "learning_rate": (0.001, 0.002, 0.005, 0.01, 0.02),
    "weight_decay": (0.0, 5e-5, 5e-4, 1e-3, 5e-3),
    "dropout": (0.0, 0.2, 0.3, 0.5, 0.7, 0.8),
    "normalise": (False, True),
}
_STRONG: Space = {
    "hidden_channels": (64, 128, 256, 512),
    "num_layers": (1, 2, 3, 4, 5, 8, 10, 12),
    "norm": ("none", "batch", "layer"),
    "residual": (True, False),
    "jk": ("last", "sum"),
    "body": ("residual", "polynomial"),
    "input_dropout": (0.0, 0.2, 0.5),
    **_TRAINING,
}

SPACES: dict[str, Space] = {
    OURS: {"local": ("gcn", "sgc", "sage", "gat", "none"), **_STRONG},  # of its body; the global path is one of PATHS
    "strong-gcn": _STRONG,
    "strong-sage": _STRONG,
    "strong-gat": _STRONG,
    "strong-mlp": _STRONG,
    "sgformer": {
        "hidden_channels": (64, 128, 256),
        "num_layers": (1, 2, 3, 4, 6, 8, 10),
        "graph_weight": (0.2, 0.5, 0.8),
        "attention_layers": (1, 2),
        **_TRAINING,
    },
    "polynormer": {
        "hidden_channels": (64, 128, 256, 512),
        "num_layers": (2, 3, 5, 7, 10),
        "global_layers": (1, 2, 3),
        "in_dropout": (0.0, 0.15, 0.5),
        "global_dropout": (0.0, 0.3, 0.5),
        "local_attention": (True, False),
        "local_epochs": (0, 100, 200),
        **_TRAINING,
    },
    "gps": {
        "hidden_channels": (64, 128, 256),
        "num_layers": (1, 2, 3, 5, 8),
        "local": ("gcn", "sage", "gat", "gin"),
        "heads": (1, 4),
        **_TRAINING,
    },
    "linkx": {
        "hidden_channels": (16, 64, 128, 256, 512),
        "num_layers": (1, 2, 3, 4),
        **_TRAINING,
    },
    "h2gcn": {
        "hidden_channels": (16, 64, 128, 256),
        "num_layers": (1, 2),
        **_TRAINING,
    },
}

FIXED: dict[str, dict[str, Any]] = {OURS: {"heads": 4, "embedding_dim": 4, "learn_decay": True}}
"""Settings of a model that are not searched and differ from the defaults."""

# "Classic GNNs are strong baselines" (Luo et al., 2024): GCN on cora, squirrel-filtered, chameleon-filtered and minesweeper;
# the last is for WebKB, where weak signals need a channel for the node itself and weight decay. Quick ones are tried first.
_CITATION = {"num_layers": 3, "hidden_channels": 512, "norm": "none", "residual": False, "dropout": 0.7,
             "learning_rate": 0.001, "weight_decay": 5e-4}  # fmt: skip
_SQUIRREL = {"num_layers": 4, "hidden_channels": 256, "norm": "batch", "residual": True, "dropout": 0.7,
             "learning_rate": 0.01, "weight_decay": 5e-4}  # fmt: skip
_CHAMELEON = {"num_layers": 5, "hidden_channels": 512, "norm": "none", "residual": False, "dropout": 0.2,
              "learning_rate": 0.005, "weight_decay": 1e-3}  # fmt: skip
_MINESWEEPER = {"num_layers": 12, "hidden_channels": 64, "norm": "batch", "residual": True, "dropout": 0.2,
                "learning_rate": 0.01, "weight_decay": 0.0}  # fmt: skip
_WEBKB = {"num_layers": 2, "hidden_channels": 64, "norm": "none", "residual": True, "dropout": 0.5, "learning_rate": 0.01,
          "weight_decay": 5e-3}  # fmt: skip
_WORDS = {"num_layers": 2, "hidden_channels": 64, "norm": "none", "residual": True, "jk": "sum", "input_dropout": 0.5,
          "dropout": 0.5, "learning_rate": 0.01, "weight_decay": 5e-4, "normalise": True}  # fmt: skip
_WORDS_FAR = {"num_layers": 8, "hidden_channels": 64, "norm": "none", "residual": False, "jk": "sum", "input_dropout": 0.5,
              "dropout": 0.5, "learning_rate": 0.01, "weight_decay": 5e-4, "normalise": True}  # fmt: skip
_WORDS_ALONE = {"num_layers": 2, "hidden_channels": 64, "norm": "layer", "residual": False, "jk": "sum", "input_dropout": 0.2,
                "dropout": 0.7, "learning_rate": 0.002, "weight_decay": 1e-3, "normalise": True}  # fmt: skip
_BODIES = [_WEBKB, _MINESWEEPER, _SQUIRREL, _CITATION, _CHAMELEON]
_PLAIN = {"jk": "last", "body": "residual", "input_dropout": 0.0, "normalise": False}

OFF: dict[str, Any] = {
    "global_layers": 0,
    "global_at": "top",
    "global_dropout": 0.0,
    "mass": False,
    "decay": 1.0,
    "local_epochs": 0,
}
"""GlobalGNN without a global path."""
_TOP = {**OFF, "global_layers": 2, "mass": True}
_EACH = {**OFF, "global_layers": 1, "global_at": "each"}
_LATER = {"local_epochs": 800}  # when the local network no longer improves
PATHS: list[dict[str, Any]] = [
    {**_TOP, **_LATER},
    _EACH,
    {**_TOP, "global_layers": 1, "mass": False, **_LATER},
    _TOP,
    {**_EACH, "mass": True, "global_dropout": 0.3},
    {**_TOP, "decay": 3.0, "global_dropout": 0.3, **_LATER},
]
"""The global paths that GlobalGNN's best bodies are tried with, in this order."""


def _recipes(common: dict[str, Any], *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Writes settings of five trials in rows of (layers, hidden channels, dropout, learning rate, weight decay, others)."""
    keys = ("num_layers", "hidden_channels", "dropout", "learning_rate", "weight_decay")
    return [{"normalise": False, **common, **dict(zip(keys, row, strict=False)), **row[len(keys)]} for row in rows]


RECIPES: dict[str, list[dict[str, Any]]] = {
    # The body of each strong baseline, and three for features of words: propagation joined with the node's own, near or far
    # without weights, and none.
    OURS: [
        {**_PLAIN, "local": local, **body}
        for local, body in (
            ("sage", _WEBKB),
            ("gcn", _WORDS),
            ("sgc", _WORDS_FAR),
            ("none", _WORDS_ALONE),
            ("gcn", _MINESWEEPER),
            ("gcn", _SQUIRREL),
            ("gcn", _CHAMELEON),
            ("gcn", _CITATION),
        )
    ],
    **{f"strong-{local}": [_PLAIN | body for body in _BODIES] for local in ("gcn", "sage", "gat", "mlp")},
    # The paper's scripts: GCN weight .8 on citation graphs, .5 on actor; weight decay 5e-4 to 1e-2 on small graphs.
    "sgformer": _recipes(
        {"attention_layers": 1},
        (2, 64, 0.5, 0.01, 5e-3, {"graph_weight": 0.5}),
        (8, 64, 0.5, 0.01, 5e-4, {"graph_weight": 0.8}),
        (10, 64, 0.2, 0.01, 0.0, {"graph_weight": 0.5}),
        (2, 64, 0.5, 0.005, 5e-4, {"graph_weight": 0.8}),
        (3, 256, 0.5, 0.005, 5e-4, {"graph_weight": 0.5}),
    ),
    # The paper: 5 to 10 local layers with GAT, one or two of attention, learning rate .001, local layers first.
    "polynormer": _recipes(
        {"global_layers": 2, "in_dropout": 0.15, "global_dropout": 0.5, "local_attention": True, "local_epochs": 100},
        (2, 64, 0.5, 0.01, 5e-3, {"local_epochs": 0}),
        (7, 64, 0.5, 0.001, 0.0, {}),
        (10, 64, 0.3, 0.001, 0.0, {"global_layers": 3, "in_dropout": 0.0, "global_dropout": 0.0, "local_epochs": 200}),
        (5, 256, 0.7, 0.001, 5e-4, {"local_attention": False}),
        (3, 512, 0.5, 0.001, 5e-4, {"local_attention": False, "global_layers": 1}),
    ),
    # The paper's scripts for single graphs are few: widths and depths as above.
    "gps": _recipes(
        {"local": "gcn", "heads": 4},
        (2, 64, 0.5, 0.01, 5e-3, {"local": "sage"}),
        (3, 64, 0.5, 0.001, 5e-4, {}),
        (8, 64, 0.2, 0.005, 0.0, {}),
        (2, 256, 0.7, 0.001, 5e-4, {}),
        (5, 128, 0.2, 0.001, 5e-4, {"local": "gat"}),
    ),
    # The paper's grid: 16 to 512 channels, 1 to 4 layers, learning rate .01, weight decay 1e-3.
    "linkx": _recipes(
        {},
        (2, 256, 0.5, 0.01, 1e-3, {}),
        (1, 64, 0.5, 0.01, 1e-3, {}),
        (3, 512, 0.2, 0.01, 5e-4, {}),
        (1, 512, 0.7, 0.002, 5e-3, {}),
        (4, 128, 0.5, 0.005, 5e-4, {}),
    ),
    # The paper: 64 channels, one or two rounds, dropout 0 or .5, learning rate .01, weight decay 1e-5 to 5e-4.
    "h2gcn": _recipes(
        {},
        (1, 64, 0.5, 0.01, 5e-4, {}),
        (2, 64, 0.5, 0.01, 5e-3, {}),
        (2, 128, 0.0, 0.01, 0.0, {}),
        (2, 64, 0.5, 0.01, 5e-4, {"normalise": True}),
        (2, 256, 0.7, 0.005, 5e-4, {}),
    ),
}

MODELS = tuple(SPACES)
HEAD_OFF = "head-off"
"""A row of the table: the settings chosen for GlobalGNN, trained without its global path."""
