"""Trainings over ranks, as ``phgcn train`` makes them under torchrun."""

import os
import signal
from pathlib import Path
from typing import Any

import torch

from phgcn.distributed import Ranks
from phgcn.distributed.agreement import agree
from phgcn.distributed.part_files import read_for_process
from phgcn.distributed.partition import divide_graph, make_part
from phgcn.train import Plan, Run, find
from phgcn.train.features import fit_features
from phgcn.train.over_ranks import train_over_ranks
from phgcn.train.settings import Settings


def make_plan(source: str, model: str, epochs: int, **settings: Any) -> Plan:
    return Plan(
        source, model, splits=1, settings=Settings(epochs=epochs, patience=epochs, **settings)
    )


def fit(group: Any, scaling: str, sparse: bool) -> dict[str, torch.Tensor]:
    """What is fitted to the training nodes of a graph with gaps, constants and categories; with a
    group, to those of all ranks, of which rank 1 has no training nodes and rank 3 no nodes."""
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    x[:, 1], x[:, 3] = 0.1, (x[:, 3] > 0).float()
    x[25, 4] = torch.nan if not sparse else 9.0  # in no training node
    x[x[:, 0] > 1, 0] = torch.nan if not sparse else 0.0
    rows, train = torch.arange(30), torch.tensor([0, 2, 3, 7, 21, 22, 23])
    ranks = None
    if group is not None:
        ranks = Ranks(group)
        rows = rows[[slice(0, 10), slice(10, 20), slice(20, 30), slice(30, 30)][ranks.rank]]
        train = train[torch.isin(train, rows)] - 10 * ranks.rank
    here = x[rows].to_sparse_csr() if sparse else x[rows]
    indicators = torch.tensor([False, False, False, True, False])
    return fit_features(here, train, scaling, indicators, ranks).tensors()


def train(
    group: Any,
    folder: str,
    plan: Plan,
    division: str = "contiguous",
    parts: str | None = None,
    interrupt: int | None = None,
) -> str:
    """Trains the run in a folder, or a new one; ``interrupt`` sends rank 0 a Ctrl-C after that
    epoch.
    """
    ranks = Ranks(group)
    if parts is None:
        data = find(plan.source)[1]
        owner = divide_graph(data.edge_index, data.num_nodes, ranks.size, division).owner
        part = make_part(data.edge_index, owner, ranks.rank, ranks.size)
    else:
        data = read_for_process(parts, ranks.rank, ranks.size)
        part = data.part

    def create() -> list[int]:
        if ranks.rank == 0 and not (Path(folder) / "run.json").is_file():
            Run.create(folder, plan, data)
        return []

    def on_epoch(progress: Any) -> None:
        if progress.epoch == interrupt:
            os.kill(os.getpid(), signal.SIGINT)

    agree(ranks, create, ())
    try:
        train_over_ranks(Run.open(folder), data, part, ranks, on_epoch)
    except KeyboardInterrupt:
        return "interrupted"
    return "done"
