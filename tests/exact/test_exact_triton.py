"""Exact attention in Triton: in the interpreter, where there is no GPU, and on one; and that its kernels compile."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from clouds import normal, relative

from phgcn import global_attention
from phgcn.exact.reference import exact_sum
from phgcn.lattice.scheme import named_scheme

pytest.importorskip("triton")

from phgcn.exact.triton import attend as exact
from phgcn.exact.triton.attend import Pairs, Tile, all_pairs, all_pairs_backward

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Small enough that few points make several tiles."""
    for key in exact.TILES:
        monkeypatch.setitem(exact.TILES, key, Tile(16, 16, 4, 1))


def wanted(positions, values, queries, ranges, orders, normalise):
    """The sums of each graph and head by the reference, differentiable; 0 for queries in no range."""
    asked = positions if queries is None else queries
    rows = torch.cat([values, torch.ones_like(values[..., :1])], dim=-1)
    out = rows.new_zeros(len(asked), *rows.shape[1:])
    for begin, end, first, last in ranges:
        of_queries = torch.arange(len(asked))[begin:end] if orders[0] is None else orders[0][begin:end]
        of_keys = torch.arange(len(positions))[first:last] if orders[1] is None else orders[1][first:last]
        for head in range(values.size(1)):
            given = asked[of_queries, head], positions[of_keys, head], rows[of_keys, head]
            out = out.index_put((of_queries, torch.tensor(head)), exact_sum(*given, normalise and queries is not None))
    norm = out[..., -1:]
    return out[..., :-1] / torch.where(norm == 0, 1.0, norm) if normalise else out[..., :-1]


def found(positions, values, queries, pairs, normalise, cotangent):
    """The output and the gradients of all inputs; 7 where nothing was written."""
    asked = positions if queries is None else queries
    given = [None if t is None else t.to(DEVICE) for t in (positions, values, queries)]
    on_device = Pairs(pairs.ranges, *(None if t is None else t.to(DEVICE) for t in (pairs.query_order, pairs.key_order)))
    out = torch.full((len(asked), *values.shape[1:]), 7.0, dtype=values.dtype, device=DEVICE)
    norm = torch.full((len(asked) if normalise else 0, values.size(1)), 7.0, dtype=values.dtype, device=DEVICE)
    all_pairs(*given, on_device, normalise, out, norm)
    grads = [None if t is None else torch.full_like(t, 7.0, memory_format=torch.contiguous_format) for t in given]
    all_pairs_backward(cotangent.to(DEVICE), out, norm, *given, on_device, normalise, *grads)
    return [t.cpu() for t in (out, *grads) if t is not None]


def compare(case, tolerance=1e-11):
    positions, values, queries, pairs, normalise = case
    inputs = [t.double().clone().requires_grad_() for t in (positions, values, queries) if t is not None]
    across = inputs[2] if queries is not None else None
    want = wanted(*inputs[:2], across, pairs.ranges, (pairs.query_order, pairs.key_order), normalise)
    cotangent = normal(*want.shape, seed=5, dtype=values.dtype)
    wants = want, *torch.autograd.grad(want, inputs, cotangent.double())
    for a, b in zip(found(*case, cotangent), wants, strict=True):
        assert a.dtype == values.dtype
        assert relative(a, b) < tolerance


def points(count, heads, dim, seed, dtype=torch.float64):
    """Positions that are not one block of memory, and of which two coincide."""
    made = (normal(heads, count, dim, seed=seed, dtype=torch.float32) * 2).to(dtype).transpose(0, 1)
    made[1] = made[0]
    return made


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("dim, channels, heads", [(1, 3, 2), (4, 20, 1), (3, 1, 1)])
def test_points_attend_to_themselves(dim, channels, heads, normalise):
    compare((points(40, heads, dim, 1), normal(40, heads, channels, seed=2), None, Pairs([(0, 40, 0, 40)]), normalise))


@pytest.mark.parametrize("normalise", [True, False])
def test_queries_attend_to_keys(normalise):
    queries = points(21, 2, 3, 3)
    queries[4] += 2000  # far from all keys: without a shift, all its weights are 0
    compare((points(35, 2, 3, 1), normal(35, 2, 5, seed=2), queries, Pairs([(0, 21, 0, 35)]), normalise))


def test_graphs_in_any_order_attend_to_themselves():
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    pairs = Pairs([(0, 20, 0, 20), (20, 20, 20, 20), (20, 50, 20, 50)], order, order)
    compare((points(50, 2, 2, 1), normal(50, 1, 3, seed=2).expand(-1, 2, -1), None, pairs, True))


def test_graphs_without_keys_or_queries_get_zeros():
    orders = [torch.randperm(n, generator=torch.Generator().manual_seed(0)) for n in (30, 40)]
    pairs = Pairs([(0, 18, 0, 20), (18, 30, 20, 20), (30, 30, 20, 40)], *orders)
    compare((points(40, 2, 2, 1), normal(40, 2, 3, seed=2), points(30, 2, 2, 3), pairs, True))


def test_points_in_no_range_are_left_alone():
    positions, values, pairs = points(40, 1, 2, 1), normal(40, 1, 3, seed=2), Pairs([(10, 30, 10, 30)])
    for got in found(positions, values, None, pairs, True, normal(40, 1, 3, seed=3)):
        assert bool((got[:10] == 7).all() and (got[30:] == 7).all() and (got[10:30] != 7).all())


def test_many_channels_are_taken_in_blocks(monkeypatch):
    monkeypatch.setattr(exact, "MOST_CHANNELS", {"forward": 32, "backward": 16})
    compare((points(20, 2, 2, 1), normal(20, 2, 37, seed=2), None, Pairs([(0, 20, 0, 20)]), True))
    pairs = Pairs([(0, 10, 0, 8), (10, 20, 8, 20)], torch.arange(20), torch.arange(20))
    compare((points(20, 1, 2, 1), normal(20, 1, 37, seed=2), points(20, 1, 2, 3), pairs, True))


def test_many_coordinates_are_not_held():
    compare((points(20, 1, 19, 1), normal(20, 1, 3, seed=2), None, Pairs([(0, 20, 0, 20)]), True))


def test_one_point_gets_its_value():
    compare((normal(1, 1, 2, seed=1), normal(1, 1, 3, seed=2), None, Pairs([(0, 1, 0, 1)]), False))


@pytest.mark.parametrize("across", [False, True])
def test_float32_is_accurate(across, monkeypatch):
    monkeypatch.setitem(exact.TILES, ("forward", torch.float32), Tile(64, 32, 4, 2))
    positions, values = points(100, 1, 4, 1, torch.float32), normal(100, 1, 64, seed=2, dtype=torch.float32)
    queries = points(70, 1, 4, 3, torch.float32) if across else None
    compare((positions, values, queries, Pairs([(0, 70 if across else 100, 0, 100)]), True), 1e-5)


@pytest.mark.parametrize("dtype, error", [(torch.float16, 5e-4), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("across", [False, True])
def test_values_of_half_types_are_summed_in_float32(dtype, error, across):
    """The error is that of rounding the output: many terms of a sum in a half type would make it larger."""
    inputs = [normal(300, 1, 3, seed=1).float(), normal(300, 1, 20, seed=2).to(dtype), normal(50, 1, 3, seed=3).float()]
    inputs = [t.to(DEVICE).requires_grad_() for t in (inputs if across else inputs[:2])]
    cotangent = normal(50 if across else 300, 1, 20, seed=4).to(dtype)

    def run(inputs, backend):
        queries = {"queries": inputs[2]} if across else {}
        out = global_attention(*inputs[:2], **queries, decay=0.5, method="exact", backend=backend)
        return out, *torch.autograd.grad(out, inputs, cotangent.to(out))

    got = run(inputs, "triton")
    want = run([t.detach().double().cpu().requires_grad_() for t in inputs], "reference")
    assert [t.dtype for t in got[:3]] == [dtype, torch.float32, dtype]
    for a, b in zip(got, want, strict=True):
        assert relative(a.double().cpu(), b) < error


def test_the_largest_numbers_stay_finite():
    """Rounded to bfloat16, they would not."""
    values = torch.full((1, 1, 2), 3.397e38, dtype=torch.float32)
    point, nothing = torch.ones(1, 1, 2), torch.zeros(1, 1, 2)
    out, *grads = found(point, values, None, Pairs([(0, 1, 0, 1)]), True, nothing)
    torch.testing.assert_close(out, values, rtol=1e-4, atol=0)
    assert all(torch.equal(grad, nothing) for grad in grads)


@pytest.mark.parametrize("across, normalise", [(False, True), (True, True), (True, False)])
def test_ops_keep_the_rules_of_torch(across, normalise):
    shapes = (9, 2, 2), (9, 2, 3), (4, 2, 2)
    inputs = [normal(*shape, seed=seed).to(DEVICE).requires_grad_() for seed, shape in enumerate(shapes)]
    given = *inputs[:2], inputs[2] if across else None, normalise
    torch.library.opcheck(torch.ops.phgcn.all_pairs.default, given)
    with torch.no_grad():
        kept = torch.ops.phgcn.all_pairs(*given)
    given = (*(t.detach() if isinstance(t, torch.Tensor) else t for t in given),)
    torch.library.opcheck(torch.ops.phgcn.all_pairs_backward.default, (torch.ones_like(kept[0]), *kept, *given))


def test_bad_values_are_named():
    positions, values = normal(9, 2, seed=1).to(DEVICE), normal(9, 3, seed=2).to(DEVICE)
    values[4, 1] = float("nan")
    with pytest.raises(ValueError, match=r"values\[4, 0, 1\] is nan; allowed: finite numbers"):
        global_attention(positions, values, method="exact", backend="triton")


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_layers_compiled_to_cuda_graphs_equal_eager():
    from phgcn.nn import EDAConv, PHGCNConv

    x, edge_index = normal(60, 9, seed=1).float().cuda(), torch.randint(60, (2, 300), device="cuda")
    for method in ("exact", "lattice", None):
        torch.manual_seed(0)
        conv = EDAConv(9, 4, heads=2) if method is None else PHGCNConv(9, 4, heads=2, method=method)
        conv = conv.cuda()
        if method == "lattice":
            conv.method = replace(named_scheme("lattice", 4), exact_pairs=0)
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


def test_points_that_coincide_have_no_slope_and_weight_one():
    # Coordinates whose multiples are not exact: a fused difference of products would not be 0.
    positions = torch.full((20, 1, 3), 0.1234567, dtype=torch.float32)
    values = normal(20, 1, 4, seed=2, dtype=torch.float32)
    out, grad, _ = found(positions, values, None, Pairs([(0, 20, 0, 20)]), False, torch.ones(20, 1, 4))
    torch.testing.assert_close(out, values.sum(dim=0, keepdim=True).expand(20, -1, -1), rtol=1e-5, atol=1e-5)
    assert torch.equal(grad, torch.zeros_like(grad))


def test_a_graph_in_a_batch_has_the_bits_it_has_alone():
    positions, values = points(50, 2, 3, 1, torch.float32), normal(50, 2, 5, seed=2, dtype=torch.float32)
    cotangent = normal(50, 2, 5, seed=3, dtype=torch.float32)
    together = found(positions, values, None, Pairs([(0, 23, 0, 23), (23, 50, 23, 50)]), True, cotangent)
    rows = slice(23, 50)
    alone = found(positions[rows], values[rows], None, Pairs([(0, 27, 0, 27)]), True, cotangent[rows])
    for a, b in zip(alone, together, strict=True):
        assert torch.equal(a, b[rows])


COMPILE = """
import torch
from offline_triton import compiled_only
from phgcn.exact.triton.attend import Pairs, all_pairs, all_pairs_backward
from phgcn.structural import gpu

def empty(*shape): return torch.empty(shape)

def names(found): return [name for name, _ in found]

with compiled_only() as found:
    p, v, norm = empty(900, 1, 4), empty(900, 1, 64), empty(900, 1)
    all_pairs(p, v, None, Pairs([(0, 900, 0, 900)]), True, v, norm)
    all_pairs_backward(v, v, norm, p, v, None, Pairs([(0, 900, 0, 900)]), True, p, v, None)
    assert names(found) == ["pack", "attend", "pack", "pack_gradients", "gradients"]
    assert all("wgmma" in found[i][1].asm["ptx"] for i in (1, 4))  # float32 products on tensor cores
    p, v, q, norm, order = empty(30, 1, 1), empty(30, 1, 1), empty(1, 1, 1), empty(1, 1), torch.zeros(30, dtype=torch.long)
    pairs = Pairs([(0, 1, 0, 10), (1, 1, 10, 30)], order, order)
    all_pairs(p, v, q, pairs, True, q.clone(), norm)
    all_pairs_backward(q, q, norm, p, v, q, pairs, True, p, v, q)
    backward = ["pack", "pack", "pack_gradients", "nearest", "gradients", "gradients"]
    assert names(found)[5:] == ["pack", "pack", "nearest", "attend", *backward]
    for points, kind in ((torch.float64, torch.float64), (torch.float32, torch.bfloat16), (torch.float32, torch.float16)):
        p, v, norm = (torch.empty(90, 2, w, dtype=points) for w in (3, 5, 1))
        v = v.to(kind)
        all_pairs(p, v, None, Pairs([(0, 90, 0, 90)]), True, v, norm[..., 0])
        all_pairs_backward(v, v, norm[..., 0], p, v, None, Pairs([(0, 90, 0, 90)]), True, p, v, None)
    p, v, edges = torch.zeros(90, 8, 4), torch.zeros(90, 8, 8), torch.zeros(2, 500, dtype=torch.long)
    for mask, kind in ((None, torch.float32), (torch.zeros(500, 8), torch.float32), (None, torch.bfloat16)):
        _, kept = gpu.forward(p, v.to(kind), edges, mask)
        gpu.backward(v.to(kind), kept, p, v.to(kind), edges, mask)
    of_step = ["look", "edges_by_node", "attend", "edges_by_node", "target_gradients", "source_gradients"]
    assert names(found)[30:] == of_step * 3
print(len(found))
"""


def test_kernels_compile_for_an_h200():
    tests = Path(__file__).resolve().parents[2]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join([str(tests), str(tests.parent / "src")])
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 48
