"""How often ranks exchange something in global attention on the CPU, and how many bytes: as
``docs/distributed.md`` says.
"""

import pytest

# the agreement, boxes, quartiles digit by digit, the middle
SURVEY = ["gather_equal", "max", *["sum"] * 8, "sum"]
BY_KEY = ["gather_equal", *["exchange"] * 3]  # how much goes where, keys, rows, their sums


@pytest.mark.parametrize(("spread", "near"), [(1.0, []), (10.0, ["gather_equal", "fill"])])
def test_the_collectives(pool, spread, near):
    """Its tables go in one exchange; how many pairs there are near is counted once for each spacing
    that is looked at.
    """
    for forward, backward in pool.run(
        "traffic_cases:attend_by_ladder", 2, spread=spread, count=20_000
    ):
        names, tables = [name for name, _ in forward], ["sum", *BY_KEY, *near]
        assert names[: len(SURVEY)] == SURVEY
        assert names[-len(tables) :] == tables
        rounds, left = divmod(len(names) - len(SURVEY) - len(tables), len(BY_KEY) + 1)
        assert names[len(SURVEY) : -len(tables)] == [*BY_KEY, "sum"] * rounds
        assert left == 0 and 1 <= rounds <= 12
        assert [name for name, _ in backward] == tables


def test_bytes_of_a_ladder_follow_the_vertices_and_not_the_points(pool):
    few, many = (
        pool.run("traffic_cases:attend_by_ladder", 2, spread=1.0, count=count)[0]
        for count in (10_000, 40_000)
    )
    for one, other in zip(few, many, strict=True):
        assert sum(size for _, size in other) < 1.5 * sum(size for _, size in one)
