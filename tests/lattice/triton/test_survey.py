"""Bounds, means and flags of clouds: in Triton's interpreter, with blocks as small as on a GPU, or on one."""

import pytest
import torch
from clouds import normal

from phgcn.lattice import MultiScale
from phgcn.runtime.graphs import find_graphs
from phgcn.runtime.points import Points

pytest.importorskip("triton")
from phgcn.lattice.triton.clouds import find_clouds
from phgcn.lattice.triton.constants import constants
from phgcn.lattice.triton.copies import flag_copies
from phgcn.lattice.triton.plan import COINCIDENT, COPIES, FAR, NOT_FINITE
from phgcn.lattice.triton.survey import survey
from phgcn.runtime import triton as shared

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def surveyed(positions, values, batch, limit=100.0):
    graphs = find_graphs(len(positions), batch, None, None)
    clouds = find_clouds(Points(positions, values), graphs, [True] * len(graphs.keys))
    made = constants(MultiScale(0.5, (1, 1)), 2, positions.dtype, positions.device)
    found = survey(clouds, values, made, [1, 1, 1], 0, limit)
    return clouds, found, found.facts.tolist()[len(made.grids) :]


@pytest.mark.parametrize("graphs", [1, 3])
def test_means_and_clouds_are_those_of_each_graph_and_head(monkeypatch, graphs):
    monkeypatch.setattr(shared, "INTERPRETED", False)
    positions, values = normal(700, 2, 2, seed=1).to(DEVICE), normal(700, 2, 3, seed=2).to(DEVICE)
    batch = torch.arange(700, device=DEVICE) * 7 % 5 % graphs
    clouds, found, flags = surveyed(positions, values, batch if graphs > 1 else None)
    for graph in range(graphs):
        mean = positions[batch == graph].mean(dim=0)
        torch.testing.assert_close(found.mean.view(graphs, 2, 2)[graph], mean, rtol=1e-12, atol=1e-12)
    assert torch.equal(clouds.cloud.view(700, 2), (batch.unsqueeze(1) * 2 + torch.arange(2, device=DEVICE)).int())
    assert flags[: COINCIDENT + 1] == [0] * 3
    assert (found.kappa == 0).all()


def test_what_is_wrong_or_coincides_is_seen_wherever_it_is(monkeypatch):
    monkeypatch.setattr(shared, "INTERPRETED", False)
    for row in (0, 300, 699):
        positions, values = normal(700, 1, 2, seed=1).to(DEVICE), normal(700, 1, 3, seed=2).to(DEVICE)
        positions[row, 0, 1] = 101.0
        assert surveyed(positions, values, None)[2][FAR] == 1
        positions[row, 0, 1] = torch.nan
        assert surveyed(positions, values, None)[2][FAR] == 1
        positions[row, 0, 1], values[row, 0, 2] = 0.0, -torch.inf
        assert surveyed(positions, values, None)[2][: COINCIDENT + 1] == [0, 1, 0]
    same = torch.ones(700, 1, 2, dtype=torch.float64, device=DEVICE)
    _, found, flags = surveyed(same, torch.zeros(700, 1, 3, dtype=torch.float64, device=DEVICE), None)
    assert (flags[NOT_FINITE], flags[COINCIDENT], found.kappa.tolist()) == (0, 1, [-1])


@pytest.mark.parametrize("copies, flag", [(0, 0), (1, 1), (7, 1)])
def test_copies_are_flagged_only_where_there_are_some(monkeypatch, copies, flag):
    monkeypatch.setattr(shared, "INTERPRETED", False)
    positions, values = normal(300, 2, 2, seed=1).to(DEVICE), normal(300, 2, 1, seed=2).to(DEVICE)
    positions[100 : 100 + copies, 1] = positions[50, 1]
    positions[200:, 1] = positions[200:, 0]  # the same places, in another cloud
    clouds, found, _ = surveyed(positions, values, None)
    place = len(constants(MultiScale(0.5, (1, 1)), 2, positions.dtype, positions.device).grids) + COPIES
    flag_copies(clouds, found.facts[place : place + 1])
    assert found.facts[place] == flag
