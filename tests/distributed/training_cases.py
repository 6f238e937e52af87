"""Trainings over ranks, as ``phgcn train`` makes them under torchrun."""

import os
import signal
from pathlib import Path
from typing import Any

from phgcn.distributed import Ranks
from phgcn.distributed.agreement import agree
from phgcn.distributed.part_files import read_for_process
from phgcn.distributed.partition import divide_graph, make_part
from phgcn.train import Plan, Run, find
from phgcn.train.over_ranks import train_over_ranks
from phgcn.train.settings import Settings


def make_plan(source: str, model: str, epochs: int, **settings: Any) -> Plan:
    return Plan(source, model, splits=1, settings=Settings(epochs=epochs, patience=epochs, **settings))


def train(
    group: Any, folder: str, plan: Plan, division: str = "contiguous", parts: str | None = None, interrupt: int | None = None
) -> str:
    """Trains the run in a folder, or a new one; ``interrupt`` sends rank 0 a Ctrl-C after that epoch."""
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
