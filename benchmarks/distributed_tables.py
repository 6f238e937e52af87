r"""Tables of global attention over processes, as lines of Markdown: what was measured, and what a model makes of it.

Not run by itself: ``benchmarks/documents.py`` writes them into ``docs/distributed.md``.  The model is of arithmetic alone:
times and memory per point on one H200 (``gpu_large.json``), the time to index a vertex (``gpu_stages.json``), vertices per
point (``distributed.json``), and a bandwidth.
"""

from __future__ import annotations

from typing import Any

from markdown_lines import machine, origin, table

MARKS = {"spread 1": 1.6, "spread 10": 1.3}
MEMORY_MARK = 0.65
NODES, GPUS = (10**8, 10**9), (8, 64, 256)
BANDWIDTH = 50e9
"""Bytes that a GPU sends per second: a network card of 400 Gb/s."""
MEMORY = 141e9
"""Bytes of an H200."""
BYTES = 4


def speed(measured: dict[str, Any]) -> list[str]:
    """Time, bytes and memory of two processes beside one."""
    rows = []
    for cloud, found in measured["clouds"].items():
        one, two = found["1"], found["2"]
        formula = sum(two["formula"].values())
        wall, cpu = one["both"] / two["both"], one["cpu"] / two["cpu"]
        rows.append(
            [
                cloud, f"{1000 * one['both']:,.0f}", f"{1000 * two['both']:,.0f}", f"{wall:.2f} (mark {MARKS[cloud]})",
                f"{one['both'] / found['apart']['both']:.2f}", f"{cpu:.2f}",
                f"{two['sent'] / 1e6:,.1f}", f"{formula / 1e6:,.1f}",
                f"{two['peak'] / one['peak']:.2f} (mark {MEMORY_MARK})",
            ]
        )  # fmt: skip
    about = measured["provenance"]
    said = f"N = {measured['count']:,}, D = {measured['dim']}, C = {measured['channels']}, {machine(about)}, "
    said += f"load {about['load']} before, {origin(measured)}:"
    heading = [
        "cloud", "1 process, ms", "2 processes, ms", "times faster", "two halves apart", "by processor time",
        "MB sent", "by the formula",
        "peak memory",
    ]  # fmt: skip
    return [said, "", *table(heading, rows)]


def sites_per_point(measured: dict[str, Any], cloud: str) -> tuple[float, float]:
    """Sites of the finest level, and of all levels, per point."""
    sites, count = measured["clouds"][cloud]["2"]["sizes"]["sites"], measured["count"]
    return sites[0] / count, sum(sites) / count


def predict(
    measured: dict[str, Any], gpu: dict[str, Any], stages: dict[str, Any], cloud: str, nodes: int, gpus: int
) -> dict[str, float]:
    """Seconds and bytes of a forward and a backward pass on so many GPUs, for each of them.

    Args:
        measured, gpu, stages (dict): ``distributed.json``, ``gpu_large.json`` and ``gpu_stages.json``.
        cloud (str), nodes, gpus (int): The case.
    """
    largest = max(
        (row for row in gpu["large"] if (row["method"], row["cloud"]) == ("lattice", cloud)), key=lambda r: r["count"]
    )
    per_point, peak = min(largest["both"]) / 1000 / largest["count"], 1e9 * largest["peak"] / largest["count"]
    finest, every = sites_per_point(measured, cloud)
    grown = measured["count"] if cloud == "spread 1" else nodes  # a dense cloud fills no more vertices; a sparse one grows
    width = (measured["channels"] + 1 + 7) // 8 * 8
    numbers = 3 * width * (2 * finest + every) * grown * (gpus - 1) / gpus
    near = 0 if cloud == "spread 1" else (gpus - 1) * nodes / gpus * (2 * measured["dim"] + 3 * width)
    return {
        "compute": per_point * nodes / gpus,
        "replicated": seconds_per_vertex(measured, stages) * every * grown,
        "exchange": BYTES * (numbers + near) / BANDWIDTH,
        "points": peak * nodes / gpus,
        "table": BYTES * 2 * width * (finest + every) * grown,
    }


def seconds_per_vertex(measured: dict[str, Any], stages: dict[str, Any]) -> float:
    """What it takes a GPU to sort and number one vertex: the stages that do so, per corner of a simplex."""
    rows = [
        row for row in stages["stages"] if (row["method"], row["cloud"], row["kind"]) == ("lattice", "spread 10", "forward")
    ]
    largest = max(rows, key=lambda row: row["count"])
    spent = sum(largest["stages"][stage]["ms"] for stage in ("keys", "index", "runs"))
    return spent / 1000 / largest["count"] / (measured["dim"] + 1)


def model(measured: dict[str, Any], gpu: dict[str, Any], stages: dict[str, Any]) -> list[str]:
    """What a layer would take on more GPUs than can be had here."""
    rows = []
    for cloud in measured["clouds"]:
        for nodes in NODES:
            for gpus in GPUS:
                found = predict(measured, gpu, stages, cloud, nodes, gpus)
                memory = found["points"] + found["table"]
                rows.append(
                    [
                        cloud, f"{nodes / 1e6:,.0f} million", f"{gpus}", _seconds(found["compute"]),
                        _seconds(found["replicated"]), _seconds(found["exchange"]),
                        f"{found['points'] / 1e9:,.1f}", f"{found['table'] / 1e9:,.1f}", "yes" if memory < MEMORY else "no",
                    ]
                )  # fmt: skip
    width = (measured["channels"] + 1 + 7) // 8 * 8
    finest, every = sites_per_point(measured, "spread 10")
    most = MEMORY / 2 / (BYTES * 2 * width * (finest + every) / finest)
    heading = [
        "cloud",
        "nodes",
        "GPUs",
        "of its points",
        "of all vertices",
        "exchange",
        "points, GB",
        "table, GB",
        f"fits {MEMORY / 1e9:.0f} GB",
    ]
    last = f"Half of a GPU's memory holds a replicated table of {most / 1e6:,.0f} million vertices of the finest level."
    return [*table(heading, rows), "", last]


def _seconds(value: float) -> str:
    return f"{1000 * value:,.1f} ms" if value < 1 else f"{value:,.1f} s"
