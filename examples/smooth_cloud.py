"""Smoothing on a point cloud: noisy measurements on a surface, without a mesh and without a
grid."""

import math
import sys

import torch

import phgcn


def torus(count=30_000):
    """Points on a torus, [count, 3], and what is measured there, [count, 1]: waves around the
    ring."""
    around, across = 2 * math.pi * torch.rand(2, count)
    radius = 1 + 0.4 * across.cos()
    points = torch.stack([radius * around.cos(), radius * around.sin(), 0.4 * across.sin()], dim=1)
    return points, (3 * around + across).sin().unsqueeze(1)


torch.manual_seed(0)
points, truth = torus()
noisy = truth + 0.8 * torch.randn_like(truth)
# all 30,000 points attend to all, near ones count
smooth = phgcn.global_attention(points, noisy, decay=15.0)
for name, values in (("noisy", noisy), ("smoothed", smooth)):
    print(f"{name}: root mean square error {float((values - truth).square().mean().sqrt()):.3f}")

if len(sys.argv) > 1:  # python examples/smooth_cloud.py picture.png
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 3, figsize=(9, 3), layout="constrained", subplot_kw={"projection": "3d"}
    )
    for axis, (name, values) in zip(
        axes, (("measured", noisy), ("smoothed", smooth), ("truth", truth)), strict=True
    ):
        axis.scatter(
            *points.T.numpy(),
            c=values[:, 0].numpy(),
            s=1,
            cmap="coolwarm",
            vmin=-1.2,
            vmax=1.2,
            linewidths=0,
        )
        axis.set(title=name, zlim=(-1, 1))
        axis.set_axis_off()
        axis.view_init(elev=50)
        axis.set_box_aspect((1, 1, 1), zoom=1.7)
    figure.savefig(sys.argv[1], dpi=90)
