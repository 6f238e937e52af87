r"""When sparse features are cheaper to project than dense ones: the rule of ``phgcn.data.load``.

The projection of an epoch is timed: a training step (dropout on the features, x @ W with W of 64
columns, the gradient of W) and an evaluation (x @ W); beside it the training step without dropout
and, for two graphs, W of 256 columns.  Named graphs come from ``$PHGCN_DATA``; random ones sweep
the density and the number of features.
"""

from __future__ import annotations

import argparse
import functools

import common
import numpy as np
import torch
from registry import measurement
from scipy import sparse
from torch import Tensor
from torch.nn.functional import dropout

from phgcn.data import GRAPHS
from phgcn.data.load import MAX_SPARSE_DENSITY, MIN_SPARSE_FEATURES, csr_tensor, read_known
from phgcn_lab.markdown import table

GRAPH_NAMES = ("citeseer", "cora", "pubmed", "texas", "actor", "squirrel")
DENSITIES = (0.01, 0.03, 0.1, 0.12, 0.15, 0.2, 0.3)
WIDTHS = (8, 64, 512)
RANDOM_NODES = 10_000
CHANNELS = 64
WIDE = {"citeseer": 256, "pubmed": 256}
DROPOUT = 0.5
ROUNDS = 9


def random_matrix(nodes: int, width: int, density: float) -> sparse.csr_matrix:
    """Features of which a share is not zero, at random places."""
    random = np.random.default_rng(common.SEED)
    dense = random.random((nodes, width), dtype=np.float32)
    return sparse.csr_matrix(np.where(dense < density, dense, 0))


def dropped(x: Tensor) -> Tensor:
    if x.layout == torch.strided:
        return dropout(x, DROPOUT)
    values = dropout(x.values(), DROPOUT)
    return torch.sparse_csr_tensor(
        x.crow_indices(), x.col_indices(), values, size=x.shape, check_invariants=False
    )


def train_step(x: Tensor, weights: Tensor, grad: Tensor, with_dropout: bool) -> None:
    weights.grad = None
    ((dropped(x) if with_dropout else x) @ weights).backward(grad)


def evaluation(x: Tensor, weights: Tensor) -> None:
    with torch.no_grad():
        x @ weights


def measure(matrix: sparse.csr_matrix, rounds: int, channels: int = CHANNELS) -> dict:
    """Milliseconds of the steps for both layouts, and whether both give the same gradient."""
    forms = {"dense": torch.from_numpy(matrix.toarray()), "sparse": csr_tensor(matrix)}
    nodes, features = matrix.shape
    weights = torch.randn(features, channels, requires_grad=True)
    grad = torch.randn(nodes, channels)
    jobs, gradients = {}, []
    for name, x in forms.items():
        step = functools.partial(train_step, x, weights, grad)
        jobs[f"{name} train"] = functools.partial(step, True)
        jobs[f"{name} train without dropout"] = functools.partial(step, False)
        jobs[f"{name} evaluate"] = functools.partial(evaluation, x, weights)
    times = {name: 1e3 * time["median"] for name, time in common.interleaved(jobs, rounds).items()}
    for x in forms.values():
        train_step(x, weights, grad, False)
        gradients.append(weights.grad.clone())
    plain = [times[f"{name} train without dropout"] for name in ("dense", "sparse")]
    density = matrix.nnz / (nodes * features)
    is_sparse = density <= MAX_SPARSE_DENSITY and features >= MIN_SPARSE_FEATURES
    return {
        "nodes": nodes,
        "features": features,
        "density": density,
        "channels": channels,
        "milliseconds": times,
        "dense_over_sparse": total(times, "dense") / total(times, "sparse"),
        "dense_over_sparse_without_dropout": plain[0] / plain[1],
        "gradient_difference": common.relative_error(gradients[1], gradients[0]),
        "rule": "sparse" if is_sparse else "dense",
    }


def total(times: dict[str, float], form: str) -> float:
    return times[f"{form} train"] + times[f"{form} evaluate"]


def rows_of(measured: dict) -> list[str]:
    rows = []
    for graph, r in measured["rows"].items():
        if graph.startswith("random"):
            continue
        keys = ("dense_over_sparse", "dense_over_sparse_without_dropout")
        about = [graph, f"{100 * r['density']:.1f} %"]
        rows.append([*about, *(f"{r[key]:.1f}" for key in keys)])
    return table(["graph", "not zero", "dense / sparse", "the same without dropout"], rows)


@measurement(tables=rows_of, quick="one graph, few rounds")
def sparse_features(options: argparse.Namespace) -> dict:
    """Times of projecting sparse and dense features: the rule that phgcn.data.load goes by."""
    rounds = 2 if options.quick else ROUNDS
    torch.manual_seed(common.SEED)
    names = GRAPH_NAMES[1:2] if options.quick else GRAPH_NAMES
    features = {name: sparse.csr_matrix(read_known(GRAPHS[name]).features) for name in names}
    rows = {name: measure(matrix, rounds) for name, matrix in features.items()}
    if not options.quick:
        for name, channels in WIDE.items():
            rows[f"{name}, W of {channels} columns"] = measure(features[name], rounds, channels)
        for width in WIDTHS:
            for density in DENSITIES:
                matrix = random_matrix(RANDOM_NODES, width, density)
                rows[f"random, {width} features, {density:g}"] = measure(matrix, rounds)
    rule = {"max_density": MAX_SPARSE_DENSITY, "min_features": MIN_SPARSE_FEATURES}
    return {"rule": rule, "rows": rows}
