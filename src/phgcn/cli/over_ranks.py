"""``phgcn train`` in several processes: rank 0 makes the run and prints for all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..distributed.agreement import agree
from ..distributed.collectives import Ranks
from ..distributed.partition import divide_graph, make_part
from ..train.over_ranks import check_plan, train_over_ranks
from .progress import show_training

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..distributed.partition import Part
    from ..train.run import Run

Opened = tuple["Run", "Data", str]


def train_on_ranks(
    open_run: Callable[[bool], Opened],
    ranks: Ranks,
    division: str,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Trains a run over several processes. ``open_run`` returns run, graph and text; with
    :obj:`True` it makes the run if need be, with :obj:`False` it opens the one that is there."""
    opened: list[Opened] = []

    def by(lead: bool) -> list[int]:
        if lead == (ranks.rank == 0):
            opened.append(open_run(lead))
            check_plan(opened[0][0].plan)
        return []

    agree(ranks, lambda: by(True), ())  # rank 0 makes the folder, then the others open it
    agree(ranks, lambda: by(False), ())
    run, data, heading = opened[0]
    part, said = _part(data, ranks, division)
    if ranks.rank > 0:
        train_over_ranks(run, data, part, ranks)
        return
    train = partial(train_over_ranks, run, data, part, ranks, tensorboard=tensorboard)
    show_training(run, data, f"{heading}\n{said}", train, as_json)


def _part(data: Data, ranks: Ranks, division: str) -> tuple[Part, str]:
    if "part" in data:
        about = data.division
        method, cut, part = about["division"], about["cut"], data.part
    else:
        divided = divide_graph(data.edge_index, int(data.num_nodes), ranks.size, division)
        method, cut = divided.method, divided.cut
        part = make_part(data.edge_index, divided.owner, ranks.rank, ranks.size)
    share = f"{100 * cut:.1f} % of the edges are cut"
    return part, f"{ranks.size} processes, nodes divided by {method}: {share}"
