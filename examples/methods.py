r"""Filters a point cloud with every method and compares each with the exact sum, in error and in
time.

    python examples/methods.py --out demo

Prints a table and writes ``demo/demo.png``.  Takes less than a minute; the first run compiles
kernels, a minute more."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

import phgcn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COUNT = 20_000
DIM = 4
CHANNELS = 16
CLUSTERS = 8
HALO = 0.2
METHODS = ("exact", "lattice", "lattice-fine", "separable")
COUNTS = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)
PATIENCE = 15.0  # seconds for one exact sum
FIT_FROM = 4000  # of fewer points, costs that do not grow take a part
COLOURS = {
    "exact": "#222222",
    "lattice": "#0072b2",
    "lattice-fine": "#009e73",
    "separable": "#d55e00",
}


def cloud(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Clusters in a thin halo, as learned embeddings look, in units of 1/decay; features that
    depend on the cluster.
    """
    random = torch.Generator().manual_seed(seed)
    centres = 6 * torch.randn(CLUSTERS, DIM, generator=random)
    label = torch.randint(CLUSTERS, (count,), generator=random)
    points = centres[label] + torch.randn(count, DIM, generator=random)
    halo = torch.rand(count, generator=random) < HALO
    points[halo] = 8 * torch.randn(int(halo.sum()), DIM, generator=random)
    meaning = torch.randn(CLUSTERS, CHANNELS, generator=random)
    return points, meaning[label] + torch.randn(count, CHANNELS, generator=random)


def attend(points: Tensor, values: Tensor, method: str) -> Tensor:
    return phgcn.global_attention(points, values, decay=1.0, method=method)


def timed(points: Tensor, values: Tensor, method: str) -> tuple[float, Tensor]:
    begin = time.perf_counter()
    out = attend(points, values, method)
    return time.perf_counter() - begin, out


def position_gradient(points: Tensor, values: Tensor, method: str) -> Tensor:
    """The gradient of the positions for a random gradient of the output."""
    grad = torch.randn(values.shape, generator=torch.Generator().manual_seed(1))
    leaf = points.clone().requires_grad_()
    attend(leaf, values, method).backward(grad)
    return leaf.grad


def compare(progress: Progress) -> list[dict]:
    """Every method on one cloud, against the exact sum."""
    points, values = cloud(COUNT)
    task = progress.add_task("", total=3 * len(METHODS))

    def step(text: str) -> None:
        progress.update(task, description=text, advance=1)

    rows: list[dict] = []
    for method in METHODS:
        progress.update(task, description=f"{method}: first call (may compile kernels)")
        attend(points, values, method)
        step(f"{method}: second call")
        taken, out = timed(points, values, method)
        step(f"{method}: gradient")
        slope = position_gradient(points, values, method)
        step(f"{method}: done")
        rows.append({"method": method, "seconds": taken, "out": out, "slope": slope})
    exact = rows[0]
    deviation = (exact["out"] - exact["out"].mean(dim=0)).norm()
    for row in rows:
        row["error"] = float((row["out"] - exact["out"]).norm() / deviation)
        row["cosine"] = float(
            torch.nn.functional.cosine_similarity(
                row["slope"].flatten(), exact["slope"].flatten(), dim=0
            )
        )
    return rows


def growth(progress: Progress) -> dict[str, list[float]]:
    """The time of exact sum and lattice by the number of points; the exact sum stops before it
    takes too long.
    """
    times: dict[str, list[float]] = {"exact": [], "lattice": []}
    task = progress.add_task("", total=2 * len(COUNTS))
    for count in COUNTS:
        points, values = cloud(count)
        for method, found in times.items():
            progress.update(task, description=f"{method}, {count:,} points", advance=1)
            if method == "exact" and found and 4 * found[-1] > PATIENCE:
                continue
            repeats = 1 if method == "exact" and count > 10_000 else 3
            found.append(
                statistics.median(timed(points, values, method)[0] for _ in range(repeats))
            )
    return times


def exponent(times: list[float]) -> float:
    """The slope of a line through logarithms of time and number of points."""
    fitted = [
        (count, taken) for count, taken in zip(COUNTS, times, strict=False) if count >= FIT_FROM
    ]
    return float(np.polyfit(*np.log(np.array(fitted)).T, 1)[0])


def table_of(rows: list[dict]) -> Table:
    table = Table(title=f"{COUNT:,} points in {DIM} dimensions, {CHANNELS} channels")
    for heading in ("method", "ms", "error", "gradient cosine"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for row in rows:
        table.add_row(
            row["method"],
            f"{1000 * row['seconds']:.0f}",
            f"{row['error']:.3f}",
            f"{row['cosine']:.3f}",
        )
    table.caption = (
        "ms: the second call. error: against the deviation of the exact output from its mean."
    )
    return table


def draw(rows: list[dict], times: dict[str, list[float]], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for row in rows:
        colour = COLOURS[row["method"]]
        left.scatter(1000 * row["seconds"], row["error"], s=70, color=colour, zorder=3)
        place = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center", "color": colour}
        left.annotate(row["method"], (1000 * row["seconds"], row["error"]), **place)
    left.set(
        xscale="log",
        xlabel="time of a call, ms",
        ylabel="error against the deviation from the mean",
    )
    left.set_title(f"Error against time, {COUNT:,} points")
    left.set_ylim(-0.02, 1.25 * max(row["error"] for row in rows))
    left.margins(x=0.2)
    for method, found in times.items():
        label = f"{method}: N to the {exponent(found):.2f}"
        right.plot(
            COUNTS[: len(found)],
            [1000 * t for t in found],
            "o-",
            color=COLOURS[method],
            label=label,
        )
    right.set(
        xscale="log",
        yscale="log",
        xlabel="points N",
        ylabel="time of a call, ms",
        xlim=(COUNTS[0] / 1.2, COUNTS[-1] * 1.2),
    )
    right.set_title("Time against number of points")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    """Writes the figure whole or not at all: under a temporary name, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        figure.savefig(temporary, dpi=110)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="folder of the figure (default: demo)"
    )
    path = parser.parse_args().out / "demo.png"
    console = Console()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        rows = compare(progress)
        times = growth(progress)
    console.print(table_of(rows))
    for method, found in times.items():
        console.print(
            f"{method}: time grows as N to the {exponent(found):.2f}, from {FIT_FROM:,} to "
            f"{COUNTS[len(found) - 1]:,} points"
        )
    draw(rows, times, path)
    console.print(f"figure: {path}")


if __name__ == "__main__":
    main()
