r"""Writes the results of the GPU benchmarks into docs/performance.md and README.md, between their marks.

python benchmarks/gpu_tables.py    # after gpu.py and gpu_layers.py
"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

from tables import ROOT, results, table, write

NODES, DIM = 1_000_000, 4
"""Of the graph that layers are timed on, and of their embeddings."""


def milliseconds(times: list[float]) -> str:
    return f"{statistics.median(times):.1f}"


def speed(measured: dict) -> list[str]:
    rows = []
    for r in measured["speed"]:
        forward = statistics.median(r["forward"])
        mark = "" if r["mark"] is None else f"≤ {r['mark']:g}, {'reached' if forward <= r['mark'] else 'missed'}"
        both = statistics.median(r["both"]) / forward
        cells = [f"`{r['method']}`", f"{r['count']:,}", r["cloud"], f"{forward:.2f}", mark, f"{r['floor']:.3f}", f"{both:.2f}x"]
        rows.append(cells)
    return table(["method", "N", "cloud", "forward, ms", "mark", "floor, ms", "forward + backward / forward"], rows)


def large(measured: dict, copied: float) -> list[str]:
    """``copied``: milliseconds that it takes to read and write what belongs to one point."""
    rows = [
        [
            f"`{r['method']}`",
            r["cloud"],
            f"{r['count']:,}",
            milliseconds(r["forward"]),
            f"{r['count'] * copied:.1f}",
            milliseconds(r["both"]),
            f"{r['peak']:.1f}",
        ]
        for r in measured["large"]
    ]
    return table(["method", "cloud", "N", "forward, ms", "floor, ms", "with backward, ms", "peak, GB"], rows)


def stages(measured: dict) -> list[str]:
    """Every stage that takes 3 % or more, with its floor."""
    kinds = {"forward": "forward", "both": "with backward"}
    rows = []
    for r in measured["stages"]:
        parts = sorted(r["stages"].items(), key=lambda part: -part[1]["ms"])
        told = [f"{name} {part['ms']:.2f} ({part['floor']:.2f})" for name, part in parts if part["ms"] >= 0.03 * r["ms"]]
        told.append(f"between {r['between']:.2f}")
        rows.append([f"`{r['method']}`", f"{r['count']:,}", r["cloud"], kinds[r["kind"]], f"{r['ms']:.2f}", "; ".join(told)])
    return table(["method", "N", "cloud", "", "ms", "stages, ms (floor)"], rows)


def kernel_name(name: str) -> str:
    """The name of a kernel without what the libraries' compilers put around it."""
    short = name.removeprefix("void ").split("<")[0].split("(")[0].split("::")
    return "sort" if "RadixSort" in name else short[-1].strip()


def layers(measured: dict, small: dict) -> list[str]:
    found, gat = measured["sections"]["layers"], measured["sections"]["layers"]["times"]["GATConv"]["median"]
    # Positions and values of every node and head are read, the output is written; then both and the gradient of the output are
    # read, and the gradients of both written.
    numbers = NODES * measured["heads"] * (3 * DIM + 5 * measured["channels"])
    globally = 4 * numbers / measured["copy_bytes_per_s"]
    big = [
        [
            name,
            f"{1000 * t['median']:.0f}",
            f"{1000 * (found['structural_floor_s'] + (globally if name.startswith('PHGCN') else 0)):.1f}",
            f"{t['median'] / gat:.2f}x",
            f"{found['memory'][name] / 1e9:.1f}",
        ]
        for name, t in found["times"].items()
    ]
    parts = []
    for name in found["times"]:
        longest = list(found["kernels"][name].items())[:6]
        parts.append(f"- {name}: " + ", ".join(f"{kernel_name(kernel)} {part['ms']:.1f}" for kernel, part in longest))
    steps = small["sections"]["small"]
    rows = [
        [name, f"{1000 * t['median']:.2f}", f"{1000 * steps['floor_s']:.3f}", str(steps["launches"].get(name, ""))]
        for name, t in steps["times"].items()
    ]
    return [
        "A training step, 1,000,000 nodes, 10,000,000 edges, 8 heads of 8 channels:",
        "",
        *table(["layer", "ms", "floor, ms", "/ GATConv", "peak, GB"], big),
        "",
        "The floor: what must be gathered along edges, and, for global attention, positions, values and gradients read and "
        "written once, at the speed of a copy. Where the time goes, ms by kernel, the six longest:",
        "",
        *parts,
        "",
        "A training step on a graph of 183 nodes with 1,703 features, the size of texas:",
        "",
        *table(["layer", "ms", "floor, ms", "kernels"], rows),
    ]


def exact(measured: dict, floor: float) -> list[str]:
    """``floor``: milliseconds that it takes to read and write what belongs to all points."""
    found = measured["sections"]["exact"]
    forward, backward = (1000 * found["times"][f"exact {way}"]["median"] for way in ("forward", "backward"))
    ratio = (forward + backward) / forward
    reached = {True: "reached", False: "missed"}
    return table(
        ["", "measured", "mark"],
        [
            ["forward, ms", f"{forward:.1f}", f"≤ {found['mark_ms']:.0f}, {reached[forward <= found['mark_ms']]}"],
            ["its floor, ms", f"{floor:.3f}", ""],
            ["backward alone, ms", f"{backward:.1f}", ""],
            ["forward + backward / forward", f"{ratio:.2f}x", f"≤ 3.5, {reached[ratio <= 3.5]}"],
            ["error of the output", f"{found['error']:.1e}", ""],
            *[[f"error of the gradients of {of}", f"{error:.1e}", ""] for of, error in found["gradient_errors"].items()],
        ],
    )


def training(measured: dict) -> list[str]:
    found = measured["sections"]["training"]
    rows = [
        [name, f"{1000 * t['median']:.2f}", f"{1000 * t['min']:.2f}", f"{1000 * found['floor_s'][name]:.3f}"]
        for name, t in found["times"].items()
    ]
    return table(["graph and model", "ms", "least", "floor, ms"], rows)


def launches(measured: dict) -> list[str]:
    rows = []
    for r in measured["launches"]:
        ours, triton = (statistics.median(r[way]) for way in ("direct", "triton"))
        rows.append([r["what"], f"{ours:.2f}", f"{triton:.2f}", f"{triton / ours:.2f}x"])
    return table(["", "ours, ms", "Triton's, ms", "Triton's / ours"], rows)


def crossing(measured: dict) -> list[str]:
    clouds: dict[tuple, dict[int, float]] = {}
    for r in measured["crossing"]:
        clouds.setdefault((r["dim"], r["channels"], r["cloud"]), {})[r["count"]] = r["ratio"]
    sizes = sorted({count for ratios in clouds.values() for count in ratios})
    rows = [[*map(str, cloud), *(f"{ratios[n]:.2f}" for n in sizes)] for cloud, ratios in clouds.items()]
    equal = sorted(equal_at(ratios) for ratios in clouds.values())
    return [
        *table(["D", "channels", "cloud", *(f"N={n:,}" for n in sizes)], rows),
        "",
        f"They are equal between {equal[0]:,.0f} and {equal[-1]:,.0f} points, in the mean of all clouds at "
        f"{statistics.geometric_mean(equal):,.0f} (between two sizes, logarithms are taken for linear).",
    ]


def equal_at(ratios: dict[int, float]) -> float:
    """Where a ratio that grows with the number of points becomes 1."""
    sizes = sorted(ratios)
    low, high = next(pair for pair in pairwise(sizes) if ratios[pair[0]] < 1 <= ratios[pair[1]])
    share = -math.log(ratios[low]) / math.log(ratios[high] / ratios[low])
    return low * (high / low) ** share


def headline(measured: dict) -> list[str]:
    """One sentence for the README: the lattice, from the densest cloud to the sparsest."""
    times: dict[int, list[float]] = {}
    for r in measured["large"]:
        if r["method"] == "lattice":
            times.setdefault(r["count"], []).append(statistics.median(r["forward"]))
    told = [f"{count:,} points in {min(found):.0f} to {max(found):.0f} ms" for count, found in sorted(times.items())]
    peak = max(r["peak"] for r in measured["large"])
    return [f"On one H200, `lattice` takes {' and '.join(told)} (64 channels, forward; with gradients within {peak:.0f} GB)."]


def section(name: str) -> dict:
    """The results of the last run of ``gpu.py`` that has a section."""
    return next(run for run in map(results, ("gpu", "gpu_stages", "gpu_large", "gpu_crossing", "gpu_launches")) if name in run)


def main() -> None:
    page, readme = ROOT / "docs" / "performance.md", ROOT / "README.md"
    write(readme, "gpu", headline(section("large")))
    write(page, "speed", speed(section("speed")))
    write(page, "stages", stages(section("stages")))
    one = section("speed")["speed"][0]
    write(page, "large", large(section("large"), one["floor"] / one["count"]))
    write(page, "layers", layers(results("gpu_layers"), results("gpu_small")))
    write(page, "exact", exact(results("gpu_exact"), one["floor"]))
    write(page, "training", training(results("gpu_training")))
    write(page, "launches", launches(section("launches")))
    write(page, "crossing", crossing(section("crossing")))
    print(f"written: {page}, {readme}")


if __name__ == "__main__":
    main()
