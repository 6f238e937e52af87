"""Models on parts of a graph are models on the whole graph: outputs, gradients of parameters,
running statistics of norms.
"""

import pytest
import torch
from model_cases import run_whole, whole_statistics

MODELS = (
    "global-gnn gcn",
    "global-gnn sgc",
    "global-gnn sage",
    "global-gnn gat",
    "global-gnn gin",
    "global-gnn eda",
    "global-gnn none",
    "phgcn exact",
    "phgcn lattice",
    "gat-eda",
    "gat",
    "gcn",
    "mlp",
)


WITH_EDGE_VALUES = {
    "global-gnn gcn": ("edge_weight",),
    "global-gnn sgc": ("edge_weight",),
    "global-gnn gat": ("edge_attr",),
    "global-gnn eda": ("edge_attr", "edge_weight"),
    "phgcn exact": ("edge_attr", "edge_weight"),
    "gat-eda": ("edge_attr", "edge_weight"),
    "gat": ("edge_attr",),
    "gcn": ("edge_weight",),
}


@pytest.mark.parametrize(
    ("name", "values"), [*((name, ()) for name in MODELS), *WITH_EDGE_VALUES.items()]
)
def test_ranks_are_one_process(pool, name, values):
    whole = run_whole(name, values)
    for part in pool.run(
        "model_cases:run_part", 3, name=name, division="contiguous", values=values
    ):
        assert part.keys() == whole.keys()
        for key, value in whole.items():
            torch.testing.assert_close(
                part[key], value, rtol=1e-9, atol=1e-11, msg=lambda text, key=key: f"{key}: {text}"
            )


def test_nodes_divided_by_metis(pool):
    pytest.importorskip("pymetis")
    whole = run_whole("global-gnn gcn")
    for part in pool.run("model_cases:run_part", 2, name="global-gnn gcn", division="metis"):
        torch.testing.assert_close(part["out"], whole["out"])


def test_global_attention_as_a_layer(pool):
    for here, whole in pool.run("model_cases:attention_layer", 2):
        torch.testing.assert_close(here, whole)


def test_statistics_of_heads_are_those_of_all_nodes(pool):
    whole = whole_statistics()
    for found in pool.run("model_cases:statistics", 3):
        for one, other in zip(found, whole, strict=True):
            assert one.keys() == other.keys()
            for key in ("distance", "effective_nodes", "self_share"):
                assert one[key] == pytest.approx(other[key], rel=1e-9)
