r"""Training on a large table: time of a step and of an evaluation, and the peak of the memory.

    python benchmarks/large_tables.py                      # 1,000,000 rows of 20 columns
    python benchmarks/large_tables.py --rows 100000        # smaller

The table is generated: normal columns, and a label that is smooth in four of them.  Steps draw
65,536 training rows at random, 70 % of which are keys; an evaluation attends from all rows to all
training rows.  Writes ``benchmarks/results/large_tables.json``.
"""

from __future__ import annotations

import argparse
import resource
import time

import common
import torch
from torch_geometric.data import Data

from phgcn.files import write_json
from phgcn.train import Plan, resolve
from phgcn.train.prepare import prepare, seeded, start

ROWS, COLUMNS, BATCH, STEPS = 1_000_000, 20, 65_536, 20


def make_table(rows: int, columns: int) -> Data:
    """Makes a table as a graph without edges."""
    random = torch.Generator().manual_seed(common.SEED)
    x = torch.randn(rows, columns, generator=random)
    y = torch.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] * x[:, 3] + 0.1 * torch.randn(rows, generator=random)
    names = [f"column {number}" for number in range(columns)]
    parts = {"feature_names": names, "feature_columns": names, "classes": [], "num_classes": 0, "task": "regression"}
    edges = torch.zeros(2, 0, dtype=torch.int64)
    return Data(x=x, y=y, edge_index=edges, name="table", node_id=list(map(str, range(rows))), num_nodes=rows, **parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps that are timed (default: {STEPS})")
    parser.add_argument("--out", default=common.RESULTS / "large_tables.json", help="where the JSON goes")
    options = parser.parse_args()
    changes = ["parts=labels", "method=lattice", f"batch_rows={BATCH}", f"epochs={options.steps}", "warmup=1"]
    settings = resolve("table", changes=[*changes, f"evaluate_every={options.steps}"]).settings
    plan = Plan("table", "table", splits=1, metric="rmse", task="regression", settings=settings)
    begin = time.perf_counter()
    (task,) = prepare(plan, make_table(options.rows, COLUMNS))
    prepared, steps = time.perf_counter() - begin, []
    with seeded(0, task):
        training = start(plan, task)
        for _ in range(options.steps):
            first = time.perf_counter()
            training._step()
            steps.append(time.perf_counter() - first)
        first = time.perf_counter()
        training._logits()
        evaluation = time.perf_counter() - first
    row = {
        "rows": options.rows, "columns": COLUMNS, "batch_rows": BATCH, "steps": options.steps, "prepared_seconds": prepared,
        "step_seconds": sorted(steps)[len(steps) // 2], "evaluation_seconds": evaluation,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "threads": torch.get_num_threads(),
    }  # fmt: skip
    write_json(options.out, {"provenance": common.provenance(), "rows": [row]})
    print(row)


if __name__ == "__main__":
    main()
