"""Calls of the filter on any backend and device, for the tests of Triton."""

from contextlib import contextmanager

import torch
from clouds import normal

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def run(device, backend, dtype, call, scheme, inputs, indices):
    """The output and the gradients of all inputs."""
    # Copies: an input that requires a gradient would make those that are computed from it depend on
    # it, on the CPU only.
    leaves = {
        name: tensor.detach().to(device, dtype, copy=True).requires_grad_()
        for name, tensor in inputs.items()
    }
    with poisoned():
        out = call(
            **leaves,
            **{k: v.to(device) for k, v in indices.items()},
            decay=1.0,
            method=scheme,
            backend=backend,
        )
        cotangent = normal(*out.shape, seed=14).to(device, dtype)
        return [
            out.detach().cpu(),
            *(g.cpu() for g in torch.autograd.grad(out, list(leaves.values()), cotangent)),
        ]


@contextmanager
def poisoned():
    """Fills what is allocated with NaN, or the greatest integer: what is read before it is written
    is seen.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def cloud(dim, count=13, asked=0, spread=1.0, channels=3):
    """Two heads, three graphs in no order; rounded to float32, so that both types see the same
    points.
    """
    shapes = {"positions": (count, 2, dim), "values": (count, 2, channels)}
    if asked:
        shapes["queries"] = (asked, 2, dim)
    inputs = {
        name: normal(*shape, seed=seed).float().double()
        for seed, (name, shape) in enumerate(shapes.items(), start=11)
    }
    for name in set(inputs) - {"values"}:
        inputs[name] = (inputs[name] * spread).float().double()
    indices = {"batch": torch.arange(count) * 7 % 5 % 3}
    if asked:
        indices["query_batch"] = torch.arange(asked) % 3
    return inputs, indices
