r"""Writes the tables of ``docs/geom-gcn.md`` from the JSON files in ``docs/results`` and ``docs/results/geom-gcn``.

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
    return json.loads((DOCS / "results" / "geom-gcn" / name).read_text(encoding="utf-8"))["rows"]


def cells(protocol: str, source: str) -> dict[tuple[str, str], dict]:
    """The rows of ``phgcn reproduce table`` under a protocol with one source of neighbourhoods, by graph and model."""
    found = json.loads((DOCS / "results" / "table.json").read_text(encoding="utf-8"))
    return {(r["graph"], r["model"]): r for r in found if (r["protocol"], r["method"]) == (protocol, source)}


def accuracy() -> list[str]:
    """Ours and the published means."""
    ours = cells("geom", "published")
    lines = [
        "| graph | " + " | ".join(f"{name} | published" for name in MODELS.values()) + " |",
        "| --- |" + " --- | --- |" * 3,
    ]
    for graph in GRAPHS:
        found = [ours.get((graph, model)) for model in MODELS]
        texts = [f"{r['mean']:.1f} ± {r['std']:.1f} | {r['published']:.1f}" if r else "not run |" for r in found]
        lines.append(f"| {graph} | {' | '.join(texts)} |")
    return lines


def sources() -> list[str]:
    """Published and computed neighbourhoods, both protocols."""
    columns = [(protocol, source) for protocol in ("paper", "geom") for source in ("published", "computed")]
    lines = [
        "| graph | model | " + " | ".join(f"`{protocol}`, {source}" for protocol, source in columns) + " |",
        "| --- | --- |" + " --- |" * 4,
    ]
    found = [cells(*column) for column in columns]
    for graph in GRAPHS:
        for model, name in MODELS.items():
            texts = [f"{t[graph, model]['mean']:.1f}" if (graph, model) in t else "not run" for t in found]
            lines.append(f"| {graph} | {name} | {' | '.join(texts)} |")
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
    for name, lines in (
        ("accuracy", accuracy()),
        ("sources", sources()),
        ("neighbourhoods", neighbourhoods()),
        ("cost", cost()),
    ):
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
