r"""When sparse features are cheaper to project than dense ones: the rule of ``phgcn.data.load``.

    python benchmarks/sparse_features.py              # a minute
    python benchmarks/sparse_features.py --quick      # one graph, few rounds, to see that it works

The projection of an epoch is timed: a training step (dropout on the features, x @ W with W of 64 columns, the gradient of W)
and an evaluation (x @ W); beside it the training step without dropout and, for two graphs, W of 256 columns.  Named graphs
come from ``$PHGCN_DATA``; random ones sweep the density and the number of features.  Prints a table; writes
``benchmarks/results/sparse_features.json``.
"""

from __future__ import annotations

import argparse
import functools

import common
import numpy as np
import torch
from rich.table import Table
from scipy import sparse
from torch import Tensor
from torch.nn.functional import dropout

from phgcn.data import GRAPHS
from phgcn.data.load import MAX_SPARSE_DENSITY, MIN_SPARSE_FEATURES, csr_tensor, read_known

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
    """Dropout on the entries; of a sparse tensor only on those that are stored: the others are zero anyway."""
    if x.layout == torch.strided:
        return dropout(x, DROPOUT)
    values = dropout(x.values(), DROPOUT)
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, size=x.shape, check_invariants=False)


def train_step(x: Tensor, weights: Tensor, grad: Tensor, with_dropout: bool) -> None:
    weights.grad = None
    ((dropped(x) if with_dropout else x) @ weights).backward(grad)


def evaluation(x: Tensor, weights: Tensor) -> None:
    with torch.no_grad():
        x @ weights


def measure(matrix: sparse.csr_matrix, rounds: int, channels: int = CHANNELS) -> dict:
    """Milliseconds of the steps for both layouts, and whether both give the same gradient."""
    forms = {"dense": torch.from_numpy(matrix.toarray()), "sparse": csr_tensor(matrix)}
    weights = torch.randn(matrix.shape[1], channels, requires_grad=True)
    grad = torch.randn(matrix.shape[0], channels)
    jobs = {}
    for name, x in forms.items():
        jobs[f"{name} train"] = functools.partial(train_step, x, weights, grad, True)
        jobs[f"{name} train without dropout"] = functools.partial(train_step, x, weights, grad, False)
        jobs[f"{name} evaluate"] = functools.partial(evaluation, x, weights)
    times = {name: 1e3 * time["median"] for name, time in common.interleaved(jobs, rounds).items()}
    gradients = []
    for x in forms.values():
        weights.grad = None
        (x @ weights).backward(grad)
        gradients.append(weights.grad.clone())
    density = matrix.nnz / (matrix.shape[0] * matrix.shape[1])
    return {
        "nodes": matrix.shape[0],
        "features": matrix.shape[1],
        "density": density,
        "channels": channels,
        "milliseconds": times,
        "dense_over_sparse": total(times, "dense") / total(times, "sparse"),
        "dense_over_sparse_without_dropout": times["dense train without dropout"] / times["sparse train without dropout"],
        "gradient_difference": common.relative_error(gradients[1], gradients[0]),
        "rule": "sparse" if density <= MAX_SPARSE_DENSITY and matrix.shape[1] >= MIN_SPARSE_FEATURES else "dense",
    }


def total(times: dict[str, float], form: str) -> float:
    return times[f"{form} train"] + times[f"{form} evaluate"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rounds = 2 if quick else ROUNDS
    torch.manual_seed(common.SEED)
    matrices = {name: functools.partial(read_known, GRAPHS[name]) for name in (GRAPH_NAMES[1:2] if quick else GRAPH_NAMES)}
    rows = {name: measure(sparse.csr_matrix(read().features), rounds) for name, read in matrices.items()}
    for name, channels in WIDE.items() if not quick else ():
        matrix = sparse.csr_matrix(read_known(GRAPHS[name]).features)
        rows[f"{name}, W of {channels} columns"] = measure(matrix, rounds, channels)
    for width in () if quick else WIDTHS:
        for density in DENSITIES:
            rows[f"random, {width} features, {density:g}"] = measure(random_matrix(RANDOM_NODES, width, density), rounds)
    table = Table(
        "features", "nodes", "features", "density", "dense ms", "sparse ms", "dense/sparse", "without dropout", "rule"
    )
    for name, row in rows.items():
        dense, sparse_ms = (total(row["milliseconds"], form) for form in ("dense", "sparse"))
        table.add_row(
            name, str(row["nodes"]), str(row["features"]), f"{row['density']:.3f}", f"{dense:.1f}", f"{sparse_ms:.1f}",
            f"{row['dense_over_sparse']:.1f}", f"{row['dense_over_sparse_without_dropout']:.1f}", row["rule"],
        )  # fmt: skip
    common.wide_console().print(table)
    if not quick:
        rule = {"max_density": MAX_SPARSE_DENSITY, "min_features": MIN_SPARSE_FEATURES}
        path = common.RESULTS / "sparse_features.json"
        common.write_json(path, {"provenance": common.provenance(), "rule": rule, "rows": rows})


if __name__ == "__main__":
    main()
