r"""Writes every table of measured figures in README.md and docs/ from the JSON it comes from.

python lab/bench/documents.py            # all tables and pages
python lab/bench/documents.py graphs     # some of them

A table stands between two marks, ``<!-- NAME: FUNCTION, FILES -->`` and ``<!-- end NAME -->``, that
name what makes it.  Adding a table: an entry in :data:`TABLES` and the two marks in the document.
``tests/docs`` compares documents and JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import accuracy
import ages
import before_after
import crossing
import distributed
import explore
import first_call
import from_nothing
import gpu_filter
import gpu_layers
import graph_counts
import hostile
import ladder_choices
import ladder_scatter
import large_tables
import lattice
import layers
import memory
import over_smoothing
import read_graphs
import result_tables
import search
import sparse_features
import split_overlap
import table_keys
import trained
import training
import weight_decay
import within_class

from phgcn_lab import embeddings_report, motif_report
from phgcn_lab.benchmark import report as benchmark_report
from phgcn_lab.rivals import report as rivals_report

ROOT = Path(__file__).resolve().parents[2]
BENCH, RESULTS = "lab/bench/results", "docs/results"
README, LATTICE, PERFORMANCE = "README.md", "docs/lattice.md", "docs/performance.md"
CPU_NOTES, LADDER_NOTES = "docs/engineering/cpu.md", "docs/engineering/ladder.md"
DATA, PAPER = "docs/data.md", "docs/paper.md"
RIVALS, WHEN, KERNEL_SUMS = "docs/benchmark.md", "docs/where-attention-helps.md", "docs/rivals.md"


class Table(NamedTuple):
    page: str
    sources: tuple[str, ...]  # JSON files
    lines: Callable[..., list[str]]  # takes their contents


class Page(NamedTuple):
    sources: tuple[str, ...]
    text: Callable[..., str]


def _of(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.json" for name in names)


BENCH_TABLES = {
    # The filter on the CPU
    "headline": (README, accuracy.headline, "accuracy"),
    "accuracy": (LATTICE, accuracy.accuracy_tables, "accuracy"),
    "hostile": (LATTICE, hostile.hostile_table, "hostile"),
    "trained": (LATTICE, trained.errors_of, "trained"),
    "cpu-crossing": (PERFORMANCE, crossing.crossing_summary, "crossing"),
    "cpu-speed": (PERFORMANCE, lattice.speed_table, "lattice"),
    "cpu-layers": (PERFORMANCE, layers.layer_table, "layers"),
    "ladder-gate": (LADDER_NOTES, hostile.gate_table, "hostile", "hostile_before"),
    "ladder-choices": (LADDER_NOTES, ladder_choices.choice_table, "ladder_choices"),
    "ladder-kernels": (LADDER_NOTES, ladder_choices.kernel_table, "ladder_choices"),
    "ladder-scatter": (LADDER_NOTES, ladder_scatter.scatter_table, "ladder_scatter"),
    "cpu-marks": (CPU_NOTES, lattice.speed_marks, "lattice"),
    "cpu-crossing-all": (CPU_NOTES, crossing.crossing_table, "crossing"),
    "cpu-layer-marks": (CPU_NOTES, layers.layer_marks, "layers"),
    "before-after": (LADDER_NOTES, before_after.before_after_table, "before_after"),
    "first-calls": (PERFORMANCE, first_call.first_calls, "first_call"),
    # On a GPU
    "gpu-headline": (README, gpu_filter.headline, "gpu_large"),
    "gpu-crossing": (PERFORMANCE, gpu_filter.crossing_summary, "gpu_crossing"),
    "gpu-speed": (PERFORMANCE, gpu_filter.speed_table, "gpu_speed"),
    "gpu-large": (PERFORMANCE, gpu_filter.large_table, "gpu_large"),
    "gpu-layers": (PERFORMANCE, gpu_layers.layer_table, "gpu_layers"),
    "gpu-products": (PERFORMANCE, gpu_layers.product_table, "products"),
    # Over processes
    "distributed-speed": ("docs/distributed.md", distributed.speed_table, "distributed"),
    # Training and files
    "training-loop": (CPU_NOTES, training.training_loop, "training"),
    "from-nothing": ("CONTRIBUTING.md", from_nothing.rows_of, "from_nothing"),
    "versions": ("docs/versions.md", result_tables.versions, "versions"),
    "sparse-features": (DATA, sparse_features.rows_of, "sparse_features"),
    "graph-files": (CPU_NOTES, read_graphs.rows_of, "read_graphs"),
    "explorer-marks": ("docs/engineering/explorer.md", explore.marks_of, "explore"),
    # The paper's experiments
    "weight-decay": (PAPER, weight_decay.rows_of, "weight_decay"),
    "over-smoothing": (PAPER, over_smoothing.rows_of, "over_smoothing"),
    "split-overlap": (PAPER, split_overlap.rows_of, "split_overlap"),
    "within-class": (PAPER, within_class.rows_of, "within_class"),
    "memory": ("docs/layers.md", memory.rows_of, "memory"),
    # GlobalGNN and its rivals
    "searched-nodes": (RIVALS, split_overlap.searched, "split_overlap"),
    "search": (RIVALS, search.search_marks, "search"),
    "search-recipes": (RIVALS, search.search_recipes, "search"),
    "large-tables": (WHEN, large_tables.rows_of, "large_tables"),
    "table-keys": (WHEN, table_keys.keys_of_steps, "table_keys"),
}
RESULT_TABLES = {
    # The paper's experiments
    "graphs": (PAPER, result_tables.accuracies, "table"),
    "gallery": ("docs/gallery.md", result_tables.gallery, "gallery"),
    "claims": (PAPER, result_tables.claims, "table"),
    "geom-gcn": (PAPER, result_tables.geom_gcn, "table"),
    "methods": (PAPER, result_tables.methods, "table-differences"),
    "motif": (PAPER, motif_report.table_lines, "motif"),
    "embeddings": (PAPER, embeddings_report.table_lines, "embeddings"),
    "scaling": (PAPER, result_tables.scaling, "scaling", "scaling-gpu"),
    # GlobalGNN and its rivals
    "benchmark": (RIVALS, benchmark_report.accuracy_table, "benchmark", "table"),
    "benchmark-differences": (RIVALS, benchmark_report.difference_table, "benchmark"),
    "benchmark-effort": (RIVALS, benchmark_report.effort_table, "benchmark"),
    "when": (WHEN, result_tables.when, "when"),
    "tables": (WHEN, result_tables.tables, "tables"),
    "city": (WHEN, result_tables.city, "city"),
    "labels": (WHEN, result_tables.labels, "labels"),
    # Other ways to sum the kernel
    "rivals": (KERNEL_SUMS, rivals_report.choice_block, "rivals"),
    "rivals-gpu": (KERNEL_SUMS, rivals_report.choice_block, "rivals-gpu"),
    "rivals-leaders": (KERNEL_SUMS, rivals_report.leader_block, "rivals"),
}
TABLES = {
    name: Table(page, _of(folder, *sources), lines)
    for folder, tables in ((BENCH, BENCH_TABLES), (RESULTS, RESULT_TABLES))
    for name, (page, lines, *sources) in tables.items()
}
"""All tables by the name in their marks: the page, the function that makes them, the JSON."""

PAGES = {f"{RESULTS}/graphs.md": Page(_of(RESULTS, "graphs"), graph_counts.page)}


@cache
def content(source: str) -> Any:
    return json.loads((ROOT / source).read_text(encoding="utf-8"))


def origins(found: Any, date: str = "") -> set[tuple[str, str]]:
    """Returns the commits and dates that a JSON says its figures are of: its own and those of its
    rows and parts. A part without a date has ``date``, that of the whole.
    """
    if isinstance(found, list):
        return {pair for row in found for pair in origins(row, date)}
    if not isinstance(found, dict):
        return set()
    about = found.get("provenance", found)
    date = (about.get("date") or date)[:10]
    commits = about.get("commit") or []
    commits = [commits] if isinstance(commits, str) else commits
    own = {(commit[:7], date) for commit in commits if date}
    return own.union(*(origins(part, date) for part in found.values()))


def is_dirty(found: Any) -> bool:
    if isinstance(found, list):
        return any(map(is_dirty, found))
    return isinstance(found, dict) and (
        found.get("dirty") is True or any(map(is_dirty, found.values()))
    )


def measured_at(sources: tuple[str, ...]) -> str:
    """Names commits and dates in one sentence; of many commits the number."""
    pairs = {pair for source in sources for pair in origins(content(source))}
    dates = sorted({date for _, date in pairs})
    commits = sorted({commit for commit, _ in pairs})
    if not pairs:
        return ""
    named = f"commit {', '.join(commits)}" if len(commits) <= 3 else f"at {len(commits)} commits"
    when = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
    return f"Measured {when}, {named}."


def block(name: str) -> str:
    """A table with its marks, commit and date. Without its JSON nothing is measured yet."""
    table = TABLES[name]
    lines = ["Not measured yet."]
    if all((ROOT / source).is_file() for source in table.sources):
        lines = table.lines(*map(content, table.sources))
        if not any("ommit" in line for line in lines) and (where := measured_at(table.sources)):
            lines = [*lines, "", where]
        if old := ages.sentence(table.sources):
            lines = [*lines, "", old]
        if any(is_dirty(content(source)) for source in table.sources):
            lines = [*lines, "", "The code had changes that were not committed."]
    maker = f"{table.lines.__module__}.{table.lines.__name__}".replace("__main__", "documents")
    text = "\n".join(lines)
    heading = f"<!-- {name}: {maker}, {', '.join(table.sources)} -->"
    return f"{heading}\n\n{text}\n\n<!-- end {name} -->"


def pattern(name: str) -> str:
    return rf"<!-- {re.escape(name)}(?:: [^\n]*)? -->.*?<!-- end {re.escape(name)} -->"


def page_text(path: str) -> str:
    page = PAGES[path]
    return page.text(*map(content, page.sources))


def write_table(name: str) -> None:
    path = ROOT / TABLES[name].page
    new, count = re.subn(
        pattern(name), lambda _: block(name), path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{path} has {count} places marked {name}; allowed: one")
    temporary = path.with_suffix(".tmp")
    temporary.write_text(new, encoding="utf-8")
    temporary.replace(path)


def main(names: list[str]) -> None:
    if unknown := set(names) - {*TABLES, *PAGES}:
        raise SystemExit(
            f"names are {', '.join(sorted(unknown))}; allowed: {', '.join([*TABLES, *PAGES])}"
        )
    for name in names or [*TABLES, *PAGES]:
        if name in TABLES:
            write_table(name)
        else:
            (ROOT / name).write_text(page_text(name), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
