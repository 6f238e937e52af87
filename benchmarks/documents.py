r"""Writes every table of measured figures in README.md and docs/ from the JSON it comes from.

python benchmarks/documents.py            # all tables and pages
python benchmarks/documents.py graphs     # some of them

A table stands between two marks, ``<!-- NAME: FUNCTION, FILES -->`` and ``<!-- end NAME -->``, that name what makes it.  Adding
a table: an entry in :data:`TABLES` and the two marks in the document.  ``tests/docs`` compares documents and JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import distributed_tables
import explore_tables
import geom_tables
import gpu_tables
import hostile_tables
import ladder_tables
import result_tables
import tables
import thread_tables
from markdown_lines import table

from phgcn.reproduce import embeddings_report, motif_report, scaling_report, table_report, trainings_report
from phgcn.reproduce.benchmark import report as benchmark_report
from phgcn.reproduce.rivals import report as rivals_report
from phgcn.reproduce.when import report as when_report

ROOT = Path(__file__).resolve().parent.parent
BENCH, RESULTS = "benchmarks/results", "docs/results"
README, LATTICE, PERFORMANCE = "README.md", "docs/lattice.md", "docs/performance.md"
CPU_NOTES, GPU_NOTES, HISTORY = (f"docs/engineering/{name}.md" for name in ("cpu", "gpu", "history"))
BEFORE_AFTER = "docs/engineering/before-after.md"
DISTRIBUTED = "docs/distributed.md"
RIVALS, WHEN, KERNEL_SUMS = "docs/benchmark.md", "docs/where-attention-helps.md", "docs/rivals.md"


class Table(NamedTuple):
    """A part of a document: the page, the JSON files, and the function that makes its lines of their contents."""

    page: str
    sources: tuple[str, ...]
    lines: Callable[..., list[str]]


class Page(NamedTuple):
    """A document that is generated as a whole."""

    sources: tuple[str, ...]
    text: Callable[..., str]


def motif_table(content: dict) -> list[str]:
    return result_tables.motif(content, motif_report.HEADINGS, motif_report.rows(content))


def embeddings_table(content: dict) -> list[str]:
    return table(embeddings_report.HEADINGS, embeddings_report.rows(content))


def when_block(content: dict) -> list[str]:
    """The figure, if there is one, and the table."""
    figure = ["![Global attention on less off, with intervals](results/when.png)", ""] if content["rows"] else []
    return [*figure, *when_report.table_lines(content)]


def tables_block(content: dict) -> list[str]:
    """The figure and the table of tables without edges."""
    return ["![Test errors of all models on tables](results/tables.png)", "", *trainings_report.markdown(content)]


def city_block(content: dict) -> list[str]:
    """The figure and the table of streets."""
    return ["![Test accuracy of all models on streets](results/city.png)", "", *trainings_report.markdown(content)]


def gallery_block(content: dict) -> list[str]:
    """What each example is about, its picture, and what it printed."""
    lines = []
    for row in content["rows"]:
        name = row["example"]
        about, took = row["about"], f"{row['processor_seconds']} processor seconds, imports included"
        lines += [f"## {row['title']}", "", about[0].upper() + about[1:], ""]
        lines += [f"![{row['title']}](figures/gallery-{name}.png)", ""]
        lines += [f"[{name}.py](../examples/{name}.py) took {took}, and printed:", ""]
        lines += ["```", *row["printed"].splitlines(), "```", ""]
    return [*lines, f"Made by `make gallery`, {content['provenance']['date'][:10]}."]


def versions_table(content: dict) -> list[str]:
    """What a short subset of the tests gave on each set of versions."""
    headings = ("session", "Python", "torch", "PyG", "Numba", "NumPy", "passed", "failed", "skipped", "date")
    rows = []
    for row in content["rows"]:
        failed = row["failures"] + row["errors"]
        passed = row["tests"] - failed - row["skipped"]
        versions = [row[name] for name in ("python", "torch", "torch_geometric", "numba", "numpy")]
        rows.append((f"`{row['session']}`", *versions, *map(str, (passed, failed, row["skipped"])), row["date"]))
    return [*table(headings, rows), "", f"Tests: {', '.join(f'`{name}`' for name in content['tests'])}."]


def table_page(rows: list[dict], tests: dict) -> str:
    return table_report.markdown({"rows": rows, **tests}, quick=False)


def _of(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.json" for name in names)


TABLES = {
    # The filter on the CPU
    "headline": Table(README, _of(BENCH, "accuracy", "lattice"), tables.headline),
    "accuracy": Table(LATTICE, _of(BENCH, "accuracy"), tables.accuracy_tables),
    "hostile": Table(LATTICE, _of(BENCH, "hostile", "hostile_before"), hostile_tables.hostile_table),
    "hostile-gpu": Table(LATTICE, _of(BENCH, "hostile_gpu"), hostile_tables.hostile_gpu_table),
    "tail": Table(LATTICE, _of(BENCH, "tail"), tables.tail_table),
    "cores": Table(LATTICE, _of(BENCH, "cores"), tables.cores_table),
    "coincident": Table(LATTICE, _of(BENCH, "coincident"), tables.coincident_table),
    "trained": Table(LATTICE, _of(BENCH, "trained"), tables.trained_table),
    "cpu-crossing": Table(PERFORMANCE, _of(BENCH, "crossing"), tables.crossing_summary),
    "cpu-speed": Table(PERFORMANCE, _of(BENCH, "lattice"), tables.speed_table),
    "cpu-threads": Table(PERFORMANCE, _of(BENCH, "threads"), thread_tables.jobs),
    "cpu-thread-stages": Table(CPU_NOTES, _of(BENCH, "threads"), thread_tables.stages),
    "cpu-layers": Table(PERFORMANCE, _of(BENCH, "layers"), tables.layer_table),
    "ladder": Table("docs/engineering/ladder.md", _of(BENCH, "ladder"), ladder_tables.ladder_table),
    "ladder-scatter": Table("docs/engineering/ladder.md", _of(BENCH, "ladder_scatter"), ladder_tables.scatter_table),
    "cpu-marks": Table(CPU_NOTES, _of(BENCH, "lattice"), tables.speed_marks),
    "cpu-stages": Table(CPU_NOTES, _of(BENCH, "stages"), tables.stage_table),
    "cpu-crossing-all": Table(CPU_NOTES, _of(BENCH, "crossing"), tables.crossing_table),
    "cpu-layer-marks": Table(CPU_NOTES, _of(BENCH, "layers"), tables.layer_marks),
    "before-after-cpu": Table(BEFORE_AFTER, _of(BENCH, "before_after"), tables.before_after),
    "before-after-gpu": Table(BEFORE_AFTER, _of(BENCH, "before_after_gpu"), tables.before_after),
    "first-calls": Table(PERFORMANCE, _of(BENCH, "first_call"), tables.first_calls),
    "rooms": Table(BEFORE_AFTER, _of(BENCH, "rooms"), tables.rooms),
    # On a GPU
    "gpu-headline": Table(README, _of(BENCH, "gpu_large"), gpu_tables.headline),
    "gpu-crossing": Table(PERFORMANCE, _of(BENCH, "gpu_crossing"), gpu_tables.crossing_summary),
    "gpu-speed": Table(PERFORMANCE, _of(BENCH, "gpu"), gpu_tables.speed),
    "gpu-large": Table(PERFORMANCE, _of(BENCH, "gpu_large"), gpu_tables.large),
    "gpu-layers": Table(PERFORMANCE, _of(BENCH, "gpu_layers"), gpu_tables.layers),
    "gpu-products": Table(PERFORMANCE, _of(BENCH, "products"), gpu_tables.products),
    "gpu-training": Table(PERFORMANCE, _of(BENCH, "gpu_training"), gpu_tables.training),
    "gpu-floors": Table(GPU_NOTES, _of(BENCH, "gpu"), gpu_tables.speed_floors),
    "gpu-stages": Table(GPU_NOTES, _of(BENCH, "gpu_stages"), gpu_tables.stages),
    "gpu-layer-floors": Table(GPU_NOTES, _of(BENCH, "gpu_layers"), gpu_tables.layer_floors),
    "gpu-small": Table(GPU_NOTES, _of(BENCH, "gpu_small"), gpu_tables.small_layers),
    "gpu-exact": Table(GPU_NOTES, _of(BENCH, "gpu_exact"), gpu_tables.exact),
    "gpu-crossing-all": Table(GPU_NOTES, _of(BENCH, "gpu_crossing"), gpu_tables.crossing),
    "gpu-launches": Table(HISTORY, _of(BENCH, "gpu_launches"), gpu_tables.launches),
    # Over processes
    "distributed-speed": Table(DISTRIBUTED, _of(BENCH, "distributed"), distributed_tables.speed),
    "distributed-model": Table(DISTRIBUTED, _of(BENCH, "distributed", "gpu_large", "gpu_stages"), distributed_tables.model),
    # Training and files
    "training-loop": Table("docs/commands.md", _of(BENCH, "training"), tables.training_loop),
    "from-nothing": Table("CONTRIBUTING.md", _of(BENCH, "from_nothing"), tables.from_nothing),
    "versions": Table("docs/versions.md", _of(BENCH, "versions"), versions_table),
    "sparse-features": Table("docs/data.md", _of(BENCH, "sparse_features"), tables.sparse_features),
    "graph-files": Table("docs/data.md", _of(BENCH, "graph_files"), tables.graph_files),
    "explorer-marks": Table("docs/explorer.md", _of(BENCH, "explore"), explore_tables.marks),
    "explorer-libraries": Table("docs/explorer.md", _of(BENCH, "explore"), explore_tables.libraries),
    # The paper's experiments
    "graphs": Table(
        "docs/results.md",
        (*_of(RESULTS, "table", "table-differences"), *_of(BENCH, "split_overlap")),
        result_tables.accuracies,
    ),
    "gallery": Table("docs/gallery.md", _of(RESULTS, "gallery"), gallery_block),
    "own-channel": Table("docs/results.md", _of(RESULTS, "table-differences"), result_tables.own_channel),
    "methods": Table("docs/results.md", _of(RESULTS, "table-differences"), result_tables.methods),
    "split-overlap": Table("docs/results.md", _of(BENCH, "split_overlap"), result_tables.split_overlap),
    "within-class": Table("docs/experiments.md", _of(BENCH, "within_class"), result_tables.within_class),
    "memory": Table("docs/layers.md", _of(BENCH, "memory"), result_tables.memory),
    "motif": Table("docs/experiments.md", _of(RESULTS, "motif"), motif_table),
    "embeddings": Table("docs/experiments.md", _of(RESULTS, "embeddings"), embeddings_table),
    "scaling": Table("docs/experiments.md", _of(RESULTS, "scaling"), result_tables.scaling),
    "scaling-gpu": Table("docs/experiments.md", _of(RESULTS, "scaling-gpu"), result_tables.scaling),
    # GlobalGNN and its rivals
    "benchmark": Table(RIVALS, _of(RESULTS, "benchmark", "table"), benchmark_report.accuracy_table),
    "benchmark-unseen": Table(RIVALS, _of(RESULTS, "benchmark"), benchmark_report.unseen_table),
    "benchmark-differences": Table(RIVALS, _of(RESULTS, "benchmark"), benchmark_report.difference_table),
    "benchmark-settings": Table(RIVALS, _of(RESULTS, "benchmark"), benchmark_report.settings_table),
    "benchmark-effort": Table(RIVALS, _of(RESULTS, "benchmark"), benchmark_report.effort_table),
    "benchmark-time": Table(RIVALS, _of(RESULTS, "benchmark"), benchmark_report.time_table),
    "global-gnn-epochs": Table(RIVALS, _of(BENCH, "global_gnn", "global_gnn_gpu"), tables.global_gnn_epochs),
    "search": Table(RIVALS, _of(BENCH, "search"), tables.search_marks),
    # Other ways to sum the kernel
    "rivals": Table(KERNEL_SUMS, _of(RESULTS, "rivals"), rivals_report.choice_block),
    "rivals-gpu": Table(KERNEL_SUMS, _of(RESULTS, "rivals-gpu"), rivals_report.choice_block),
    "rivals-details": Table(KERNEL_SUMS, _of(RESULTS, "rivals"), rivals_report.detail_block),
    "when": Table(WHEN, _of(RESULTS, "when"), when_block),
    "tables": Table(WHEN, _of(RESULTS, "tables"), tables_block),
    "large-tables": Table(WHEN, _of(BENCH, "large_tables"), tables.large_tables),
    "city": Table(WHEN, _of(RESULTS, "city"), city_block),
    # Geom-GCN
    "geom-accuracy": Table("docs/geom-gcn.md", _of(RESULTS, "table"), geom_tables.accuracy),
    "geom-sources": Table("docs/geom-gcn.md", _of(RESULTS, "table"), geom_tables.sources),
    "geom-neighbourhoods": Table("docs/geom-gcn.md", _of(RESULTS, "geom-gcn/neighbourhoods"), geom_tables.neighbourhoods),
    "geom-cost": Table("docs/geom-gcn.md", _of(RESULTS, "geom-gcn/cost"), geom_tables.cost),
}

PAGES = {
    f"{RESULTS}/graphs.md": Page(_of(RESULTS, "graphs"), result_tables.graph_page),
    f"{RESULTS}/table.md": Page(_of(RESULTS, "table", "table-differences"), table_page),
    f"{RESULTS}/motif.md": Page(_of(RESULTS, "motif"), motif_report.markdown),
    f"{RESULTS}/embeddings.md": Page(_of(RESULTS, "embeddings"), embeddings_report.markdown),
    f"{RESULTS}/scaling.md": Page(_of(RESULTS, "scaling"), scaling_report.markdown),
    f"{RESULTS}/rivals.md": Page(_of(RESULTS, "rivals"), rivals_report.markdown),
    f"{RESULTS}/rivals-gpu.md": Page(_of(RESULTS, "rivals-gpu"), rivals_report.markdown),
    f"{RESULTS}/scaling-gpu.md": Page(_of(RESULTS, "scaling-gpu"), scaling_report.markdown),
}


@cache
def content(source: str) -> Any:
    return json.loads((ROOT / source).read_text(encoding="utf-8"))


def block(name: str) -> str:
    """A table with its marks, as it stands in its document."""
    table = TABLES[name]
    lines = table.lines(*map(content, table.sources))
    maker = f"{table.lines.__module__}.{table.lines.__name__}".replace("__main__", "documents")
    return "\n".join([f"<!-- {name}: {maker}, {', '.join(table.sources)} -->", "", *lines, "", f"<!-- end {name} -->"])


def pattern(name: str) -> str:
    """Matches a block of a document, whatever it holds."""
    return rf"<!-- {re.escape(name)}(?:: [^\n]*)? -->.*?<!-- end {re.escape(name)} -->"


def page_text(path: str) -> str:
    page = PAGES[path]
    return page.text(*map(content, page.sources))


def write_table(name: str) -> None:
    """Replaces a block of a document, which is written whole or not at all."""
    path = ROOT / TABLES[name].page
    new, count = re.subn(pattern(name), lambda _: block(name), path.read_text(encoding="utf-8"), flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{path} has {count} places marked {name}; allowed: one")
    temporary = path.with_suffix(".tmp")
    temporary.write_text(new, encoding="utf-8")
    temporary.replace(path)


def main(names: list[str]) -> None:
    if unknown := set(names) - {*TABLES, *PAGES}:
        raise SystemExit(f"names are {', '.join(sorted(unknown))}; allowed: {', '.join([*TABLES, *PAGES])}")
    for name in names or [*TABLES, *PAGES]:
        if name in TABLES:
            write_table(name)
        else:
            (ROOT / name).write_text(page_text(name), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
