r"""Does the filter on a GPU agree with the CPU, and are its bits the same from run to run.

Small cases against the reference, with queries, graphs and heads, are in ``tests/lattice``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from common import DEVICE, cloud, random_features
from registry import measurement
from torch import Tensor

from phgcn.functional import global_attention

METHODS = ("separable", "lattice", "lattice-fine", "exact")
CLOUDS = ("spread 0.3", "spread 1", "spread 3", "spread 10", "clusters")
Inputs = tuple[Tensor, Tensor]


def relative(got: Tensor, want: Tensor) -> float:
    got, want = got.cpu(), want.cpu()
    return float((got - want).norm() / want.norm().clamp_min(1e-300))


def outputs(
    inputs: Inputs, method: str, device: torch.device | str, batch: Tensor | None = None
) -> list[Tensor]:
    leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
    here = None if batch is None else batch.to(device)
    out = global_attention(*leaves, batch=here, decay=1.0, method=method)
    grad = random_features(out.numel(), 1, 9).reshape(out.shape).to(out)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def same_bits(inputs: Inputs, method: str) -> dict[str, bool]:
    """Compares two runs, and a batch of two graphs with its first graph alone."""
    first, again = (outputs(inputs, method, DEVICE) for _ in range(2))
    batch = torch.arange(len(inputs[0])) * 7 % 3 % 2
    together = outputs(inputs, method, DEVICE, batch)[0][batch.to(DEVICE) == 0]
    alone = outputs((inputs[0][batch == 0], inputs[1][batch == 0]), method, DEVICE)[0]
    return {"two runs": all(map(torch.equal, first, again)), "alone": torch.equal(together, alone)}


@measurement(quick="two dimensions; runs on the CPU too", needs_gpu=True)
def gpu_agree(options: argparse.Namespace) -> Iterator[dict]:
    """Differences between GPU and CPU in output and gradients, float64, and bits of two runs."""
    rows: list[dict] = []
    for dim in (2,) if options.quick else (2, 3, 4):
        for name in CLOUDS:
            for method in METHODS:
                count = 2000 if options.quick or method == "exact" else 20_000
                rows.append({"method": method, "dim": dim, "cloud": name, "count": count})
                inputs = cloud(name, count, dim), random_features(count, 8)
                double = inputs[0].double(), inputs[1].double()
                try:
                    pairs = zip(
                        outputs(double, method, DEVICE), outputs(double, method, "cpu"), strict=True
                    )
                    rows[-1]["errors"] = [relative(*pair) for pair in pairs]
                    rows[-1]["same_bits"] = same_bits(inputs, method)
                except Exception as error:  # printed, and the other clouds still run
                    rows[-1]["failed"] = f"{type(error).__name__}: {error}"[:500]
                print(rows[-1], flush=True)
                yield {"rows": rows}
