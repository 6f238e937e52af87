r"""How fast the filter is, side by side with pydensecrf2, pykeops and the exact sum.

Jobs run in turn, round after round, so that what else the machine does hits all alike; ratios are
those of medians.  A forward includes building the lattice.  Memory is measured in a new process.
Where other programs keep the cores busy, set ``OMP_WAIT_POLICY=passive``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context

import common
import torch
from registry import measurement

import phgcn
from phgcn_lab.markdown import machine, mark_table, origin, table

DIM = 4
CHANNELS = 17
SPREADS = (1, 3, 10)
LARGE_SPREADS = (1, 10)
MEMORY_CHANNELS = 65


@dataclass(frozen=True)
class Sizes:
    main: int = 200_000
    exact: int = 20_000
    exact_queries: int = 4_000
    large: int = 2_000_000
    memory: int = 1_000_000


QUICK = Sizes(main=20_000, exact=5_000, exact_queries=500, large=100_000, memory=50_000)


def inputs(
    count: int, spread: float, channels: int = CHANNELS
) -> tuple[torch.Tensor, torch.Tensor]:
    return common.cloud(f"spread {spread}", count, DIM), common.random_features(count, channels)


# Jobs: each returns the seconds of what is to be timed, or None where that is the whole call


def forward(points, values, method) -> None:
    phgcn.global_attention(points, values, decay=1.0, method=method)


def backward(points, values, method) -> float:
    """The gradient of positions and values; the forward before it is not timed."""
    leaves = [points.detach().requires_grad_(), values.detach().requires_grad_()]
    out = phgcn.global_attention(*leaves, decay=1.0, method=method)
    grad = torch.ones_like(out)
    return common.seconds(lambda: torch.autograd.grad(out, leaves, grad))


def exact_rows(points, values, queries: int) -> float:
    """The exact sum for all points, from the time of some.

    Not normalised: that would look for the nearest key of each query first.
    """
    asked = points[:queries]
    taken = common.seconds(
        lambda: phgcn.permutohedral_filter(points, values, decay=1.0, queries=asked, method="exact")
    )
    return taken * len(points) / queries


def densecrf(points, values) -> float:
    from pydensecrf.densecrf import DenseCRF

    features, energy = points.T.contiguous().numpy(), values.T.contiguous().numpy()
    crf = DenseCRF(len(points), values.size(1))
    crf.setUnaryEnergy(energy)
    build = common.seconds(lambda: crf.addPairwiseEnergy(features, compat=1.0))
    state = crf.startInference()
    return build + common.seconds(lambda: crf.stepInference(*state))


def keops(points, values) -> None:
    from pykeops.torch import LazyTensor

    rows = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)
    difference = LazyTensor(points[:, None, :]) - LazyTensor(points[None, :, :])
    summed = (-difference.square().sum(dim=-1).sqrt()).exp() @ rows
    summed[:, :-1] / summed[:, -1:]


def peers(sizes: Sizes) -> tuple[dict[str, Callable], dict[str, str]]:
    tried = {f"pydensecrf2, spread {s}": partial(densecrf, *inputs(sizes.main, s)) for s in SPREADS}
    tried["pykeops, exact"] = partial(keops, *inputs(sizes.exact, 1))
    return common.that_run(tried)


def own_jobs(sizes: Sizes) -> dict[str, Callable]:
    jobs: dict[str, Callable] = {}
    small = f"N={sizes.exact:,}"
    for spread in SPREADS:
        given = inputs(sizes.main, spread)
        for method in ("separable", "lattice"):
            jobs[f"{method}, spread {spread}"] = partial(forward, *given, method)
            jobs[f"{method} backward, spread {spread}"] = partial(backward, *given, method)
        few = inputs(sizes.exact, spread)
        jobs[f"lattice, {small}, spread {spread}"] = partial(forward, *few, "lattice")
    jobs[f"exact, {small}"] = partial(forward, *inputs(sizes.exact, 1), "exact")
    rows = partial(exact_rows, *inputs(sizes.main, 1), sizes.exact_queries)
    jobs[f"exact, N={sizes.main:,}"] = rows
    return jobs


def large_jobs(sizes: Sizes) -> dict[str, Callable]:
    return {
        f"lattice, N={count:,}, spread {spread}, per size": partial(
            forward, *inputs(count, spread), "lattice"
        )
        for spread in LARGE_SPREADS
        for count in (sizes.main, sizes.large)
    }


def extra_memory(count: int) -> float:
    """The most memory of a call beyond what was there before, in sizes of the values."""
    for spread in LARGE_SPREADS:
        forward(*inputs(5000, spread, MEMORY_CHANNELS), "lattice")  # loads the kernels
    points, values = inputs(count, 1, MEMORY_CHANNELS)
    size = values.numel() * values.element_size()
    return common.peak(partial(forward, points, values, "lattice")) / size


def marks(times: dict[str, dict], sizes: Sizes, memory: float) -> list[dict]:
    """Ratios beside their marks; those of jobs that could not run are left out."""
    found: list[dict] = []

    def add(what: str, value: float, mark: float, at_least: bool = False) -> None:
        about = {"what": what, "value": value, "mark": mark, "at_least": at_least, "unit": "x"}
        found.append({**about, "reached": value >= mark if at_least else value <= mark})

    def ratio(what: str, over: str, under: str, mark: float, at_least: bool, scale=1.0) -> None:
        if over in times and under in times:
            value = scale * times[over]["median"] / times[under]["median"]
            add(what, value, mark, at_least)

    small, main = f"N={sizes.exact:,}", f"N={sizes.main:,}"
    for s in SPREADS:
        least = {1: (4.0, 2.5), 3: (4.0, 0.5), 10: (4.0, 3.0)}[s]
        for method, mark in zip(("separable", "lattice"), least, strict=True):
            own, crf = f"{method}, spread {s}", f"pydensecrf2, spread {s}"
            ratio(f"{method} faster than pydensecrf2, spread {s}", crf, own, mark, True)
            back = f"{method} backward, spread {s}"
            ratio(f"{method} backward / forward, spread {s}", back, own, 2.0, False)
        few, many = f"lattice, {small}, spread {s}", f"lattice, spread {s}"
        ratio(f"lattice faster than exact, {small}, spread {s}", f"exact, {small}", few, 3.0, True)
        ratio(f"lattice faster than exact, {main}, spread {s}", f"exact, {main}", many, 20.0, True)
    for s in LARGE_SPREADS:
        large, usual = (
            f"lattice, N={n:,}, spread {s}, per size" for n in (sizes.large, sizes.main)
        )
        what = f"lattice per point, N={sizes.large:,} / {main}, spread {s}"
        ratio(what, large, usual, 1.5, False, sizes.main / sizes.large)
    what = f"extra memory / values, N={sizes.memory:,}, C={MEMORY_CHANNELS}, spread 1"
    add(what, memory, 4.0)
    return found


def speed_table(speed: dict) -> list[str]:
    at, ms = speed["provenance"], {name: 1000 * t["median"] for name, t in speed["times"].items()}
    jobs = ("separable", "separable backward", "lattice", "lattice backward", "pydensecrf2")
    memory = next(mark for mark in speed["marks"] if mark["what"].startswith("extra memory"))
    return [
        f"{at['cores']} cores ({machine(at)}), {origin(speed)}, median ms, N = 200,000:",
        "",
        *table(
            ["", *(f"spread {s}" for s in SPREADS)],
            [
                [j, *(f"{ms[f'{j}, spread {s}']:.0f}" for s in SPREADS)]
                for j in jobs
                if f"{j}, spread {SPREADS[0]}" in ms
            ],
        ),
        "",
        f"Memory beyond the input in the dense cloud, N = 1,000,000, C = 65: {memory['value']:.1f} "
        f"times the values.",
    ]


def speed_marks(speed: dict) -> list[str]:
    return mark_table(speed["marks"])


@measurement(
    tables=lambda content: [*speed_table(content), "", *speed_marks(content)],
    quick="small clouds and two rounds; the marks mean nothing then",
    rounds={"type": int, "default": 5},
)
def lattice(options: argparse.Namespace) -> dict:
    """Speed of the filter on the CPU, beside pydensecrf2, pykeops and the exact sum."""
    sizes, rounds = (QUICK, 2) if options.quick else (Sizes(), options.rounds)
    jobs, missing = peers(sizes)
    times = common.interleaved({**own_jobs(sizes), **jobs}, rounds)
    times |= common.interleaved(large_jobs(sizes), min(rounds, 2))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        memory = pool.submit(extra_memory, sizes.memory).result()
    found = marks(times, sizes, memory)
    content = {"rounds": rounds, "sizes": asdict(sizes), "marks": found, "times": times}
    return {**content, "missing": missing}
