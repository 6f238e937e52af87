r"""Exact attention and the layers on a GPU: checked against plain torch, then timed side by side with PyG's GATConv.

    python benchmarks/gpu_layers.py                       # all sections, some minutes
    python benchmarks/gpu_layers.py check exact layers    # some of them

========  ===================================================================================================
check     outputs and gradients against plain torch in float64, the same bits in every run
exact     exact attention, N = 100,000, C = 64, D = 4: forward and backward
tune      the same for other tiles
layers    a training step of GATConv, EDAConv and PHGCNConv, 1,000,000 nodes, 10,000,000 edges, 8 heads x 8 channels
small     a training step on a graph of 183 nodes (the size of texas), eager, compiled and as a CUDA graph, kernels launched
training  an epoch of all models on texas and cora in a run of ``phgcn train --device cuda``, checkpoints included
========  ===================================================================================================

Times are medians between CUDA events, jobs in turn, round after round.  Beside them the floor: the bytes that must move, at
the bandwidth that copying reaches.  Writes ``benchmarks/results/gpu_layers.json`` after every section; a section that fails
is reported, and the others still run.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from functools import partial

import common
import torch
from gpu_errors import exact_gradient_errors
from gpu_small import small, training
from gpu_timing import (
    CHANNELS,
    DEVICE,
    HEADS,
    WIDTH,
    Times,
    backward_only,
    clustered,
    copy_bandwidth,
    edges,
    kernels,
    make,
    normal,
    step,
    timed,
)
from rich.table import Table
from torch import Tensor

import phgcn
from phgcn.exact.reference import exact_sum

DIM = 4
CHECKED = 700
EXACT_COUNT, EXACT_CHANNELS = 100_000, 64
NODES, EDGES = 1_000_000, 10_000_000
TILES = [(128, 32, 8, 3), (64, 32, 4, 4), (128, 64, 8, 3), (64, 32, 4, 2), (64, 64, 4, 3), (128, 64, 4, 3)]
"""Targets and sources of a tile, warps and stages, that ``tune`` tries."""


# Sections: each returns what goes into the JSON


def relative(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


def with_grads(call: Callable[..., Tensor], inputs: list[Tensor], **options) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    out = call(*leaves, **options)
    grad = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view_as(out).to(out)
    return [t.detach().cpu() for t in (out, *torch.autograd.grad(out, leaves, grad))]


def on_cpu(options: dict) -> dict:
    """Where the reference runs."""
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in options.items()}


def across(positions: Tensor, values: Tensor, queries: Tensor, **options) -> Tensor:
    return phgcn.global_attention(positions, values, queries=queries, **options)


def check() -> dict:
    """Errors of both types against plain torch in float64; float32 ones must stay below 1e-5, float64 ones below 1e-10."""
    found: dict[str, list[float]] = {}
    batch = torch.randint(0, 3, (CHECKED,), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    to_hub = torch.stack([torch.arange(CHECKED), torch.zeros(CHECKED, dtype=torch.long)]).to(DEVICE)
    hub = torch.cat([edges(CHECKED, 9 * CHECKED), to_hub], dim=1)
    for heads, dim, channels in ((8, 4, 8), (1, 4, 64), (3, 3, 5), (1, 2, 200)):
        given = [normal(CHECKED, heads, w, seed=w) for w in (dim, channels)]
        given[0][1] = given[0][0]
        asked = normal(CHECKED // 2, heads, dim, seed=9)
        mask = (normal(hub.size(1), heads, seed=5) > 0) * 2.0
        all_points = {"decay": 1.0, "method": "exact"}
        cases: dict[str, tuple[Callable[..., Tensor], list[Tensor], dict]] = {
            "structural": (phgcn.structural_attention, given, {"edge_index": hub}),
            "structural, masked": (phgcn.structural_attention, given, {"edge_index": hub, "edge_mask": mask}),
            "exact": (phgcn.global_attention, given, all_points),
            "exact, batch": (phgcn.global_attention, given, {**all_points, "batch": batch}),
            "exact, queries": (across, [*given, asked], all_points),
        }
        for name, (call, inputs, options) in cases.items():
            wide = [t.double().cpu() for t in inputs]
            want = with_grads(call, wide, **on_cpu(options), backend="reference")
            for dtype, limit in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
                if dtype == torch.float64 and heads != 3:  # compiling takes its time
                    continue
                narrow = [t.to(dtype) for t in inputs]
                got = with_grads(call, narrow, **options, backend="triton")
                again = with_grads(call, narrow, **options, backend="triton")
                errors = [relative(a, b) for a, b in zip(got, want, strict=True)]
                label = f"{name}, H={heads} D={dim} C={channels}, {str(dtype).split('.')[1]}"
                found[label] = errors
                if max(errors) > limit:
                    print(f"TOO LARGE {label}: {errors}", flush=True)
                if not all(torch.equal(a, b) for a, b in zip(got, again, strict=True)):
                    print(f"NOT THE SAME BITS {label}", flush=True)
    worst = {kind: max(max(e) for name, e in found.items() if name.endswith(kind)) for kind in ("float32", "float64")}
    print(f"largest errors: {worst}", flush=True)
    same = torch.full((64, 3), 0.1234567, device=DEVICE, requires_grad=True)
    (grad,) = torch.autograd.grad(
        phgcn.global_attention(same, normal(64, 4, seed=1), decay=1.7, method="exact").square().sum(), same
    )
    print(f"gradient of points that coincide is 0: {bool((grad == 0).all())}", flush=True)
    return {"errors": found, "worst": worst, "coincident_gradient_is_zero": bool((grad == 0).all())}


def exact_jobs(rounds: int, label: str = "") -> Times:
    given = [normal(EXACT_COUNT, w, seed=w).requires_grad_() for w in (DIM, EXACT_CHANNELS)]

    def forward() -> Tensor:
        return phgcn.global_attention(*given, decay=1.0, method="exact", backend="triton")

    with torch.no_grad():
        times = timed({f"exact forward{label}": forward}, rounds)
    return times | timed({f"exact backward{label}": partial(backward_only, forward, given)}, rounds)


def exact_error() -> float:
    """The norm of the error of 500 rows, at the size that is timed, over the norm of what is wanted."""
    points, values = normal(EXACT_COUNT, DIM, seed=DIM), normal(EXACT_COUNT, EXACT_CHANNELS, seed=EXACT_CHANNELS)
    rows = torch.cat([values, torch.ones_like(values[:, :1])], dim=1).double()
    want = exact_sum(points[:500].double(), points.double(), rows)
    got = phgcn.global_attention(points, values, decay=1.0, method="exact", backend="triton")[:500]
    return relative(got, want[:, :-1] / want[:, -1:])


def exact(rounds: int = 20) -> dict:
    errors = {"error": exact_error(), "gradient_errors": exact_gradient_errors(DIM, EXACT_CHANNELS)}
    return {"times": exact_jobs(rounds), **errors, "mark_ms": 15.0, "flex_attention_ms": 15.4}


def tune(rounds: int = 5) -> dict:
    """Other tiles of exact attention; what is best is written into the code by hand."""
    from phgcn.exact.triton import attend

    before = dict(attend.TILES)
    found: dict[str, dict] = {}
    try:
        for tile in TILES:
            label = f"exact {tile}"
            attend.TILES["forward", torch.float32] = attend.TILES["backward", torch.float32] = attend.Tile(*tile)
            times = exact_jobs(rounds)
            found[label] = {name: t["median"] for name, t in times.items()}
            try:
                found[label]["error"] = exact_error()
            except Exception as error:  # the same that was said above
                found[label]["error"] = type(error).__name__
            print(label, found[label], flush=True)
    finally:
        attend.TILES.update(before)
    return found


def gathered_bytes(nodes: int, count: int) -> int:
    """What the structural path of one step must gather: positions and values along each edge, forward, and for the gradients
    of targets and of sources, and there also three numbers per target and head.  Self-loops are edges here."""
    return (count + nodes) * HEADS * 4 * (3 * (DIM + CHANNELS) + 3)


def layers(rounds: int = 10) -> dict:
    features = {"": normal(NODES, WIDTH, seed=1), ", clusters": clustered(NODES)}
    edge_index = edges(NODES, EDGES)
    given = {"GATConv": "", "EDAConv": "", "PHGCNConv": "", "PHGCNConv, clusters": ", clusters"}
    jobs = {name: partial(step, make(name.split(",")[0], WIDTH), features[kind], edge_index) for name, kind in given.items()}
    times = timed(jobs, rounds)
    floor = gathered_bytes(NODES, EDGES) / copy_bandwidth()
    parts = kernels({name: jobs[name] for name in times})
    ratio = {name: t["median"] / times["GATConv"]["median"] for name, t in times.items()} if "GATConv" in times else {}
    return {
        "times": times,
        "over_gat": ratio,
        "structural_floor_s": floor,
        "kernels": parts,
        "memory": peaks({name: jobs[name] for name in times}),
    }


def peaks(jobs: dict[str, Callable[[], object]]) -> dict[str, int]:
    """The most bytes that a step holds beyond what was there before."""
    found = {}
    for name, job in jobs.items():
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        job()
        found[name] = torch.cuda.max_memory_allocated() - before
    return found


SECTIONS = {
    "check": check,
    "exact": exact,
    "tune": tune,
    "layers": layers,
    "small": small,
    "training": training,
}


def report(found: dict[str, dict]) -> None:
    table = Table(title="Times")
    for heading in ("section", "job", "median ms", "least ms"):
        table.add_column(heading, justify="right" if heading.endswith("ms") else "left")
    for section, content in found.items():
        for name, t in content.get("times", {}).items():
            table.add_row(section, name, f"{1000 * t['median']:.3f}", f"{1000 * t['min']:.3f}")
    console = common.wide_console()
    console.print(table)
    for name, content in found.items():
        said = {
            key: content[key]
            for key in ("error", "over_gat", "structural_floor_s", "memory", "launches", "failed", "checkpoint_share")
            if key in content
        }
        if said:
            console.print(f"{name}: {said}", markup=False)
        for job, parts in content.get("kernels", {}).items():
            console.print(f"{name}, {job}:", markup=False)
            for kernel, entry in list(parts.items())[:8]:
                console.print(f"    {entry['ms']:8.3f} ms  {entry['launches']:4d} x  {kernel}", markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="which of them (default: all)")
    parser.add_argument("--out", default=common.RESULTS / "gpu_layers.json", help="where the JSON goes")
    options = parser.parse_args()
    found: dict[str, dict] = {}
    content = {"provenance": common.provenance(), "device": torch.cuda.get_device_name(), "heads": HEADS, "channels": CHANNELS}
    content["copy_bytes_per_s"] = copy_bandwidth()
    for name in options.sections or SECTIONS:
        begin = time.perf_counter()
        try:
            found[name] = SECTIONS[name]()
        except Exception:  # the machine is lent for minutes: one section that fails must not cost the others
            traceback.print_exc()
            found[name] = {"error": traceback.format_exc()}
        print(f"section {name}: {time.perf_counter() - begin:.0f} s", flush=True)
        common.write_json(options.out, {**content, "sections": found})
    report(found)


if __name__ == "__main__":
    main()
