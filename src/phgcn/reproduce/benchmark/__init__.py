r"""GlobalGNN beside its rivals on ten graphs, behind ``phgcn reproduce benchmark``.

Importing this package registers the rivals, so that :mod:`phgcn.train` and the command line can train them.
"""

from __future__ import annotations

from ...registry import ModelEntry, register

_RIVALS = "phgcn.reproduce.benchmark.rivals"
_BODY = ("hidden_channels", "num_layers", "body", "norm", "jk", "dropout", "input_dropout", "residual")
"""What GlobalGNN takes without its global path."""

for _entry in (
    *(
        ModelEntry(f"strong-{_local}", _title, "phgcn.nn.global_gnn:GlobalGNN", _BODY, {"local": _conv, "global_layers": 0})
        for _local, _conv, _title in (
            ("gcn", "gcn", "strong GCN"),
            ("sage", "sage", "strong SAGE"),
            ("gat", "gat", "strong GAT"),
            ("mlp", "none", "strong MLP"),
        )
    ),
    ModelEntry("sgformer", "SGFormer", f"{_RIVALS}:SGFormer", ("hidden_channels", "num_layers", "dropout")),
    ModelEntry(
        "polynormer",
        "Polynormer",
        f"{_RIVALS}:Polynormer",
        ("hidden_channels", "num_layers", "global_layers", "dropout", "global_dropout"),
        training_settings=("local_epochs",),
    ),
    ModelEntry("gps", "GPS, Performer", f"{_RIVALS}:GPS", ("hidden_channels", "num_layers", "local", "heads", "dropout")),
    ModelEntry("linkx", "LINKX", f"{_RIVALS}:LINKX", ("hidden_channels", "num_layers", "dropout"), takes_num_nodes=True),
    ModelEntry(
        "h2gcn",
        "H2GCN",
        f"{_RIVALS}:H2GCN",
        ("hidden_channels", "num_layers", "dropout"),
        prepare_edges=f"{_RIVALS}:one_and_two_hops",
    ),
):
    register(_entry)
