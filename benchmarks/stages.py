r"""Where the time of a forward goes on the CPU, stage by stage.

    python benchmarks/stages.py              # half a minute
    python benchmarks/stages.py --quick      # a small cloud, to see that it works

Prints a table per method and cloud, stage -> ms; writes ``benchmarks/results/stages.json``.  A stage is a file of the backend
(``benchmarks/stage_timer.py``).  Of several forwards the fastest counts.  The floor of the whole: reading points and values and
writing the output, at the speed of a large copy on all cores measured in the same run.
"""

from __future__ import annotations

import argparse

import common
import torch
from rich.progress import track
from rich.table import Table
from stage_timer import StageTimer

import phgcn

COUNT = 200_000
QUICK_COUNT = 20_000
DIM = 4
CHANNELS = 17
SPREADS = (1, 3, 10)
METHODS = ("lattice", "separable")
ROUNDS = 7
COPY_BYTES = 2**28
BETWEEN = "between stages"


def copy_speed() -> float:
    """Bytes read and written per second by a large copy on all cores: the best of several."""
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / min(common.seconds(lambda: target.copy_(source)) for _ in range(8))


def measure(count: int, spread: float, method: str, speed: float, rounds: int) -> dict[str, dict]:
    """The stages of the fastest of several forwards: milliseconds, floor, and times the floor."""
    points, values = common.cloud(f"spread {spread}", count, DIM), common.random_features(count, CHANNELS)
    phgcn.global_attention(points, values, decay=1.0, method=method)  # compiles before anything is wrapped
    runs = []
    for _ in range(rounds):
        with StageTimer("phgcn.lattice.numba", ("phgcn.runtime.graphs", "phgcn.runtime.rows")) as timer:
            whole = 1000 * common.seconds(lambda: phgcn.global_attention(points, values, decay=1.0, method=method))
        runs.append((whole, timer))
    whole, fastest = min(runs, key=lambda run: run[0])
    times = fastest.stages()
    longest_first = sorted(times.items(), key=lambda part: -part[1])
    floor = 1000 * 4 * count * (DIM + 2 * CHANNELS) / speed
    return {
        **{stage: {"ms": ms, "floor_ms": None} for stage, ms in longest_first},
        BETWEEN: {"ms": whole - sum(times.values()), "floor_ms": None},
        "all": {"ms": whole, "floor_ms": floor},
    }


def table_of(found: dict[str, dict], title: str) -> Table:
    table = Table(title=title)
    for heading in ("stage", "ms", "floor ms"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for stage, e in found.items():
        floor = f"{e['floor_ms']:.2f}" if e["floor_ms"] else ""
        table.add_row(stage, f"{e['ms']:.1f}", floor, style="bold" if stage == "all" else None)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small cloud")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"forwards to take the fastest of (default: {ROUNDS})")
    parser.add_argument("--out", default=common.RESULTS / "stages.json", help="where the JSON goes")
    options = parser.parse_args()
    count = QUICK_COUNT if options.quick else COUNT
    console, speed = common.wide_console(), copy_speed()
    cases = [(method, spread) for method in METHODS for spread in SPREADS]
    found = {
        f"{method}, spread {spread}": measure(count, spread, method, speed, options.rounds)
        for method, spread in track(cases, description="measuring (the first compiles kernels)", console=console)
    }
    for name, stages in found.items():
        console.print(table_of(stages, f"{name}: N={count:,}, C={CHANNELS}, D={DIM}, float32"))
    console.print(f"A copy moves {speed / 1e9:.1f} GB/s, read and written bytes together.")
    content = {"provenance": common.provenance(), "count": count, "channels": CHANNELS, "dim": DIM}
    common.write_json(options.out, {**content, "copy_bytes_per_second": speed, "stages": found})
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
