"""Structural attention in Triton: in the interpreter, where there is no GPU, and on one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import structural_case
import torch
from clouds import normal
from structural_case import KernelCase, dense, graph

from phgcn import structural_attention

pytest.importorskip("triton")

CUDA = torch.cuda.is_available()
interpreted = pytest.mark.skipif(CUDA, reason="kernels are not interpreted where there is a GPU")
on_gpu = pytest.mark.skipif(not CUDA, reason="needs a GPU")
DEVICE = "cuda" if CUDA else "cpu"


@interpreted
class TestTritonInterpreted(KernelCase):
    """Fewer and smaller shapes than elsewhere, as every operation of every program is a call of
    NumPy's.
    """

    backend = "triton"
    nodes, edges = 9, 100
    batch = ((5, 60), (1, 2), (12, 30))
    derivatives = (4, 9)
    hub = (20_000, 5e-6)

    @pytest.mark.parametrize(
        "heads, dtype", [(1, torch.float32), (3, torch.float64), (8, torch.float32)]
    )
    def test_output_and_gradients_are_those_of_the_dense_matrix(self, heads, dtype):
        self.compare(heads, dim=4, channels=8, dtype=dtype)

    @pytest.mark.parametrize(
        "heads, dim, channels", [(2, 1, 1), (2, 3, 17), (1, 16, 2), (1, 2, 300), (33, 2, 9)]
    )
    def test_any_width_will_do(self, heads, dim, channels):
        self.compare(heads, dim, channels, dtype=torch.float64)

    @pytest.mark.parametrize("degree", [1, 32, 33, 100])
    def test_nodes_of_many_edges_are_summed_in_chunks(self, degree):
        super().test_nodes_of_many_edges_are_summed_in_chunks(degree)

    @pytest.mark.parametrize("heads", [1, 2])
    def test_gradients_are_the_true_derivatives(self, heads):
        super().test_gradients_are_the_true_derivatives(heads)


@on_gpu
class TestTritonOnGpu(KernelCase):
    """The whole of it, with inputs moved to the GPU and outputs back."""

    backend = "triton"

    @pytest.fixture(autouse=True)
    def moved(self, monkeypatch):
        monkeypatch.setattr(structural_case, "structural_attention", on_cuda)


def on_cuda(*given, backend="auto", **named):
    device = "cuda" if backend == "triton" else "cpu"

    def move(x):
        return x.to(device) if isinstance(x, torch.Tensor) else x

    out = structural_attention(
        *map(move, given), **{name: move(x) for name, x in named.items()}, backend=backend
    )
    return tuple(t.cpu() for t in out) if isinstance(out, tuple) else out.cpu()


@pytest.mark.parametrize("with_rows", [False, True])
def test_ops_keep_the_rules_of_torch(with_rows):
    edge_index = graph(5, 9).to(DEVICE)
    edge_rows = [normal(9, 2, seed=seed).abs().to(DEVICE) if with_rows else None for seed in (5, 6)]
    inputs = [normal(5, 2, w, seed=w).to(DEVICE).requires_grad_() for w in (3, 4)]
    given = *inputs, edge_index, *edge_rows, "triton"
    torch.library.opcheck(torch.ops.phgcn.structural.default, given)
    with torch.no_grad():
        kept = torch.ops.phgcn.structural(*given)
    given = *(t.detach() for t in inputs), edge_index, *edge_rows, "triton"
    torch.library.opcheck(
        torch.ops.phgcn.structural_backward.default, (torch.ones_like(kept[0]), *kept, *given)
    )


BAD = [
    ("edge_index", (1, 1, 7), "[1, 1] is 7; allowed: 0 to 3, as positions has 4 rows"),
    ("edge_index", (0, 0, -1), "[0, 0] is -1; allowed: 0 to 3"),
    ("edge_index", (0, 1, 2**32), "[0, 1] is 4294967296; allowed: 0 to 3"),
    ("values", (3, 0, 2, float("nan")), "[3, 0, 2] is nan; allowed: finite numbers"),
    ("positions", (2, 1, 0, float("-inf")), "[2, 1, 0] is -inf; allowed: finite numbers"),
    ("edge_mask", (1, 0, float("inf")), "[1, 0] is inf; allowed: finite numbers"),
    ("edge_bias", (0, 1, float("nan")), "[0, 1] is nan; allowed: finite numbers"),
]


@pytest.mark.parametrize("name, bad, said", BAD)
def test_broken_input_is_named(name, bad, said):
    given = {"positions": normal(4, 2, 3), "values": normal(4, 2, 3)}
    given["edge_index"] = torch.tensor([[0, 1], [2, 3]])
    given |= {"edge_mask": torch.ones(2, 2), "edge_bias": torch.zeros(2, 2)}
    given[name][bad[:-1]] = bad[-1]
    given = {key: tensor.to(DEVICE) for key, tensor in given.items()}
    with pytest.raises(ValueError, match=re.escape(name + said)):
        structural_attention(**given, backend="triton")


def test_no_edge_fits_a_graph_without_nodes():
    none, edge = torch.empty(0, 2, device=DEVICE), torch.tensor([[0], [0]], device=DEVICE)
    with pytest.raises(
        ValueError, match=r"edge_index\[0, 0\] is 0; allowed: no edges, as positions has no rows"
    ):
        structural_attention(none, none, edge, backend="triton")


def test_runs_change_no_bit():
    given = [normal(30, 8, w, seed=w, dtype=torch.float32).to(DEVICE) for w in (4, 8)]
    edge_index = graph(30, 300).to(DEVICE)
    first, second = (structural_attention(*given, edge_index, backend="triton") for _ in range(2))
    assert torch.equal(first, second)
    want = dense(*(t.double().cpu() for t in given), edge_index.cpu(), 1.0)
    torch.testing.assert_close(first.double().cpu(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="a CUDA graph needs a GPU")
def test_a_cuda_graph_of_a_training_step_equals_eager():
    positions, values = (
        normal(50, 8, w, seed=w, dtype=torch.float32).cuda().requires_grad_() for w in (4, 8)
    )
    edge_index = graph(50, 400).cuda()

    def step():
        return torch.autograd.grad(
            structural_attention(positions, values, edge_index).square().sum(), (positions, values)
        )

    want = step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        got = step()
    captured.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("dtype, error", [(torch.float16, 5e-4), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("beside", [torch.float32, None])
def test_values_of_half_types_are_summed_in_float32(dtype, error, beside):
    """The error is that of rounding the output: many terms of a sum in a half type would make it
    larger.
    """
    positions = normal(40, 2, 3, seed=1).to(beside or dtype).to(DEVICE).requires_grad_()
    values = normal(40, 2, 5, seed=2).to(dtype).to(DEVICE).requires_grad_()
    edge_index = graph(40, 3000).to(DEVICE)
    cotangent = normal(40, 2, 5, seed=3).to(dtype).to(DEVICE)

    def run(positions, values, backend):
        out = structural_attention(positions, values, edge_index.to(values.device), backend=backend)
        return out, *torch.autograd.grad(out, (positions, values), cotangent.to(out))

    wide = [t.detach().double().cpu().requires_grad_() for t in (positions, values)]
    got, want = run(positions, values, "triton"), run(*wide, "reference")
    assert [t.dtype for t in got] == [dtype, positions.dtype, dtype]
    for a, b in zip(got, want, strict=True):
        assert float((a.detach().double().cpu() - b.detach()).norm() / b.detach().norm()) < error


COMPILE = """
import torch
from offline_triton import compiled_only
from phgcn.structural import triton
from phgcn.structural.graph import Graph, empty_attention
from phgcn.structural.triton import attend

attend.capturing = lambda tensor: True  # nothing runs, so there are no flags to read
shapes = [(8, 8, 4, torch.float32), (8, 8, 4, torch.bfloat16), (3, 5, 3, torch.float16), (1, 64, 4, torch.float64)]
with compiled_only() as compiled:
    for heads, channels, dim, dtype in shapes:
        positions = torch.zeros(90, heads, dim, dtype=torch.promote_types(dtype, torch.float32))
        values, edges = torch.zeros(90, heads, channels, dtype=dtype), torch.zeros(2, 500, dtype=torch.long)
        for rows in (None, torch.zeros(500, heads, dtype=positions.dtype)):
            graph = Graph(positions, values, edges, rows, rows)
            triton.forward(graph)
            triton.backward(values, empty_attention(graph), graph)
        by_target = empty_attention(graph).by_target
        triton.sum_rows(values.flatten(1), by_target.start, by_target.other)
print(" ".join(name for name, _ in compiled))
"""  # noqa: E501


def test_kernels_compile_for_an_h200():
    tests = Path(__file__).resolve().parents[1]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join([str(tests), str(tests.parent / "src")])
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    step = [
        "fill_flags",
        "fill_edges",
        "attend",
        "fill_edges",
        "target_gradients",
        "source_gradients",
    ]
    assert done.stdout.split() == (2 * step + ["add_sources"]) * 4
