"""What must hold wherever sums of a lattice are replaced by others: for lone points, lone queries and small cores."""

import torch
from clouds import normal
from test_determinism import identical, run

from phgcn import global_attention


def check_step(points, values, size, rtol):
    """A small step changes outputs and masses as the gradient tells."""
    count, dim, channels = len(points), points.size(1), values.size(1)
    step = size * normal(count, dim, seed=4)

    def total(p):
        out, mass = global_attention(p, values, decay=1.0, method="lattice", return_mass=True)
        return (out * normal(count, channels, seed=5)).sum() + (mass * normal(count, seed=6)).sum()

    leaf = points.clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(leaf), leaf)
    difference = (total(points + step) - total(points - step)) / 2
    torch.testing.assert_close((slope * step).sum(), difference, rtol=rtol, atol=0)


def check_alone(graphs, threads):
    """Graphs in a batch, in no order, and a second head have the bits that they have alone, with one thread and with two."""
    sizes = torch.tensor([len(points) for points in graphs])
    points, batch = torch.cat(graphs).float(), torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    heads = torch.stack([points, 0.5 * normal(*points.shape, seed=7).float()], dim=1)[order]
    values, batch = normal(len(points), 2, 3, seed=8).float(), batch[order]
    threads(2)
    together = run(heads, values, batch=batch, method="lattice")
    threads(1)
    assert identical(run(heads, values, batch=batch, method="lattice"), together)
    for graph in range(len(graphs)):
        mine = batch == graph
        for head in range(2):
            alone = global_attention(heads[mine, head], values[mine, head], decay=1.0, method="lattice")
            assert torch.equal(together[0][mine, head], alone)


def check_permuted(points, values):
    """Permuted points have permuted outputs."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    out, permuted = (
        global_attention(p, f, decay=1.0, method="lattice") for p, f in ((points, values), (points[order], values[order]))
    )
    torch.testing.assert_close(permuted, out[order], rtol=1e-9, atol=1e-12)


def check_traced(*points):
    """A graph traced without breaks has the bits of the call, and of its gradients; points are keys, values, queries."""

    def call(keys, values, *queries):
        asked = {"queries": queries[0]} if queries else {}
        return global_attention(keys.clone(), values, decay=1.0, method="lattice", **asked).sin()

    results = []
    for attend in (torch.compile(call, fullgraph=True, backend="aot_eager"), call):
        leaves = [t.clone().requires_grad_() for t in points]
        out = attend(*leaves)
        results.append((out, *torch.autograd.grad(out.sum(), leaves)))
    assert identical(*results)


def check_replanned(inputs):
    """The backward op gives the same bits with the plan of the forward op and without one; returns that plan and the
    normalisers."""
    tensors = [t.detach() if isinstance(t, torch.Tensor) else t for t in inputs]
    out, norm, plan = torch.ops.phgcn.filter(*tensors, True)
    upstream = normal(*out.shape, seed=4), normal(*norm.shape, seed=5), out, norm
    grads = [torch.ops.phgcn.filter_backward(*upstream, given, *tensors) for given in (plan, [])]
    assert identical(*grads)
    return plan, norm
