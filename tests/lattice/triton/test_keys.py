"""Sorted keys and their runs: in Triton's interpreter, with blocks as small as on a GPU, or on one."""

import pytest
import torch

pytest.importorskip("triton")
from phgcn.lattice.triton import runs as runs_of_entries
from phgcn.lattice.triton.keys import SHRINK_AFTER, KeyLayout, KeyWidths
from phgcn.lattice.triton.runs import find_runs
from phgcn.runtime import triton as shared

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHIFT, CLOUDS, LEVELS = 12, 3, 4


def listed(cloud, place, kind):
    """Runs of keys of a cloud and a place, of which every seventh is missing; and the facts."""
    keys = ((cloud << SHIFT) + place).to(kind)
    keys[::7] = torch.iinfo(kind).max
    table = torch.zeros(4, 2, dtype=torch.int64, device=DEVICE)
    table[2, 0] = SHIFT
    facts = torch.full((LEVELS + 2,), -1, dtype=torch.int64, device=DEVICE)
    layout = KeyLayout(table, 1 if kind == torch.int64 else 0)
    runs, run_keys = find_runs(keys.unsqueeze(0).to(DEVICE), layout, facts, LEVELS, CLOUDS)
    return keys, runs, run_keys, facts.tolist()


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("places, piece", [(4000, 32), (40, 32), (1, 2000)])
def test_runs_are_those_of_equal_keys_over_many_blocks(monkeypatch, places, piece, kind):
    monkeypatch.setattr(runs_of_entries, "LONG_RUN", piece)
    monkeypatch.setattr(shared, "INTERPRETED", False)
    random = torch.Generator().manual_seed(0)
    cloud = torch.randint(LEVELS * CLOUDS, (5000,), generator=random)
    cloud[cloud // CLOUDS == 2] = 0  # no cloud of level 2
    keys, runs, run_keys, facts = listed(cloud, torch.randint(places, (5000,), generator=random), kind)
    present = keys != torch.iinfo(kind).max
    want, number, length = torch.unique(keys[present], return_inverse=True, return_counts=True)
    count = len(want)
    assert facts[LEVELS] == count
    assert torch.equal(run_keys[0, :count].cpu(), want)
    assert torch.equal(runs.start[: count + 1].cpu().long().diff(), length)
    assert torch.equal(runs.vertex.cpu().long()[present], number)
    assert (runs.vertex.cpu()[~present] == -1).all()
    assert not runs.start[count + 1 :].any()
    level = (want >> SHIFT) // CLOUDS
    assert facts[: LEVELS + 1] == [int((level < k).sum()) for k in range(LEVELS + 1)]
    assert facts[LEVELS + 1] == int(length.max() > piece)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_entries_without_keys_are_in_no_run(monkeypatch, kind):
    monkeypatch.setattr(shared, "INTERPRETED", False)
    table = torch.zeros(4, 2, dtype=torch.int64, device=DEVICE)
    facts = torch.full((LEVELS + 2,), -1, dtype=torch.int64, device=DEVICE)
    keys = torch.full((1, 3000), torch.iinfo(kind).max, dtype=kind, device=DEVICE)
    runs, _ = find_runs(keys, KeyLayout(table, 1 if kind == torch.int64 else 0), facts, LEVELS, CLOUDS)
    assert (runs.vertex == -1).all()
    assert not facts.any() and not runs.start.any()


def test_keys_have_more_words_at_once_and_fewer_after_a_while():
    widths, few = KeyWidths(), SHRINK_AFTER - 1
    for missing, often, words in ((-1, SHRINK_AFTER, 0), (1, 1, 1), (-1, few, 1), (0, 1, 1), (-1, few, 1)):
        for _ in range(often):
            widths.learn([missing, 0, 0])
        assert widths.words == [words, 1, 1]
    widths.learn([-1, 2, 0])
    assert widths.words == [0, 3, 1]
