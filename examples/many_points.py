"""Attention over 200,000 points: how long it takes, and how far it is from exact attention. The
first part of `make demo`.
"""

import argparse
import time

import torch

import phgcn

POINTS, DIM, CHANNELS, CLUSTERS, DECAY = 200_000, 4, 16, 50, 1.0


def cloud(count):
    """Clusters of points, as learned embeddings look, and values that depend on the cluster."""
    label = torch.randint(CLUSTERS, (count,))
    return 6 * torch.randn(CLUSTERS, DIM)[label] + torch.randn(count, DIM), torch.randn(
        CLUSTERS, CHANNELS
    )[label]


def seconds(*arguments, **options):
    begin = time.perf_counter()
    phgcn.global_attention(*arguments, decay=DECAY, **options)
    return time.perf_counter() - begin


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--points", type=int, default=POINTS)
count = parser.parse_args().points
torch.manual_seed(0)
positions, values = cloud(count)
print("Compiling kernels, once per machine ...", flush=True)
first = seconds(positions, values, method="lattice")
lattice = min(seconds(positions, values, method="lattice") for _ in range(2))
rows = positions[:: max(1, count // 500)]
seconds(positions[:50], values[:50], method="exact", queries=rows[:50])
exact = seconds(positions, values, method="exact", queries=rows) * count / len(rows)
error = phgcn.attention_error(positions, values, decay=DECAY, method="lattice")
low, high = error.interval.tolist()
print(f"{count:,} points in {DIM} dimensions, each attends to all others, {CHANNELS} channels:")
print(f"  lattice   {lattice:8.2f} s   (the first call, with compiling: {first:.1f} s)")
print(f"  exact     {exact:8.0f} s   (reckoned from {len(rows)} of the points)")
print(
    f"  error     {float(error.deviation):8.3f}     of exact attention less a plain average; by 95 "
    f"% {low:.3f} to {high:.3f}"
)
print(
    f"What you see: nearly the same attention, {exact / lattice:,.0f} times as fast. The error is "
    f"that of 512 of these points."
)
