"""The ladder in Triton: in its interpreter on the CPU, and, where there is one, on a GPU."""

from functools import partial

import pytest
import torch
from clouds import normal, relative
from lattice_case import TOLERANCE, cloud, run

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import Ladder, Separable
from phgcn.lattice.joint.keys import Grid, take_together
from phgcn.lattice.scheme import encode

pytest.importorskip("triton")
from phgcn.lattice.triton import joint, pairs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def compare(scheme, given, dtype=torch.float64, call=global_attention, slack=1.0):
    want = run("cpu", "reference", torch.float64, call, scheme, *given)
    for got, exact in zip(run(DEVICE, "triton", dtype, call, scheme, *given), want, strict=True):
        assert got.dtype == dtype
        assert relative(got, exact) < slack * TOLERANCE[dtype]


@pytest.mark.parametrize("kernel", ["exponential", "gaussian", "matern52"])
@pytest.mark.parametrize(("dim", "asked"), [(1, 0), (2, 5), (3, 0)])
def test_it_agrees_with_the_reference(dim, asked, kernel):
    compare(
        Ladder(pairs=3),
        cloud(dim, asked=asked, spread=3.0),
        call=partial(global_attention, kernel=kernel),
    )


@pytest.mark.parametrize(
    ("dim", "spread", "scheme"),
    [(4, 2.0, Ladder(pairs=2)), (5, 1.0, Ladder()), (2, 0.02, Ladder(pairs=0))],
)
def test_it_agrees_in_more_dimensions_and_without_a_near_field(dim, spread, scheme):
    compare(scheme, cloud(dim, count=9, spread=spread), slack=100 if spread < 1 else 1.0)


@pytest.mark.parametrize("asked", [0, 4])
def test_plain_sums_agree_with_the_reference(asked):
    compare(Ladder(pairs=2), cloud(2, asked=asked, spread=2.0), call=permutohedral_filter)


@pytest.mark.parametrize("asked", [0, 4])
@pytest.mark.parametrize("scheme", [Ladder(pairs=2), Separable()])
def test_weights_agree_with_the_reference(scheme, asked):
    inputs, indices = cloud(2, asked=asked, spread=2.0)
    inputs["weights"] = normal(13, 2, seed=5).abs().float().double()
    inputs["weights"][::3] = 0
    compare(scheme, (inputs, indices))


@pytest.mark.parametrize("channels", [1, 150])
def test_float32_and_any_number_of_channels_agree(channels):
    compare(Ladder(pairs=3), cloud(2, count=9, spread=2.0, channels=channels), torch.float32)


def test_clouds_of_several_widths_and_one_whose_points_coincide_agree():
    inputs, indices = cloud(1, count=24, channels=2)
    spread = torch.tensor([0.001, 0.0, 40.0], dtype=torch.float64)[indices["batch"]].reshape(
        -1, 1, 1
    )
    inputs["positions"] = (inputs["positions"] * spread).float().double()
    compare(Ladder(pairs=3), (inputs, indices), slack=100)


@pytest.mark.parametrize("scheme", [Ladder(pairs=3), Separable()])
def test_a_batch_is_its_graphs_alone_to_the_bit_and_runs_change_none(scheme):
    inputs, indices = cloud(2, count=20, channels=2)
    inputs["positions"][indices["batch"] == 1] *= 20
    together = run(DEVICE, "triton", torch.float32, global_attention, scheme, inputs, indices)
    again = run(DEVICE, "triton", torch.float32, global_attention, scheme, inputs, indices)
    assert all(map(torch.equal, together, again))
    cotangent = normal(*inputs["values"].shape, seed=14).float()
    for graph in range(3):
        mine = indices["batch"] == graph
        leaves = [t[mine].float().to(DEVICE).requires_grad_() for t in inputs.values()]
        out = global_attention(*leaves, decay=1.0, method=scheme, backend="triton")
        alone = [out, *torch.autograd.grad(out, leaves, cotangent[mine].to(DEVICE))]
        assert all(torch.equal(a.cpu(), b[mine]) for a, b in zip(alone, together, strict=True))


def test_half_values_are_summed_in_float32_and_rounded_once():
    inputs, indices = cloud(2, count=9, channels=2)
    positions, batch = inputs["positions"].float().to(DEVICE), indices["batch"].to(DEVICE)
    made, values = [], inputs["values"].half().to(DEVICE)
    for given in (values, values.float()):
        leaves = [positions.clone().requires_grad_(), given.requires_grad_()]
        out = global_attention(
            *leaves, batch=batch, decay=1.0, method=Ladder(pairs=3), backend="triton"
        )
        made.append([out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))])
    assert [t.dtype for t in made[0]] == [torch.float16, torch.float32, torch.float16]
    assert torch.equal(made[0][0], made[1][0].half())


def test_lists_of_near_points_that_are_full_and_slabs_give_the_same_bits(monkeypatch):
    """Lists are summed in blocks that do not depend on when, nor on the targets beside."""
    given, scheme = cloud(1, count=78, channels=2, spread=0.5), Ladder(pairs=40)
    want = run(DEVICE, "triton", torch.float32, global_attention, scheme, *given)
    monkeypatch.setattr(pairs, "LIST", pairs.LOOK + pairs.CANDIDATES)
    monkeypatch.setattr(pairs, "SLAB", 50)
    got = run(DEVICE, "triton", torch.float32, global_attention, scheme, *given)
    assert all(map(torch.equal, got, want))


def test_long_segments_are_summed_in_pieces(monkeypatch):
    monkeypatch.setattr(joint, "PIECE", 3)
    rows = normal(50, 5, seed=1).to(DEVICE)
    start = torch.tensor([0, 0, 1, 30, 30, 50, 50], device=DEVICE)
    index, weight = torch.arange(50, device=DEVICE).flip(0), normal(50, seed=2).to(DEVICE)
    got = joint.sum_rows(rows, index, weight, start)
    weighted = rows.flip(0) * weight.unsqueeze(1)
    want = torch.stack(
        [
            weighted[a:b].sum(dim=0)
            for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
        ]
    )
    torch.testing.assert_close(got, want)


def test_graphs_of_few_pairs_are_left_out():
    points, values = normal(12, 1, 1, seed=1).to(DEVICE), normal(12, 1, 2, seed=2).to(DEVICE)
    batch = torch.tensor([3, 0, 3, 1, 0, 3, 0, 0, 1, 0, 1, 0], device=DEVICE)
    options = (encode(Ladder(pairs=2)), True)
    out, norm, _ = torch.ops.phgcn.filter(
        points, values, None, batch, None, None, *options, 20, "triton", False
    )
    alone = torch.ops.phgcn.filter(
        points[batch == 0],
        values[batch == 0],
        None,
        None,
        None,
        None,
        *options,
        -1,
        "triton",
        False,
    )[0]
    assert torch.equal(out[batch == 0], alone)
    assert not out[batch != 0].any()
    assert not norm[batch != 0].any()


def test_ops_keep_the_rules_of_torch():
    p, f = (normal(4, 2, width, seed=width).to(DEVICE).requires_grad_() for width in (1, 2))
    given = (
        p,
        f,
        None,
        torch.tensor([0, 1, 1, 0], device=DEVICE),
        None,
        None,
        encode(Ladder(pairs=1)),
        True,
        -1,
        "triton",
    )
    torch.library.opcheck(torch.ops.phgcn.filter.default, (*given, True))
    given = (p.detach(), f.detach(), *given[2:])
    out, norm, ticket = torch.ops.phgcn.filter(*given, True)
    given = torch.ones_like(out), torch.ones_like(norm), out, norm, ticket, *given
    torch.library.opcheck(torch.ops.phgcn.filter_backward.default, given)


@pytest.mark.parametrize(("count", "asked"), [(0, None), (1, None), (3, 0), (0, 2), (1, 1)])
def test_few_points(count, asked):
    inputs = {"positions": normal(count, 1, 2, seed=1), "values": normal(count, 1, 2, seed=2)}
    if asked is not None:
        inputs["queries"] = normal(asked, 1, 2, seed=3)
    out, *grads = run(DEVICE, "triton", torch.float64, global_attention, Ladder(), inputs, {})
    if count == 1:
        torch.testing.assert_close(out, inputs["values"])
    else:
        assert out.shape == (count if asked is None else asked, 1, 2)
        assert not out.any()
        assert not any(g.any() for g in grads)


def test_keys_say_cloud_and_coordinates():
    base, size = torch.tensor([[-5, 3], [0, 0]]).numpy(), torch.tensor([[9, 100], [2, 7]]).numpy()
    grid = Grid(base, size, torch.device("cpu"))
    x, cloud_of = torch.tensor([[-5, 3], [3, 102], [0, 5], [1, 6]]), torch.tensor([0, 0, 1, 1])
    key = grid.pack(x, cloud_of)
    assert key.diff().min() > 0
    assert torch.equal(grid.cloud(key), cloud_of)
    assert torch.equal(grid.unpack(key, cloud_of), x)
    moved = key[:1] + grid.offsets([[2, -1]])[0, :1]
    assert torch.equal(grid.unpack(moved + 1, cloud_of[:1]), x[:1] + torch.tensor([2, 0]))


def test_clouds_go_together_as_far_as_63_bits_hold_their_keys():
    assert list(take_together([62, 62, 5, 63, 1])) == [
        range(2),
        range(2, 3),
        range(3, 4),
        range(4, 5),
    ]
    with pytest.raises(ValueError, match=r"lattice vertices in their range; allowed: up to 9\.2e"):
        points, values = normal(5, 4, seed=1).to(DEVICE) * 4e6, normal(5, 1, seed=2).to(DEVICE)
        permutohedral_filter(points, values, method=Separable(), backend="triton")
