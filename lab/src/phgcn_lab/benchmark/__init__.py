r"""GlobalGNN beside its rivals on ten graphs, behind ``phgcn reproduce benchmark``.

Importing this package registers the rivals, so that :mod:`phgcn.train` and the command line can
train them."""

from __future__ import annotations

from typing import Any

from phgcn.registry import ModelEntry, register

_RIVALS = "phgcn_lab.benchmark.rivals"
_BODY = (
    *("hidden_channels", "num_layers", "body", "norm", "jk", "dropout", "input_dropout"),
    "residual",
)
"""What GlobalGNN takes without its global path."""
_PLAIN = ("hidden_channels", "num_layers", "dropout")


def _strong(local: str, conv: str) -> ModelEntry:
    arguments = {"local": conv, "global_layers": 0}
    title = f"strong {local.upper()}"
    return ModelEntry(f"strong-{local}", title, "phgcn.nn.global_gnn:GlobalGNN", _BODY, arguments)


def _rival(name: str, title: str, model: str, *also: str, **options: Any) -> ModelEntry:
    return ModelEntry(name, title, f"{_RIVALS}:{model}", (*_PLAIN, *also), **options)


for _entry in (
    _strong("gcn", "gcn"),
    _strong("sage", "sage"),
    _strong("gat", "gat"),
    _strong("mlp", "none"),
    _rival("sgformer", "SGFormer", "SGFormer"),
    _rival(
        *("polynormer", "Polynormer", "Polynormer", "global_layers", "global_dropout"),
        training_settings=("local_epochs",),
    ),
    _rival("gps", "GPS, Performer", "GPS", "local", "heads"),
    _rival("linkx", "LINKX", "LINKX", takes_num_nodes=True),
    _rival("h2gcn", "H2GCN", "H2GCN", prepare_edges=f"{_RIVALS}:one_and_two_hops"),
):
    register(_entry)
