r"""``phgcn train`` in several processes: rank 0 makes the run, and says what all of them do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..distributed.agreement import agree
from ..distributed.collectives import Ranks
from ..distributed.partition import divide_graph, make_part
from ..train.compiling import missing_kernels
from ..train.over_ranks import check_plan, train_over_ranks
from .display import show_result
from .progress import TrainingDisplay

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..distributed.partition import Part
    from ..train.run import Run

Opened = tuple["Run", "Data", str]


def train_on_ranks(open_run: Callable[[bool], Opened], ranks: Ranks, division: str, tensorboard: bool, as_json: bool) -> None:
    """Trains a run over several processes.

    Args:
        open_run (Callable): Opens the run: with :obj:`True` makes it if need be, with :obj:`False` takes the one that is there.
            Returns the run, its graph, and what is said before training.
        ranks (Ranks): The processes.
        division (str): How nodes are shared out.
        tensorboard, as_json (bool): As in ``phgcn train``.
    """
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
    with TrainingDisplay(run.plan) as display:
        display.say(f"{heading}\n{said}")
        try:
            display.compile(missing_kernels(run.plan, int(data.num_nodes)))
            result = train_over_ranks(run, data, part, ranks, display.on_epoch, tensorboard)
            display.trial_ended()
        except KeyboardInterrupt:
            display.say(f"the same command with --out {run.folder} --resume continues")
            raise
    show_result(result, run.folder, as_json)


def _part(data: Data, ranks: Ranks, division: str) -> tuple[Part, str]:
    """Returns the part of this rank, and how the graph is divided."""
    if "part" in data:
        about = data.division
        method, cut, part = about["division"], about["cut"], data.part
    else:
        divided = divide_graph(data.edge_index, int(data.num_nodes), ranks.size, division)
        method, cut = divided.method, divided.cut
        part = make_part(data.edge_index, divided.owner, ranks.rank, ranks.size)
    return part, f"{ranks.size} processes, nodes divided by {method}: {100 * cut:.1f} % of the edges are cut"
