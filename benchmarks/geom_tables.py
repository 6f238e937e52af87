r"""Writes the tables of ``docs/geom-gcn.md`` from the JSON files in ``docs/results/geom-gcn``.

python benchmarks/geom_tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
GRAPHS = ("texas", "cornell", "cornell-2020", "wisconsin", "cora", "citeseer", "actor", "pubmed")
MODELS = {"geom-gcn-i": "-I", "geom-gcn-p": "-P", "geom-gcn-s": "-S"}


def rows(name: str) -> list[dict]:
    path = DOCS / "results" / "geom-gcn" / name
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


def accuracy() -> list[str]:
    """Ours and the published means."""
    found = {(row["graph"], row["model"]): row for row in rows("accuracy-published-geom.json")}
    lines = [
        "| graph | " + " | ".join(f"{name} | published" for name in MODELS.values()) + " |",
        "| --- |" + " --- | --- |" * 3,
    ]
    for graph in GRAPHS:
        cells = []
        for model in MODELS:
            row = found.get((graph, model))
            cells += [f"{row['mean']:.1f} ± {row['std']:.1f}", f"{row['published']:.1f}"] if row else ["not run", ""]
        if any((graph, model) in found for model in MODELS):
            lines.append(f"| {graph} | {' | '.join(cells)} |")
    return lines


def neighbourhoods() -> list[str]:
    lines = [
        "| graph | embedding | edges | latent pairs | published | found | by chance | largest degree | published | "
        "degrees' correlation | same quadrant |",
        "| --- |" + " --- |" * 10,
    ]
    for row in rows("neighbourhoods.json"):
        lines.append(
            f"| {row['graph']} | {row['method']} | {row['graph_pairs']:,} | {row['latent_pairs']:,} | "
            f"{row['latent_pairs_published']:,} | {100 * row['share_of_published']:.1f} % | {100 * row['by_chance']:.2f} % | "
            f"{row['largest_degree']} | {row['largest_degree_published']} | {row['degree_correlation']:.2f} | "
            f"{100 * row['relation_agreement']:.0f} % |"
        )
    return lines


def cost() -> list[str]:
    found = {(row["graph"], row["work"]): row for row in rows("cost.json")}
    work = ("isomap", "poincare", "struc2vec", "phgcn")
    lines = ["| graph | Isomap | Poincaré | struc2vec | training PH-GCN |", "| --- | --- | --- | --- | --- |"]
    for graph in GRAPHS:
        cells = [found.get((graph, one)) for one in work]
        texts = ["not run" if cell is None else f"{cell['seconds']:.0f} s, {cell['mib']:.0f} MiB" for cell in cells]
        if any(cells):
            lines.append(f"| {graph} | {' | '.join(texts)} |")
    return lines


def main() -> None:
    path = DOCS / "geom-gcn.md"
    text = path.read_text(encoding="utf-8")
    for name, lines in (("accuracy", accuracy()), ("neighbourhoods", neighbourhoods()), ("cost", cost())):
        body = "\n".join(lines)
        text, count = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end {name} -->",
            f"<!-- {name} -->\n\n{body}\n\n<!-- end {name} -->",
            text,
            flags=re.DOTALL,
        )
        assert count == 1, f"docs/geom-gcn.md has no place for {name}"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
