r"""Draws the weight that each method gives to pairs of points, over their distance:
``python docs/figures/draw_kernel.py``."""

from __future__ import annotations

import numpy as np
import torch
from page import FAINT, INK, METHODS, new, save

import phgcn

POINTS, DIM, KEYS, DOTS = 5000, 4, 32, 2500
FAR = 6.0
"""The longest distance that is drawn, in units of 1/λ."""


def weights(method: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns distances and weights of all points with some keys: a key's values are 1 at itself
    and 0 elsewhere, so that the filter returns its weight."""
    torch.manual_seed(0)
    positions, keys = torch.randn(POINTS, DIM), torch.arange(KEYS)
    values = torch.zeros(POINTS, KEYS)
    values[keys, keys] = 1.0
    given = phgcn.permutohedral_filter(positions, values, decay=1.0, method=method)
    distances = torch.cdist(positions, positions[keys])
    pairs = (distances > 0) & (distances < FAR)
    return distances[pairs].numpy(), given[pairs].numpy()


def thinned(distances: np.ndarray) -> np.ndarray:
    """Chooses pairs at random, as many at every distance."""
    density = np.histogram(distances, bins=60, range=(0, FAR))[0]
    chance = 1 / density[np.minimum((60 * distances / FAR).astype(int), 59)]
    random = np.random.default_rng(0)
    return random.choice(len(distances), DOTS, replace=False, p=chance / chance.sum())


def main() -> None:
    figure, axes = new(2.9, columns=3, sharey=True)
    r = np.linspace(0, FAR, 200)
    for axis, method in zip(axes, ("separable", "lattice", "lattice-fine"), strict=True):
        distances, given = weights(method)
        low, high = np.quantile(given / np.exp(-distances), (0.05, 0.95))
        shown = thinned(distances)
        axis.scatter(
            distances[shown],
            given[shown],
            s=4,
            color=METHODS[method],
            linewidths=0,
            alpha=0.35,
            rasterized=True,
        )
        axis.plot(r, np.exp(-r), color=INK, linewidth=1.2)
        axis.set(
            yscale="log", ylim=(8e-4, 1.6), xlim=(0, FAR), xlabel="distance r, in units of 1/λ"
        )
        axis.set_title(method, color=METHODS[method], fontweight="bold")
        text = f"nine of ten pairs get\n{low:.2f} to {high:.2f} times $e^{{-r}}$"
        axis.text(0.03, 0.04, text, transform=axis.transAxes, va="bottom", color=INK)
    axes[0].annotate(
        "$e^{-r}$",
        (3.9, np.exp(-3.9)),
        (4.6, 0.09),
        color=INK,
        fontsize=11,
        arrowprops={"arrowstyle": "-", "color": FAINT},
    )
    axes[0].set_ylabel("weight of a pair")
    save(figure, "kernel")


if __name__ == "__main__":
    main()
