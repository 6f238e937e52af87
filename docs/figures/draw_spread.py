r"""Draws to how many points one point attends in clouds of three spreads:
``python docs/figures/draw_spread.py``."""

from __future__ import annotations

import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Circle
from page import FAINT, INK, LINE, POINT, new, save

import phgcn

POINTS = 1000
SPREADS = (1, 3, 10)
BLUES = LinearSegmentedColormap.from_list("weights", ("#e3e7ee", "#6baed6", "#0072b2", "#08306b"))


def attention(positions: torch.Tensor, node: int) -> torch.Tensor:
    """Returns what one point attends to, (N): each key's value is 1 at itself and 0 elsewhere."""
    values, query = torch.eye(len(positions)), positions[node : node + 1]
    return phgcn.global_attention(positions, values, queries=query, decay=1.0, method="exact")[0]


def main() -> None:
    torch.manual_seed(0)
    cloud = torch.randn(POINTS, 2)
    node = int((cloud - torch.tensor([0.6, 0.3])).norm(dim=1).argmin())
    figure, axes = new(3.1, columns=len(SPREADS))
    for axis, spread in zip(axes, SPREADS, strict=True):
        positions = spread * cloud
        weights = attention(positions, node)
        count = float((-weights * weights.clamp(min=1e-30).log()).sum().exp())
        order = weights.argsort()
        share = (weights.clamp(min=0) / weights.max()).sqrt()[order]
        axis.scatter(
            *positions[order].T,
            c=share,
            s=6 + 14 * share,
            cmap=BLUES,
            linewidths=0,
            rasterized=True,
        )
        axis.scatter(*positions[node], s=26, color=POINT, edgecolors="white", zorder=3)
        axis.add_patch(Circle(positions[node].tolist(), 1.0, fill=False, ec=POINT, lw=1.2))
        reach = 3.2 * spread
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axis.locator_params(nbins=5)
        axis.spines[:].set_color(LINE)
        axis.tick_params(colors=FAINT, labelsize=8)
        axis.set_xlabel("position × λ; red circle: radius 1", fontsize=8)
        axis.set_title(f"spread {spread}: attends to {count:,.0f} of {POINTS:,}", color=INK)
    save(figure, "spread")


if __name__ == "__main__":
    main()
