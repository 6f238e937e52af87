"""Exact attention in Triton: in the interpreter, where there is no GPU, and on one; and that its
kernels compile.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from clouds import normal, relative
from exact_case import ExactCase, leaves, make_points

from phgcn import global_attention
from phgcn.runtime.points import Gradients, OutputGradients, Points, Sums

pytest.importorskip("triton")

from phgcn.exact.call import ExactCall
from phgcn.exact.triton import attend as exact
from phgcn.exact.triton.attend import Tile, sum_pairs, sum_pairs_backward
from phgcn.exact.triton.packing import LARGEST_TILE, pack_points
from phgcn.exact.triton.pairs import Pairs, cut_tiles, find_pairs
from phgcn.runtime.triton import INTERPRETED

DEVICE = "cpu" if INTERPRETED else "cuda"
COUNT = 100 if INTERPRETED else 300


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """In the interpreter: small enough that few points make several tiles."""
    for key in exact.TILES if INTERPRETED else ():
        monkeypatch.setitem(exact.TILES, key, Tile(16, 16, 4, 1))


class TestTriton(ExactCase):
    backend = "triton"
    device = DEVICE
    count, every = (40, 3) if INTERPRETED else (COUNT, 1)

    def test_many_channels_are_taken_in_blocks(self, monkeypatch):
        monkeypatch.setattr(exact, "MAX_CHANNELS", {"forward": 32, "backward": 16})
        self.compare_with_matrices(make_points(20, (2, 37, 2)))
        self.compare_with_matrices(make_points(20, (2, 37, 1), across=True, batched=True))

    @pytest.mark.parametrize("across", [False, True])
    def test_many_coordinates_are_not_held(self, across):
        self.compare_with_matrices(make_points(20, (19, 3, 1), across))

    def test_the_largest_numbers_stay_finite(self):
        """Rounded to bfloat16, they would not."""
        values = torch.full((1, 1, 2), 3.397e38, dtype=torch.float32).requires_grad_()
        points = Points(torch.ones(1, 1, 2).requires_grad_(), values)
        out, _, *grads = self.found(points, cotangents=[torch.zeros(1, 1, 2)])
        torch.testing.assert_close(out, values.detach(), rtol=1e-4, atol=0)
        assert not any(grad.any() for grad in grads)


def test_points_in_no_range_are_left_alone():
    points = Points(*(t.detach().to(DEVICE) for t in leaves((40, 1, 2), (40, 1, 3))))
    out, norm, of_positions, of_values = (
        torch.full((40, 1, w), 7.0, dtype=torch.float64, device=DEVICE) for w in (3, 1, 2, 3)
    )
    pairs = Pairs(np.array([(10, 30, 10, 30)]))
    shift, call = points.new_shift(True), ExactCall(True)
    sum_pairs(points, pairs, call, Sums(out, norm[..., 0], shift))
    upstream = OutputGradients(torch.ones_like(out), None, out, norm[..., 0])
    grads = Gradients(of_positions, of_values, None)
    sum_pairs_backward(upstream, shift, points, pairs, call, grads)
    for written in (out, norm, of_positions, of_values):
        assert bool(
            (written[:10] == 7).all() and (written[30:] == 7).all() and (written[10:30] != 7).all()
        )


def test_tiles_cover_the_queries_of_each_graph():
    batch, query_batch = torch.tensor([0, 1, 1, 3, 3, 3]), torch.tensor([1, 1, 1, 2, 3, 0, 3])
    pairs = find_pairs(
        Points(
            torch.zeros(6, 1, 1), torch.zeros(6, 1, 1), torch.zeros(7, 1, 1), batch, query_batch
        ),
        6,
    )
    assert pairs.ranges.tolist() == [[0, 1, 0, 1], [1, 4, 1, 3], [4, 5, 3, 3], [5, 7, 3, 6]]
    assert pairs.query_order.tolist() == [5, 0, 1, 2, 3, 4, 6]
    count, tiles = cut_tiles(pairs, 2, torch.device("cpu"))
    assert count == 5 and tiles.table.tolist() == [
        [0, 1, 0, 1],
        [1, 4, 1, 3],
        [3, 4, 1, 3],
        [4, 5, 3, 3],
        [5, 7, 3, 6],
    ]
    assert cut_tiles(pairs.swapped(), 2, torch.device("cpu"))[1].table.tolist()[-2:] == [
        [3, 6, 5, 7],
        [5, 6, 5, 7],
    ]


def test_one_graph_needs_no_table():
    """So that nothing is copied to the device, which a CUDA graph could not record."""
    pairs = find_pairs(Points(torch.zeros(6, 1, 1), torch.zeros(6, 1, 1), torch.zeros(7, 1, 1)), 42)
    assert cut_tiles(pairs, 4, torch.device("cpu")) == (2, (None, 7, 6, 0))
    assert find_pairs(Points(torch.zeros(6, 1, 1), torch.zeros(6, 1, 1)), 35) is None


def test_packed_points_are_followed_by_a_tile_of_zeros():
    order = torch.tensor([2, 0, 1], device=DEVICE)
    positions, values = normal(3, 2, 4, seed=1).to(DEVICE), normal(3, 2, 5, seed=2).to(DEVICE)
    packed = pack_points(positions, values, order, 16)
    assert packed.points.shape == (2, 4, packed.length) and packed.rows.shape == (
        1,
        2,
        packed.length,
        16,
    )
    assert torch.equal(packed.points[..., :3], positions[order].permute(1, 2, 0))
    assert torch.equal(packed.rows[0, :, :3, :5], values[order].transpose(0, 1))
    assert packed.length >= 3 + LARGEST_TILE
    assert (
        not packed.points[..., 3:].any()
        and not packed.rows[:, :, 3:].any()
        and not packed.flags.any()
    )


def test_no_tile_is_larger_than_what_follows_the_points():
    assert max(max(tile.targets, tile.sources) for tile in exact.TILES.values()) <= LARGEST_TILE


@pytest.mark.parametrize("dtype, error", [(torch.float16, 5e-4), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("across", [False, True])
def test_values_of_half_types_are_summed_in_float32(dtype, error, across):
    """The error is that of rounding the output: many terms of a sum in a half type would make it
    larger.
    """
    inputs = [
        normal(COUNT, 1, 3, seed=1).float(),
        normal(COUNT, 1, 20, seed=2).to(dtype),
        normal(50, 1, 3, seed=3).float(),
    ]
    inputs = [t.to(DEVICE).requires_grad_() for t in (inputs if across else inputs[:2])]
    cotangent = normal(50 if across else COUNT, 1, 20, seed=4).to(dtype)

    def run(inputs, backend):
        queries = {"queries": inputs[2]} if across else {}
        out = global_attention(*inputs[:2], **queries, decay=0.5, method="exact", backend=backend)
        return out, *torch.autograd.grad(out, inputs, cotangent.to(out))

    got = run(inputs, "triton")
    want = run([t.detach().double().cpu().requires_grad_() for t in inputs], "reference")
    assert [t.dtype for t in got[:3]] == [dtype, torch.float32, dtype]
    for a, b in zip(got, want, strict=True):
        assert relative(a.double().cpu(), b) < error


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
@pytest.mark.parametrize("across", [False, True])
def test_a_cuda_graph_repeats_the_bits(across):
    """Nothing is read by the host, and nothing copied to the device."""
    inputs = [
        t.detach().cuda().requires_grad_()
        for t in leaves((300, 2, 4), (300, 2, 8), (90, 2, 4), dtype=torch.float32)
    ]
    inputs = inputs if across else inputs[:2]

    def step():
        queries = {"queries": inputs[2]} if across else {}
        out, mass = global_attention(*inputs[:2], **queries, method="exact", return_mass=True)
        return [
            out.detach(),
            mass.detach(),
            *torch.autograd.grad(out.square().sum() + mass.sum(), inputs),
        ]

    want = step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
@pytest.mark.parametrize("method", ["exact", "lattice", None])
def test_layers_compiled_to_cuda_graphs_equal_eager(method):
    from phgcn.nn import EDAConv, PHGCNConv

    x, edge_index = normal(60, 9, seed=1).float().cuda(), torch.randint(60, (2, 300), device="cuda")
    torch.manual_seed(0)
    conv = (
        EDAConv(9, 4, heads=2) if method is None else PHGCNConv(9, 4, heads=2, method=method)
    ).cuda()
    want = conv(x, edge_index)
    wants = [want, *torch.autograd.grad(want.square().sum(), list(conv.parameters()))]
    torch.compiler.reset()
    compiled = torch.compile(conv, mode="reduce-overhead")
    for _ in range(4):  # warms up, records, then repeats
        torch.compiler.cudagraph_mark_step_begin()
        got = compiled(x, edge_index)
        gots = [got, *torch.autograd.grad(got.square().sum(), list(conv.parameters()))]
        for a, b in zip(gots, wants, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


COMPILE = """
import torch
from offline_triton import compiled_only
from phgcn.exact.call import ExactCall
from phgcn.exact.triton import backward, forward
from phgcn.kernels import KERNELS
from phgcn.runtime.points import OutputGradients, Points

def step(points, kernel="exponential"):
    with compiled_only() as compiled:
        out, norm = points.new_output(True)
        call = ExactCall(True, kernel=KERNELS[kernel])
        forward(points, call)
        backward(OutputGradients(out, norm, out, norm), points.new_shift(True), points, call)
    return dict(compiled), [name for name, _ in compiled]

kernels, names = step(Points(torch.zeros(900, 1, 4), torch.zeros(900, 1, 64)))
assert names == ["_pack", "attend", "_pack", "gradients"], names
assert all("wgmma" in kernels[name].asm["ptx"] for name in ("attend", "gradients"))  # float32 products on tensor cores
batch = torch.zeros(30, dtype=torch.long)
batch[10:] = 1
across = Points(torch.zeros(30, 1, 1), torch.zeros(30, 1, 1), torch.zeros(2, 1, 1), batch, batch[9:11])
backward_names = ["_pack", "_pack", "gradients", "gradients"]
names = step(across)[1]
assert names == ["_pack", "_pack", "nearest", "attend", *backward_names], names
weighted = Points(torch.zeros(30, 1, 2), torch.zeros(30, 1, 3), weights=torch.ones(30, 1))
weighted_names = ["_pack", "_pack", "_pack", "nearest", "attend", *backward_names]
assert step(weighted)[1] == weighted_names
for kernel in ("gaussian", "matern52"):
    assert step(across, kernel)[1] == names
for kind, dtype in ((torch.float64, torch.float64), (torch.float32, torch.bfloat16), (torch.float32, torch.float16)):
    assert len(step(Points(torch.zeros(90, 2, 20, dtype=kind), torch.zeros(90, 2, 5, dtype=dtype)))[1]) == 4
"""  # noqa: E501


def test_kernels_compile_for_an_h200():
    tests = Path(__file__).resolve().parents[1]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join([str(tests), str(tests.parent / "src")])
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
