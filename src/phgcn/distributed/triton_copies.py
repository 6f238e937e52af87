r"""Points in the very same place on GPUs, on one rank or on several.

Each rank sends a hash of every place that its points lie in to the rank that the hash belongs to, which tells whether others
have it too.  Only of places that several ranks have, usually none, are positions and rows exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..lattice.triton.clouds import Clouds
from ..lattice.triton.copies import Copies, find_copies
from ..lattice.triton.rows import Rows
from .collectives import Ranks
from .hashes import Homes, hash_columns


@dataclass
class RankCopies(Copies):
    """Points of this rank in the order of their places, and which of these other ranks have too.

    Args:
        shared (torch.Tensor): The places of this rank that others have, int64, (S,).
        number (torch.Tensor): The number of each among those of all ranks, int64, (S,).
        count (int): How many such places there are.
        ranks (Ranks): The processes.
    """

    shared: Tensor
    number: Tensor
    count: int
    ranks: Ranks

    def sum_places(self, rows: Rows, like: Tensor) -> Rows:
        """Sums the rows of the points of all ranks in each place."""
        sums = super().sum_places(rows, like)
        if self.count == 0:
            return sums
        here = torch.cat([sums.main[self.shared], sums.extra[self.shared]], dim=1)
        table = here.new_zeros(self.count, here.size(1))
        table[self.number] = here
        total = self.ranks.sum_in_place(table)[self.number]
        sums.main[self.shared], sums.extra[self.shared] = total[:, : sums.channels], total[:, sums.channels :]
        return sums


def find_rank_copies(clouds: Clouds, in_lattice: Tensor, ranks: Ranks) -> RankCopies | None:
    """Finds points in the same place; :obj:`None` if no rank has such, nor two ranks together.

    Args:
        clouds (Clouds): The points of this rank.
        in_lattice (torch.Tensor): Which of these are in a lattice, bool, (P,); copies of others do not matter.
        ranks (Ranks): The processes.
    """
    here = find_copies(clouds)
    first = here.order[here.start[:-1].to(torch.int64)].to(torch.int64)  # of each place
    places = in_lattice[first].nonzero().squeeze(1)
    position, cloud = clouds.position[first[places]].double() + 0.0, clouds.cloud[first[places]]  # 0 and -0 are one place
    codes = hash_columns([cloud.to(torch.int64), *position.view(torch.int64).unbind(1)])
    homes = Homes(codes, ranks)
    arrived = homes.send(codes)
    _, place, numbers = torch.unique(arrived, return_inverse=True, return_counts=True)
    on_other_ranks = homes.answer((numbers > 1)[place].to(torch.uint8)) > 0
    several = (here.start.diff()[places] > 1).any()
    found = ranks.max(torch.stack([several, on_other_ranks.any()]).to(torch.int64)).tolist()
    if not any(found):
        return None
    shared = places[on_other_ranks]
    if not found[1]:
        return RankCopies(here.order, here.start, here.place, shared, shared, 0, ranks)
    # A hash may be that of two places: these are told apart by their coordinates.
    rows = torch.cat([cloud.double().unsqueeze(1), position], dim=1)[on_other_ranks]
    parts = ranks.gather(rows)
    every, number = torch.unique(torch.cat(parts), dim=0, return_inverse=True)
    begin = sum(len(part) for part in parts[: ranks.rank])
    return RankCopies(here.order, here.start, here.place, shared, number[begin : begin + len(shared)], len(every), ranks)
