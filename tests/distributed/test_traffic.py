"""How often ranks exchange something in global attention on the CPU, and how many bytes: as ``docs/distributed.md`` says."""

import pytest

COUNT = 100_000
AGREE, PLACE = ["gather_equal", "sum", "fill"], ["gather_equal", "fill", "exchange", "gather_equal"]
FORWARD = {
    "dense": [*AGREE, *PLACE, "sum", "fill", "max"],
    "sparse": [*AGREE, "gather_equal", "fill", *PLACE, "sum", "fill", "fill", "max"],  # counts in cells, and the near field
}
BACKWARD = {
    "dense": ["sum", "fill"],
    "sparse": ["sum", "fill", "sum", "fill", "fill"],  # the table of the forward pass is too large to be kept
}


@pytest.mark.parametrize(("cloud", "spread"), [("dense", 1.0), ("sparse", 10.0)])
@pytest.mark.parametrize("size", [2, 3])
def test_the_collectives_and_their_bytes(pool, cloud, spread, size):
    hashes = 8 * COUNT / size
    for forward, backward, formula in pool.run("traffic_cases:attend_watched", size, spread=spread, count=COUNT):
        assert [name for name, _ in forward] == FORWARD[cloud]
        assert [name for name, _ in backward] == BACKWARD[cloud]
        sent, returned = (sum(count for _, count in calls) for calls in (forward, backward))
        agreement = sum(count for name, count in forward if name == "gather_equal")
        cells = forward[4][1] if cloud == "sparse" else 0
        assert 0.97 * formula["forward"] < sent - agreement - cells < 1.03 * formula["forward"] + hashes
        assert 0.97 * formula["backward"] < returned < 1.03 * formula["backward"]
