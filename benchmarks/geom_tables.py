r"""Tables of ``docs/geom-gcn.md``, as lines of Markdown.

Not run by itself: ``benchmarks/documents.py`` writes them into the document.  Every function takes the contents of JSON files.
"""

from __future__ import annotations

from markdown_lines import table

GRAPHS = ("texas", "cornell", "cornell-2020", "wisconsin", "cora", "citeseer", "actor", "pubmed")
MODELS = {"geom-gcn-i": "-I", "geom-gcn-p": "-P", "geom-gcn-s": "-S"}


def cells(rows: list[dict], protocol: str, source: str) -> dict[tuple[str, str], dict]:
    """The rows of ``phgcn reproduce table`` under a protocol with one source of neighbourhoods, by graph and model."""
    return {(r["graph"], r["model"]): r for r in rows if (r["protocol"], r["method"]) == (protocol, source)}


def accuracy(rows: list[dict]) -> list[str]:
    """Our means beside the published ones, on the published neighbourhoods."""
    ours = cells(rows, "geom", "published")
    heading = ["graph", *(text for name in MODELS.values() for text in (name, "published"))]
    lines = []
    for graph in GRAPHS:
        line = [graph]
        for model in MODELS:
            r = ours.get((graph, model))
            line += [f"{r['mean']:.1f} ± {r['std']:.1f}", f"{r['published']:.1f}"] if r else ["not run", ""]
        lines.append(line)
    return table(heading, lines)


def sources(rows: list[dict]) -> list[str]:
    """Published and computed neighbourhoods, both protocols."""
    columns = [(protocol, source) for protocol in ("paper", "geom") for source in ("published", "computed")]
    by_column = [cells(rows, *column) for column in columns]
    lines = []
    for graph in GRAPHS:
        for model, name in MODELS.items():
            means = [f"{t[graph, model]['mean']:.1f}" if (graph, model) in t else "not run" for t in by_column]
            lines.append([graph, name, *means])
    return table(["graph", "model", *(f"`{protocol}`, {source}" for protocol, source in columns)], lines)


def neighbourhoods(measured: dict) -> list[str]:
    heading = ["graph", "embedding", "edges", "latent pairs", "published", "found", "by chance", "largest degree", "published"]
    lines = [
        [
            row["graph"],
            row["method"],
            f"{row['graph_pairs']:,}",
            f"{row['latent_pairs']:,}",
            f"{row['latent_pairs_published']:,}",
            f"{100 * row['share_of_published']:.1f} %",
            f"{100 * row['by_chance']:.2f} %",
            f"{row['largest_degree']}",
            f"{row['largest_degree_published']}",
            f"{row['degree_correlation']:.2f}",
            f"{100 * row['relation_agreement']:.0f} %",
        ]
        for row in measured["rows"]
    ]
    return table([*heading, "degrees' correlation", "same quadrant"], lines)


def cost(measured: dict) -> list[str]:
    by_work = {(row["graph"], row["work"]): row for row in measured["rows"]}
    work = {"isomap": "Isomap", "poincare": "Poincaré", "struc2vec": "struc2vec", "phgcn": "training PH-GCN"}
    lines = []
    for graph in GRAPHS:
        costs = [by_work.get((graph, one)) for one in work]
        if any(costs):
            lines.append([graph, *("not run" if c is None else f"{c['seconds']:.0f} s, {c['mib']:.0f} MiB" for c in costs)])
    return table(["graph", *work.values()], lines)
