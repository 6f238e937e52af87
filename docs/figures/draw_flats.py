r"""Draws a table without edges, predictions for new rows, and the rows that decided one of them:
``python docs/figures/draw_flats.py``."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from page import COLOURS, INK, LINE, POINT, mosaic, save

import phgcn

ROWS, NEW, DECIDING = 600, 4, 4
COLUMNS = ["east km", "north km", "area m²"]
HEADING = "#eceef2"


def flats(count: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Makes flats up: their price follows their area and, on a map, two dear quarters."""
    random = np.random.default_rng(0)
    east, north, area = *random.uniform(0, 8, (2, count)), random.uniform(30, 150, count)
    dear = [np.exp(-((east - x) ** 2 + (north - y) ** 2) / 2) for x, y in ((2, 6), (6, 3))]
    price = area * (3 + 4 * sum(dear)) + random.normal(0, 15, count)
    columns = dict(zip(COLUMNS, (east.round(1), north.round(1), area.round()), strict=True))
    return pd.DataFrame(columns), price.round()


def draw_map(axis: Axes, X: pd.DataFrame, price: np.ndarray, new: pd.Series, rows: list) -> None:
    known, colour = X[COLUMNS[:2]].to_numpy(), price / X[COLUMNS[2]]
    axis.scatter(*known.T, c=colour, s=14, cmap="YlGnBu", linewidths=0)
    for row in rows:
        axis.plot(*np.array([known[row], new[COLUMNS[:2]]]).T, color=POINT, linewidth=1)
        axis.scatter(*known[row], s=40, facecolors="none", edgecolors=POINT, linewidths=1.4)
    axis.scatter(*new[COLUMNS[:2]], s=110, marker="*", color=POINT, edgecolors="white", zorder=3)
    axis.set(aspect="equal", xlabel=COLUMNS[0], ylabel=COLUMNS[1])
    axis.set_title(f"{len(X)} flats whose price is known\n(dark: dear per m²)")


def draw_table(axis: Axes, title: str, lines: list, columns: list[str], colour: str) -> None:
    """Draws a table, its last column coloured."""
    axis.set_axis_off()
    axis.set_title(title, loc="left")
    table = axis.table(lines, colLabels=columns, bbox=[0, 0, 1, 1], cellLoc="right")
    table.auto_set_font_size(False)
    for (row, column), cell in table.get_celld().items():
        cell.set(edgecolor=LINE, linewidth=0.6, facecolor=HEADING if row == 0 else "white")
        last = column == len(columns) - 1 and row > 0
        cell.get_text().set(color=colour if last else INK, fontsize=8.5)
        cell.get_text().set_fontweight("bold" if last else "normal")


def cells(row: Iterable[float]) -> list[str]:
    east, north, area = row
    return [f"{east:.1f}", f"{north:.1f}", f"{area:.0f}"]


def main() -> None:
    X, price = flats(ROWS + NEW)
    known, new = X[:ROWS], X[ROWS:]
    regressor = phgcn.AttentionRegressor(parts="labels", coordinates=COLUMNS[:2])
    predicted = regressor.fit(known, price[:ROWS]).predict(new)
    rows, weights = regressor.neighbors(new[-1:], k=DECIDING)
    layout = [["map", "new"], ["map", "rows"]]
    figure, axes = mosaic(3.6, layout, width_ratios=(1, 1.25))
    draw_map(axes["map"], known, price[:ROWS], new.iloc[-1], list(rows[0]))
    lines = [
        [*cells(row), f"{paid:.0f}", f"{guess:.0f}"]
        for row, paid, guess in zip(new.to_numpy(), price[ROWS:], predicted, strict=True)
    ]
    columns = [*COLUMNS, "true", "predicted"]
    draw_table(
        axes["new"], "New rows, price in thousands (the last is the star)", lines, columns, POINT
    )
    lines = [
        [*cells(X.loc[row]), f"{price[row]:.0f}", f"{100 * weight:.0f} %"]
        for row, weight in zip(rows[0], weights[0], strict=True)
    ]
    columns = [*COLUMNS, "price", "weight"]
    draw_table(
        axes["rows"], "The rows that decided the last prediction", lines, columns, COLOURS[0]
    )
    save(figure, "flats")


if __name__ == "__main__":
    main()
