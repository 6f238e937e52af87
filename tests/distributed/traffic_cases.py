"""What a rank exchanges in a forward and a backward pass of global attention, and what ``docs/distributed.md`` says of it."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

import phgcn
from phgcn.distributed import Ranks, attention

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class WatchedRanks(Ranks):
    """Lists the collectives of this rank: their names, and how many bytes it sends by them."""

    calls: ClassVar[list[tuple[str, float]]] = []

    def gather_equal(self, tensor: Tensor) -> Tensor:
        self.calls.append(("gather_equal", (self.size - 1) * tensor.nbytes))
        return super().gather_equal(tensor)

    def fill(self, parts: Any) -> None:
        tensors = [[part] if isinstance(part, Tensor) else part for part in parts]
        if any(tensor.numel() > 0 for part in tensors for tensor in part):
            self.calls.append(("fill", (self.size - 1) * sum(tensor.nbytes for tensor in tensors[self.rank])))
        super().fill(parts)

    def sum_in_place(self, tensor: Tensor) -> Tensor:
        self.calls.append(("sum", 2 * tensor.nbytes * (self.size - 1) / self.size))  # a reduce-scatter and an all-gather
        return super().sum_in_place(tensor)

    def max(self, tensor: Tensor) -> Tensor:
        self.calls.append(("max", 2 * tensor.nbytes * (self.size - 1) / self.size))
        return super().max(tensor)

    def exchange(self, rows: Tensor, send: Any, receive: Any) -> Tensor:
        self.calls.append(("exchange", rows.nbytes * (1 - send[self.rank] / max(1, len(rows)))))
        return super().exchange(rows, send, receive)


def attend_watched(group: Any, spread: float, count: int) -> tuple[list, list, dict[str, float]]:
    """Attends with the points of this rank, of ``count``; returns the collectives of the forward and of the backward pass, and
    the bytes of both by the formula."""
    benchmark = _benchmark()
    ranks, generator = Ranks(group), torch.Generator().manual_seed(5)
    points = spread * torch.randn(count, benchmark.DIM, generator=generator)
    values = torch.randn(count, benchmark.CHANNELS, generator=generator)
    here = slice(ranks.rank * count // ranks.size, (ranks.rank + 1) * count // ranks.size)
    leaves = [t[here].clone().requires_grad_() for t in (points, values)]
    passes = []

    def watched(run: Any) -> Any:
        WatchedRanks.calls = []
        result = run()
        passes.append(WatchedRanks.calls)
        return result

    def both() -> None:
        out = watched(lambda: phgcn.global_attention(*leaves, decay=1.0, method="lattice", group=group))
        watched(out.sum().backward)

    attention.Ranks = WatchedRanks
    try:
        sizes = benchmark.record_sizes(both)
    finally:
        attention.Ranks = Ranks
    return passes[0], passes[1], benchmark.formula(sizes, ranks.size, count)


def _benchmark() -> Any:
    """The module that measures and has the formula, by its file: its name is that of this folder."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("benchmark_of_ranks", BENCHMARKS / "distributed.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module
