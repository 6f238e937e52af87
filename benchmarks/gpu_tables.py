r"""Tables of the GPU's measurements, as lines of Markdown.

Not run by itself: ``benchmarks/documents.py`` writes them into the documents.  Every function takes the contents of JSON files.
"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

from markdown_lines import origin, table

NODES, DIM = 1_000_000, 4
"""Of the graph that layers are timed on, and of their embeddings."""


def milliseconds(times: list[float]) -> str:
    return f"{statistics.median(times):.1f}"


# For users


def headline(measured: dict) -> list[str]:
    """One sentence for the README: the lattice, from the densest cloud to the sparsest."""
    times: dict[int, list[float]] = {}
    for r in measured["large"]:
        if r["method"] == "lattice":
            times.setdefault(r["count"], []).append(statistics.median(r["forward"]))
    parts = [f"{count:,} points in {min(ms):.0f} to {max(ms):.0f} ms" for count, ms in sorted(times.items())]
    peak = max(r["peak"] for r in measured["large"])
    return [f"On one H200, `lattice` takes {' and '.join(parts)} (64 channels, forward; with gradients within {peak:.0f} GB)."]


def speed(measured: dict) -> list[str]:
    rows = [
        [
            f"`{r['method']}`",
            f"{r['count']:,}",
            r["cloud"],
            *(f"{statistics.median(r[way]):.2f}" for way in ("forward", "both")),
        ]
        for r in measured["speed"]
    ]
    return [f"{origin(measured)}:", "", *table(["method", "N", "cloud", "forward, ms", "with backward, ms"], rows)]


def large(measured: dict) -> list[str]:
    rows = [
        [
            f"`{r['method']}`",
            r["cloud"],
            f"{r['count']:,}",
            milliseconds(r["forward"]),
            milliseconds(r["both"]),
            f"{r['peak']:.1f}",
        ]
        for r in measured["large"]
    ]
    return [
        f"{origin(measured)}:",
        "",
        *table(["method", "cloud", "N", "forward, ms", "with backward, ms", "peak, GB"], rows),
    ]


def layers(measured: dict) -> list[str]:
    found = measured["sections"]["layers"]
    gat = found["times"]["GATConv"]["median"]
    rows = [
        [name, f"{1000 * t['median']:.0f}", f"{t['median'] / gat:.2f}x", f"{found['memory'][name] / 1e9:.1f}"]
        for name, t in found["times"].items()
    ]
    return [
        f"A training step, 1,000,000 nodes, 10,000,000 edges, 8 heads of 8 channels ({origin(measured)}):",
        "",
        *table(["layer", "ms", "/ GATConv", "peak, GB"], rows),
    ]


def products(measured: dict) -> list[str]:
    """A training step of whole networks: time, its ratio to GCN's, and memory."""
    seconds = {r["model"]: statistics.median(r["seconds"]) for r in measured["rows"] if "seconds" in r}
    rows = [
        [
            r["model"],
            f"{1000 * seconds[r['model']]:,.0f}",
            f"{seconds[r['model']] / seconds['GCN']:.2f}x",
            f"{r['peak'] / 1e9:.0f}",
        ]
        if r["model"] in seconds
        else [r["model"], "does not fit", "", ""]
        for r in measured["rows"]
    ]
    shape = f"{measured['layers']} layers of {measured['heads']} x {measured['channels']} channels"
    return [
        f"A training step, {measured['nodes']:,} nodes, {measured['edges']:,} directed edges, {shape} ({origin(measured)}):",
        "",
        *table(["model", "ms", "/ GCN", "peak, GB"], rows),
    ]


def training(measured: dict) -> list[str]:
    """Epochs with their checkpoints, and their ratio to GAT's on the same graph."""
    found = measured["sections"]["training"]
    whole, shares = with_checkpoints(found)
    over_gat = {name: seconds / whole[f"{name.split(', ')[0]}, gat"] for name, seconds in whole.items()}
    rows = [
        [*name.split(", ", 1), f"{1000 * seconds:.2f}", f"{100 * shares[name]:.0f} %", f"{over_gat[name]:.2f}x"]
        for name, seconds in whole.items()
    ]
    ratios = " and ".join(f"{over_gat[f'{graph}, phgcn, CUDA graph']:.2f} ({graph})" for graph in ("texas", "cora"))
    return [
        f"{origin(measured)}. An epoch of `phgcn` takes {ratios} of the time of one of `gat`.",
        "",
        *table(["graph", "model", "epoch with checkpoints, ms", "checkpoints", "/ gat"], rows),
    ]


def with_checkpoints(found: dict) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of an epoch with its checkpoints, and the share of checkpoints in them.

    Files without ``checkpoint_share`` are from when a checkpoint followed every epoch: they hold the seconds of one.
    """
    seconds = {name: t["median"] for name, t in found["times"].items()}
    if "checkpoint_share" in found:
        return seconds, found["checkpoint_share"]
    whole = {name: seconds[name] + found["checkpoint_s"][name] for name in seconds}
    return whole, {name: found["checkpoint_s"][name] / whole[name] for name in whole}


def crossing_summary(measured: dict) -> list[str]:
    equal = sorted(equal_at(ratios) for ratios in ratios_by_cloud(measured).values())
    return [
        f"On one H200 they take equally long at {equal[0]:,.0f} to {equal[-1]:,.0f} points; the geometric mean of all clouds "
        f"is {statistics.geometric_mean(equal):,.0f}."
    ]


# For engineers


def speed_floors(measured: dict) -> list[str]:
    rows = []
    for r in measured["speed"]:
        forward = statistics.median(r["forward"])
        mark = "" if r["mark"] is None else f"≤ {r['mark']:g}, {'reached' if forward <= r['mark'] else 'missed'}"
        both = statistics.median(r["both"]) / forward
        rows.append(
            [f"`{r['method']}`", f"{r['count']:,}", r["cloud"], f"{forward:.2f}", mark, f"{r['floor']:.3f}", f"{both:.2f}x"]
        )
    return table(["method", "N", "cloud", "forward, ms", "mark", "floor, ms", "forward + backward / forward"], rows)


def stages(measured: dict) -> list[str]:
    """Every stage that takes 3 % or more."""
    kinds = {"forward": "forward", "both": "with backward"}
    rows = []
    for r in measured["stages"]:
        longest_first = sorted(r["stages"].items(), key=lambda part: -part[1]["ms"])
        parts = [f"{name} {part['ms']:.2f}" for name, part in longest_first if part["ms"] >= 0.03 * r["ms"]]
        parts.append(f"between {r['between']:.2f}")
        rows.append([f"`{r['method']}`", f"{r['count']:,}", r["cloud"], kinds[r["kind"]], f"{r['ms']:.2f}", "; ".join(parts)])
    return table(["method", "N", "cloud", "", "ms", "stages, ms"], rows)


def kernel_name(name: str) -> str:
    """The name of a kernel without what the libraries' compilers put around it."""
    short = name.removeprefix("void ").split("<")[0].split("(")[0].split("::")
    return "sort" if "RadixSort" in name else short[-1].strip()


LAYER_MARKS = {"EDAConv": 1 / 3, "PHGCNConv": 2.0, "PHGCNConv, clusters": 2.0}
"""The most time that a layer may take, in times of GATConv."""


def over_gat(name: str, times: dict, most: float | None) -> str:
    """The time of a layer over that of GATConv, with the mark if there is one."""
    ratio = times[name]["median"] / times["GATConv"]["median"]
    if most is None:
        return f"{ratio:.2f}x"
    return f"{ratio:.2f}x (≤ {most:.2g}x, {'reached' if ratio <= most else 'missed'})"


def layer_floors(measured: dict) -> list[str]:
    found = measured["sections"]["layers"]
    # Positions and values of every node and head are read, the output is written; then both and the gradient of the output are
    # read, and the gradients of both written.
    numbers = NODES * measured["heads"] * (3 * DIM + 5 * measured["channels"])
    globally = 4 * numbers / measured["copy_bytes_per_s"]
    rows = []
    for name, t in found["times"].items():
        floor = found["structural_floor_s"] + (globally if name.startswith("PHGCN") else 0)
        longest = list(found["kernels"][name].items())[:6]
        parts = ", ".join(f"{kernel_name(kernel)} {part['ms']:.1f}" for kernel, part in longest)
        ratio = over_gat(name, found["times"], LAYER_MARKS.get(name))
        rows.append([name, f"{1000 * t['median']:.0f}", f"{1000 * floor:.1f}", ratio, parts])
    return table(["layer", "ms", "floor, ms", "/ GATConv (mark)", "the six longest kernels, ms"], rows)


def small_layers(measured: dict) -> list[str]:
    steps = measured["sections"]["small"]
    rows = []
    for name, t in steps["times"].items():
        ratio = over_gat(name, steps["times"], 1.0 if name.startswith(tuple(LAYER_MARKS)) else None)
        floor, kernels = f"{1000 * steps['floor_s']:.3f}", str(steps["launches"].get(name, ""))
        rows.append([name, f"{1000 * t['median']:.2f}", floor, ratio, kernels])
    return [
        "A training step on a graph of 183 nodes with 1,703 features, the size of texas:",
        "",
        *table(["layer", "ms", "floor, ms", "/ GATConv (mark)", "kernels"], rows),
    ]


def exact(measured: dict) -> list[str]:
    found = measured["sections"]["exact"]
    forward, backward = (1000 * found["times"][f"exact {way}"]["median"] for way in ("forward", "backward"))
    ratio = (forward + backward) / forward
    reached = {True: "reached", False: "missed"}
    return table(
        ["", "measured", "mark"],
        [
            ["forward, ms", f"{forward:.1f}", f"≤ {found['mark_ms']:.0f}, {reached[forward <= found['mark_ms']]}"],
            ["backward alone, ms", f"{backward:.1f}", ""],
            ["forward + backward / forward", f"{ratio:.2f}x", f"≤ 3.5, {reached[ratio <= 3.5]}"],
            ["error of the output", f"{found['error']:.1e}", ""],
            *[[f"error of the gradients of {of}", f"{error:.1e}", ""] for of, error in found["gradient_errors"].items()],
        ],
    )


def launches(measured: dict) -> list[str]:
    rows = []
    for r in measured["launches"]:
        ours, triton = (statistics.median(r[way]) for way in ("direct", "triton"))
        rows.append([r["what"], f"{ours:.2f}", f"{triton:.2f}", f"{triton / ours:.2f}x"])
    return [f"{origin(measured)}:", "", *table(["", "direct, ms", "Triton's, ms", "Triton's / direct"], rows)]


def ratios_by_cloud(measured: dict) -> dict[tuple, dict[int, float]]:
    """Time of the exact sum over that of the lattice, by dimension, channels and cloud, then by the number of points."""
    clouds: dict[tuple, dict[int, float]] = {}
    for r in measured["crossing"]:
        clouds.setdefault((r["dim"], r["channels"], r["cloud"]), {})[r["count"]] = r["ratio"]
    return clouds


def crossing(measured: dict) -> list[str]:
    clouds = ratios_by_cloud(measured)
    sizes = sorted({count for ratios in clouds.values() for count in ratios})
    rows = [[*map(str, cloud), *(f"{ratios[n]:.2f}" for n in sizes)] for cloud, ratios in clouds.items()]
    return table(["D", "channels", "cloud", *(f"N={n:,}" for n in sizes)], rows)


def equal_at(ratios: dict[int, float]) -> float:
    """Where a ratio that grows with the number of points becomes 1; linear in logarithms between two sizes."""
    sizes = sorted(ratios)
    low, high = next(pair for pair in pairwise(sizes) if ratios[pair[0]] < 1 <= ratios[pair[1]])
    share = -math.log(ratios[low]) / math.log(ratios[high] / ratios[low])
    return low * (high / low) ** share
