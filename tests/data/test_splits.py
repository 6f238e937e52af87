import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phgcn.data import GRAPHS, PROTOCOLS, known_graph, public_masks, splits
from phgcn.data.splits import MASKED

SHUFFLED = torch.randperm(183, generator=torch.Generator().manual_seed(0))
TEXAS = torch.tensor([0] * 33 + [1] + [2] * 18 + [3] * 101 + [4] * 30)[SHUFFLED]


def sizes(split) -> tuple[int, int, int]:
    return int(split.train.sum()), int(split.val.sum()), int(split.test.sum())


@pytest.mark.parametrize("protocol", ["paper", "balanced"])
def test_every_labelled_node_is_in_exactly_one_set_and_others_in_none(protocol):
    y = TEXAS.clone()
    y[::10] = -1
    for split in splits(y, protocol):
        together = split.train.int() + split.val.int() + split.test.int()
        assert torch.equal(together, (y >= 0).int())


def test_paper_splits_each_class_into_60_20_20():
    split = splits(TEXAS, "paper", count=1)[0]
    counts = [(20, 6, 7), (1, 0, 0), (11, 3, 4), (61, 20, 20), (18, 6, 6)]
    for label, wanted in enumerate(counts):
        parts = (split.train, split.test, split.val)
        assert tuple(int(part[label == TEXAS].sum()) for part in parts) == wanted


@given(size=st.integers(5, 2000))
def test_paper_is_never_more_than_one_node_off(size):
    y = torch.zeros(size, dtype=torch.long)
    train, val, test = sizes(splits(y, "paper", count=1)[0])
    assert abs(train - 0.6 * size) <= 0.5
    assert abs(test - 0.2 * size) < 1
    assert abs(val - 0.2 * size) < 1


def test_balanced_trains_with_as_many_of_every_class_and_so_turns_the_test_set_over_to_the_largest():  # noqa: E501
    split = splits(TEXAS, "balanced", count=1)[0]
    assert sizes(split) == (85, 37, 61)
    assert TEXAS[split.train].bincount().tolist() == [22, 1, 18, 22, 22]
    rest = split.val | split.test
    assert float((TEXAS[rest] == 3).float().mean()) == pytest.approx(0.806, abs=0.001)


def test_balanced_takes_validation_nodes_at_random_from_the_rest():
    y = torch.tensor([0] * 500 + [1] * 500)
    split = splits(y, "balanced", count=1)[0]
    assert 70 <= int((y[split.val] == 0).sum()) <= 130


@pytest.mark.parametrize("protocol", ["paper", "balanced"])
def test_a_split_depends_on_seed_and_number_only(protocol):
    few, many = splits(TEXAS, protocol, count=2, seed=5), splits(TEXAS, protocol, count=6, seed=5)
    for one, other in zip(few, many[:2], strict=True):
        assert torch.equal(one.train, other.train)
        assert torch.equal(one.val, other.val)
        assert torch.equal(one.test, other.test)
    other = splits(TEXAS, protocol, count=2, seed=6)
    assert not torch.equal(few[0].train, other[0].train)
    assert not torch.equal(few[0].train, few[1].train)


def test_splits_do_not_touch_the_global_random_state():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    splits(TEXAS, "paper")
    assert torch.equal(before, torch.get_rng_state())


def test_splits_stay_the_same_over_the_years():
    y = torch.arange(20) % 2
    for protocol, tested in (("paper", [1, 4, 11, 16]), ("balanced", [4, 9, 11, 18])):
        split = splits(y, protocol, count=2, seed=1)[1]
        assert split.test.nonzero().flatten().tolist() == tested


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_every_node_is_as_likely_to_train(seed):
    y = torch.zeros(10, dtype=torch.long)
    often = sum(split.train.int() for split in splits(y, "paper", count=200, seed=seed))
    assert often.sum() == 1200
    assert int(often.min()) >= 60 and int(often.max()) <= 180


def masks(count: int = 3):
    role = torch.stack([(torch.arange(12) + number) % 4 for number in range(count)], dim=1)
    return role == 0, role == 1, role == 2


@pytest.mark.parametrize("protocol", ["geom", "official"])
def test_public_masks_are_used_in_their_order_without_unlabelled_nodes(protocol):
    y = torch.zeros(12, dtype=torch.long)
    y[4] = -1
    found = splits(y, protocol, count=2, masks=masks())
    for number, split in enumerate(found):
        for part, mask in zip((split.train, split.val, split.test), masks(), strict=True):
            expected = mask[:, number].clone()
            expected[4] = False
            assert torch.equal(part, expected)


def test_a_single_public_split_may_have_one_dimension():
    y = torch.zeros(12, dtype=torch.long)
    found = splits(y, "official", count=1, masks=tuple(mask[:, 0] for mask in masks()))
    assert torch.equal(found[0].train, masks()[0][:, 0])


@pytest.mark.parametrize(
    ("protocol", "arguments", "text"),
    [
        ("geom", {}, "masks is None; allowed: the graph's public masks, .* 'geom' needs"),
        ("official", {}, "masks is None; allowed: .* 'official' needs"),
        ("public", {}, "protocol is 'public'; allowed: 'paper', 'geom', 'balanced', 'official'"),
        ("geom", {"masks": masks(), "count": 4}, "count is 4; allowed: 1 to 3"),
        ("geom", {"masks": masks()[:2]}, "masks is a tuple; allowed: three tensors"),
        ("geom", {"masks": [m.long() for m in masks()]}, "torch.int64 .* for train; allowed: bool"),
        (
            "geom",
            {"masks": [m[:5] for m in masks()]},
            r"\(5, 3\) for train; allowed: bool, \(12, K",
        ),
        ("geom", {"masks": [masks()[0]] * 3, "count": 1}, "a node in two of the three sets"),
        ("paper", {"count": 0}, "count is 0; allowed: 1, 2, 3"),
        ("paper", {"count": True}, "count is True; allowed"),
        ("paper", {"seed": -1}, "seed is -1; allowed"),
        (
            "paper",
            {"y": torch.zeros(12) > 0},
            r"y is torch.bool of shape \(12,\); allowed: a tensor",
        ),
        (
            "balanced",
            {"y": torch.zeros(12)},
            "'balanced'; allowed for labels of regression: 'paper'",
        ),
        ("paper", {"y": torch.zeros(3, 4).long()}, "y is torch.int64 of shape"),
        ("paper", {"y": [0, 1]}, "y is list; allowed"),
        ("paper", {"y": torch.tensor([0, 1])}, "2 labelled nodes, which leaves none to val"),
        ("balanced", {"y": torch.tensor([-1, -1])}, "0 labelled nodes, which leaves none to train"),
    ],
)
def test_bad_arguments_are_named(protocol, arguments, text):
    with pytest.raises(ValueError, match=text):
        splits(**{"y": torch.zeros(12, dtype=torch.long), "protocol": protocol, **arguments})


def test_every_known_graph_names_a_protocol_of_masks_or_none():
    masks = [known_graph(name).masks for name in ("texas", "minesweeper", "coauthor-cs")]
    assert masks == ["geom", "official", None]
    assert {graph.masks for graph in GRAPHS.values()} - {None} == set(MASKED) < set(PROTOCOLS)


def test_public_masks_of_a_graph_without_any_are_none():
    from torch_geometric.data import Data

    assert public_masks(Data(x=torch.ones(2, 1))) is None


def test_final_trains_on_what_would_test():
    paper, final = (splits(TEXAS, protocol, count=1)[0] for protocol in ("paper", "final"))
    assert torch.equal(final.train, paper.train | paper.test) and torch.equal(final.val, paper.val)
    assert not final.test.any()
