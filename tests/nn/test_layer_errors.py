"""Bad input and bad settings of every layer and model are refused by name."""

import inspect

import pytest
import torch
from layer_cases import CASES, graph

from phgcn.nn import (
    GAT,
    GATEDA,
    GCN,
    MLP,
    PHGCN,
    EDAConv,
    GlobalAttention,
    GlobalBlock,
    GlobalGNN,
    LabelAttention,
    PHGCNConv,
    TableNetwork,
)

EDGE = torch.ones(2, 1, dtype=torch.int64)
WRONG = [
    ("x", lambda x: x.index_fill(0, EDGE[0] * 3, torch.nan), r"\[3, 0\] is nan; allowed: finite"),
    ("x", lambda x: x.index_fill(0, EDGE[0] * 3, torch.inf), r"\[3, 0\] is inf; allowed: finite"),
    ("x", lambda x: x.float(), "is torch.float32; allowed: torch.float64, as the layer's weights"),
    ("x", lambda x: x.long(), "is torch.int64; allowed: torch.float64, as the layer's weights"),
    ("x", lambda x: x[:, :5], r"has shape \(20, 5\); allowed: \(N, 6\)"),
    ("x", lambda x: x[0], r"has shape \(6,\); allowed: \(N, 6\)"),
    ("x", lambda x: x.tolist(), "is a list; allowed: a tensor"),
    ("edge_index", lambda e: torch.cat([e, 20 * EDGE], 1), r"\[0, 60\] is 20; allowed: 0 to 19"),
    ("edge_index", lambda e: torch.cat([e, -EDGE], 1), r"\[0, 60\] is -1; allowed: 0 to 19"),
    ("edge_index", lambda e: e.double(), "is torch.float64; allowed: int64, int32"),
    ("edge_index", lambda e: e.t(), r"has shape \(60, 2\)"),
    ("edge_index", lambda e: e.tolist(), "is a list; allowed: a tensor"),
    ("edge_index", lambda e: torch.eye(7).to_sparse_csr(), r"is a sparse matrix of shape \(7, 7\)"),
    ("batch", lambda _: torch.zeros(19).long(), r"has shape \(19,\); allowed: \(20,\)"),
    ("batch", lambda _: torch.zeros(20), "is torch.float32; allowed: int64, int32"),
    ("batch", lambda _: torch.arange(20) - 1, r"\[0\] is -1; allowed: non-negative"),
    ("labelled", lambda m: m.long(), r"is torch.int64 of shape \(20,\); allowed: a mask"),
    ("keys", lambda m: m[:3], r"is torch.bool of shape \(3,\); allowed: a mask"),
    ("y", lambda y: y + 1, r"has classes \[1, 2, 3\]; allowed: 0 to 2"),
    ("y", lambda y: y[:4], r"has shape \(4,\); allowed: \(20,\) or \(20, 3\)"),
    ("y", lambda y: y.double(), "has 1 columns; allowed: 3, as out_channels"),
]
CHECKED = (
    "EDAConv",
    "PHGCNConv",
    "GlobalAttention",
    "GlobalBlock",
    "LabelAttention",
    "GlobalGNN, gcn",
)
WRONG_CALLS = [
    pytest.param(CASES[name], *wrong, id=f"{name}: {wrong[0]} {wrong[2]}")
    for name in (*CHECKED, "TableNetwork", "PHGCN")
    for wrong in WRONG
    if wrong[0] in ("x", *CASES[name].takes) and (name != "EDAConv" or wrong[0] != "batch")
]


@pytest.mark.parametrize("case, name, spoil, message", WRONG_CALLS)
def test_bad_input_is_refused_by_name(case, name, spoil, message):
    layer, data = case.make(), graph()
    given = {"x": data.x, **case.given(data)}
    given[name] = spoil(given[name])
    named = "(x|query)" if name == "x" else name
    with pytest.raises(ValueError, match=f"^{named} ?{message}"):
        layer(given.pop("x"), **given)


POSITIVE, PROBABILITY = "a positive integer", "0 to 1"
CONVS, MODELS = (EDAConv, PHGCNConv), (GlobalGNN, PHGCN, GATEDA, GAT, GCN, MLP)
LAYERS = (*CONVS, GlobalAttention, LabelAttention, GlobalBlock)
WRONG_SETTINGS = [
    ("in_channels", 0, f"{POSITIVE}, or -1", (*CONVS, GlobalAttention, TableNetwork, *MODELS)),
    ("channels", 0, POSITIVE, (LabelAttention, GlobalBlock)),
    ("channels", 6, "a multiple of heads, which is 4", (GlobalBlock,)),
    ("out_channels", -1, POSITIVE, (*LAYERS[:4], TableNetwork, *MODELS)),
    ("hidden_channels", 0, POSITIVE, (TableNetwork, *MODELS)),
    ("num_layers", 0, POSITIVE, (TableNetwork, *MODELS)),
    ("heads", 0, POSITIVE, (*LAYERS, TableNetwork, *MODELS)),
    ("embedding_dim", 1.5, POSITIVE, (*LAYERS, TableNetwork)),
    ("dropout", 1.5, PROBABILITY, (*CONVS, GlobalAttention, GlobalBlock, TableNetwork, *MODELS)),
    ("attention_dropout", 2, PROBABILITY, MODELS[1:]),
    ("global_dropout", 2, PROBABILITY, (GlobalGNN,)),
    ("input_dropout", -0.1, PROBABILITY, (GlobalGNN,)),
    ("decay", -1.0, "a positive number", LAYERS[2:]),
    ("decay_local", 0, "a positive number", CONVS),
    ("decay_global", -1, "a positive number", (PHGCNConv,)),
    ("key_share", 1.0, "numbers between 0 and 1", (LabelAttention,)),
    ("method", "fast", "'auto', 'exact'", LAYERS[1:]),
    ("backend", "gpu", "'auto'", LAYERS),
    ("flow", "up", "'source_to_target', 'target_to_source'", CONVS),
    ("fill_value", "most", "'mean', 'add', .*, a number, or a tensor", CONVS),
    ("kernel", "box", "'exponential', 'gaussian'", LAYERS[2:]),
    ("global_layers", -1, "a non-negative integer", (GlobalGNN,)),
    ("local", "gatv2", "'gcn', .*, or a layer's class", (GlobalGNN,)),
    ("body", "plain", "'residual', 'polynomial'", (GlobalGNN,)),
    ("norm", "none", "'batch', 'layer', None", (GlobalGNN,)),
    ("jk", "max", "'last', 'sum', 'cat'", (GlobalGNN,)),
    ("global_at", "bottom", "'top', 'each', 'input'", (GlobalGNN,)),
    ("edge_dim", 3, "for local 'gcn': None; for 'gat' and 'eda': a size", (GlobalGNN,)),
    ("edge_dim", 3, "for (GCN|MLP): None, as it has no use for them", (GCN, MLP)),
    ("parts", "all", "'network', 'labels', 'both'", (TableNetwork,)),
    ("residual", True, "for MLP: False", (MLP,)),
]


@pytest.mark.parametrize("name, value, allowed, layers", WRONG_SETTINGS)
def test_bad_settings_are_refused_by_name(name, value, allowed, layers):
    sizes = {"in_channels": 5, "channels": 8, "hidden_channels": 8, "out_channels": 4}
    for layer in layers:
        needed = inspect.signature(layer).parameters
        arguments = {key: size for key, size in sizes.items() if key in needed}
        if layer is GlobalBlock:
            del arguments["in_channels"]
        message = rf"^{name} is {value!r}; allowed:? {allowed}"
        with pytest.raises(ValueError, match=message):
            layer(**{**arguments, name: value})
