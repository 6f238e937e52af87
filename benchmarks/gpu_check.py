r"""Section ``check`` of ``benchmarks/gpu.py``: is the filter right on a GPU, and are its bits the same.

Against the plain torch reference on the CPU, float32 and float64, forward and backward; from run to run; a batch against its
graphs alone.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from gpu_common import DEVICE, cloud, features
from torch import Tensor

from phgcn.functional import global_attention, permutohedral_filter
from phgcn.lattice import MultiScale, Separable
from phgcn.lattice.scheme import named_scheme

WORKERS = 8
"""Processes that check cases."""


def relative(got: Tensor, want: Tensor) -> float:
    got, want = got.detach().cpu().double(), want.detach().cpu().double()
    return float((got - want).norm() / want.norm().clamp_min(1e-300))


def outputs(inputs: dict, device: str, dtype: torch.dtype, backend: str, call: Callable, **options: object) -> list[Tensor]:
    """The output and all gradients."""
    leaves = {k: v.to(device, dtype).requires_grad_() for k, v in inputs.items() if v.is_floating_point()}
    indices = {k: v.to(device) for k, v in inputs.items() if not v.is_floating_point()}
    out = call(**leaves, **indices, backend=backend, **options)
    grad = features(out.numel(), 1, 9).reshape(out.shape).to(device, dtype)
    return [out.detach(), *torch.autograd.grad(out, list(leaves.values()), grad)]


def with_near_field(dim: int, level: int, lattices: int = 1) -> MultiScale:
    """The named scheme, its lattice starting at some level whatever the density."""
    return dataclasses.replace(named_scheme("lattice", dim), near_field=level, lattices=lattices)


@dataclasses.dataclass
class Case:
    """A call that is checked: its inputs, the function, the method, the types, and by what factor its errors may be larger."""

    inputs: dict[str, Tensor]
    call: Callable
    method: object
    types: tuple[torch.dtype, ...] = (torch.float32,)
    slack: float = 1.0


def check_cases(quick: bool) -> dict[str, Case]:
    """Every kind of filter, in few dimensions and types: each compiles kernels of its own, which takes longer than the rest."""
    cases: dict[str, Case] = {}
    both = (torch.float64, torch.float32)
    for dim in (2,) if quick else (2, 4, 1, 3, 5):
        base = {"positions": cloud("spread 1.5", 60, dim).reshape(30, 2, dim), "values": features(60, 3).reshape(30, 2, 3)}
        graphs = {"batch": torch.arange(30) * 7 % 5 % 3}
        asked = {"queries": cloud("spread 1", 22, dim).reshape(11, 2, dim), "query_batch": torch.arange(11) % 3}
        types = both if dim == 2 else both[1:]
        last = len(with_near_field(dim, 0).hops) - 1
        kinds: dict[str, object] = {"separable": Separable(), f"near field {last}": with_near_field(dim, last)}
        if dim in (2, 4):
            kinds |= {"exact": "exact", "all levels": with_near_field(dim, 0), "near field 1": with_near_field(dim, 1)}
            kinds |= {"two lattices": with_near_field(dim, 1, 2)}
        for kind, method in kinds.items():
            cases[f"D={dim} {kind}, graphs and heads"] = Case({**base, **graphs}, global_attention, method, types)
            if dim in (2, 4):
                cases[f"D={dim} {kind}, queries"] = Case({**base, **graphs, **asked}, global_attention, method, types)
        cases[f"D={dim} separable, plain sum"] = Case(base, permutohedral_filter, Separable(), types)
    for spread in (0.3, 3.0, 30.0):
        many = {"positions": cloud(f"spread {spread}", 2000, 2), "values": features(2000, 3)}
        cases[f"D=2 lattice, 2000 points of spread {spread}"] = Case(many, global_attention, "lattice")
    far = {"positions": cloud("spread 1", 60, 4), "values": features(60, 3)}
    far["positions"][7] = 1e6
    cases["D=4 separable, an outlier, wide keys"] = Case(far, global_attention, Separable())
    alike = {"positions": torch.ones(50, 2), "values": features(50, 3)}
    cases["D=2 separable, all alike"] = Case(alike, global_attention, Separable())
    return cases


def check(quick: bool) -> dict:
    """Against the reference on the CPU; bits of runs and batches."""
    names = list(check_cases(quick))
    # Each case compiles kernels of its own, which takes longer than the rest: several processes share that.
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as workers:
        found = dict(zip(names, workers.map(check_case, names, [quick] * len(names)), strict=True))
    wrong = sum(row.pop("wrong") for row in found.values())
    print(f"check: {len(found)} cases, {wrong:.0f} wrong", flush=True)
    same = same_bits(20_000 if quick else 200_000)
    print("same bits:", same, flush=True)
    return {"cases": found, "wrong": wrong, "same_bits": same}


def check_case(name: str, quick: bool) -> dict[str, float]:
    """The worst error of a case for each type, and how many of them are wrong."""
    case, row, wrong = check_cases(quick)[name], {}, 0
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4}
    options = {"method": case.method, "decay": 1.0}
    want = outputs(case.inputs, "cpu", torch.float64, "reference", case.call, **options)
    for dtype in case.types:
        try:
            got = outputs(case.inputs, DEVICE, dtype, "triton", case.call, **options)
            errors = [relative(a, b) for a, b in zip(got, want, strict=True) if float(b.norm()) > 0]
        except Exception as error:  # said, counted, and the other cases still run
            print(f"FAILED {name} {dtype}: {type(error).__name__} {error}"[:1500], flush=True)
            errors = [float("nan")]
        row[str(dtype)] = max(errors, key=lambda e: float("inf") if e != e else e)
        if not row[str(dtype)] < tolerance[dtype] * case.slack:
            wrong += 1
            print(f"WRONG {name} {dtype}: {errors}", flush=True)
    print(f"{name}: {row}", flush=True)
    return {**row, "wrong": wrong}


def same_bits(count: int) -> dict[str, bool]:
    """The same bits from run to run, and alone as in a batch."""
    found = {}
    for method in ("separable", "lattice", "exact"):
        size = count // 10 if method == "exact" else count
        for name in ("spread 1", "spread 10"):
            inputs = {"positions": cloud(name, size), "values": features(size, 16)}
            run = functools.partial(
                outputs, device=DEVICE, dtype=torch.float32, backend="triton", call=global_attention, method=method
            )
            first = run(inputs)
            found[f"{method}, {name}, two runs"] = all(map(torch.equal, first, run(inputs)))
            batch = torch.arange(size) * 7 % 3 % 2
            together = run({**inputs, "batch": batch})
            for graph in range(2):
                inside = batch == graph
                grad = features(size * 16, 1, 9).reshape(size, 16)[inside].to(DEVICE)
                leaves = [tensor[inside].to(DEVICE).requires_grad_() for tensor in inputs.values()]
                out = global_attention(*leaves, method=method)
                alone = [out.detach(), *torch.autograd.grad(out, leaves, grad)]
                equal = all(torch.equal(a[inside.to(DEVICE)], b) for a, b in zip(together, alone, strict=True))
                found[f"{method}, {name}, graph {graph} alone"] = equal
    return found
