r"""Writes results into README.md, docs/lattice.md and docs/layers.md, between their marks.

python benchmarks/tables.py    # after accuracy.py, lattice.py, stages.py, crossing.py, layers.py, phgcn reproduce table
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLOUDS = ("spread 1", "spread 3", "spread 10", "clusters")
SMALL_CLOUDS = ("spread 0.5", *CLOUDS)
METHODS = ("lattice", "lattice-fine", "separable")
TITLES = {
    "gcn": "GCN",
    "gat": "GAT",
    "geom-gcn-i": "Geom-GCN-I",
    "geom-gcn-p": "Geom-GCN-P",
    "geom-gcn-s": "Geom-GCN-S",
    "gat-eda": "GAT-EDA",
    "mlp": "MLP",
    "phgcn": "**PH-GCN**",
    "phgcn-residual": "**PH-GCN + own channel**",
}


def results(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def table(heading: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (heading, ["---"] * len(heading), *rows)]


def short(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}".lstrip("0") if value < 1 else f"{value:.2f}"  # + 0.0: no -0


def accuracy_tables(accuracy: dict) -> list[str]:
    found = {(r["method"], r["dim"], r["cloud"], r["count"]): r for r in accuracy["rows"]}

    def large(method: str, dim: int, cloud: str) -> str:
        r = found[method, dim, cloud, 20_000]
        return " / ".join(short(r[key]) for key in ("dev", "dev_structured", "cosine"))

    def small(method: str, dim: int) -> str:
        rows = [found[method, dim, cloud, 1000] for cloud in SMALL_CLOUDS]
        worst = [max(r[key] for r in rows) for key in ("relative", "dev", "dev_structured")]
        return " / ".join(short(v) for v in (*worst, min(r["cosine"] for r in rows)))

    alone = ("lattice (no near field)", "lattice-fine (no near field)", "separable")
    return [
        "N = 20,000 (float32, errors on 1,000 points), each cell *dev random / dev structured / cos*:",
        "",
        *table(
            ["D", "method", *CLOUDS],
            [[str(d), f"`{m}`", *(large(m, d, c) for c in CLOUDS)] for d in (2, 4) for m in METHODS],
        ),
        "",
        "At N = 1,000 `lattice` and `lattice-fine` are the exact sum. What their lattices alone would give (no near field, "
        "float64), worst of 3 seeds and of spreads .5, 1, 3, 10 and clusters, each cell *rel / dev random / dev structured / "
        "cos*:",
        "",
        *table(["D", *(f"`{m}`" for m in METHODS)], [[str(d), *(small(m, d) for m in alone)] for d in range(1, 9)]),
    ]


def speed_tables(speed: dict) -> list[str]:
    at, times = speed["provenance"], {name: 1000 * t["median"] for name, t in speed["times"].items()}
    jobs = ("pydensecrf2", "separable", "separable backward", "lattice", "lattice backward")
    return [
        f"{at['cores']} cores ({at.get('machine') or at['cpu']}), load {at['load']} at the end, median ms:",
        "",
        *table(
            ["", *(f"spread {s}" for s in (1, 3, 10))],
            [[job, *(f"{times[f'{job}, spread {s}']:.0f}" for s in (1, 3, 10))] for job in jobs],
        ),
        "",
        *mark_table(speed["marks"]),
    ]


def mark_table(marks: list[dict]) -> list[str]:
    return table(
        ["ratio", "measured", "mark", ""],
        [
            [
                m["what"],
                f"{m['value']:.2f}{m['unit']}",
                f"{'≥' if m['at_least'] else '≤'} {m['mark']:g}{m['unit']}",
                "reached" if m["reached"] else "missed",
            ]
            for m in marks
        ],
    )


def layer_tables(layers: dict) -> list[str]:
    at, ms = layers["provenance"], {name: 1000 * t["median"] for name, t in layers["times"].items()}
    parts = layers["stages_ms"]["EDAConv, pubmed"]
    return [
        f"{at['cores']} cores ({at.get('machine') or at['cpu']}), load {at['load']} at the end, median ms of a training step, "
        f"{layers['heads']} heads x {layers['channels']} channels:",
        "",
        *table(["job", "ms"], [[name, f"{value:.0f}"] for name, value in ms.items()]),
        "",
        *mark_table(layers["marks"]),
        "",
        "Where the time of one step of EDAConv on pubmed goes (profiled, so a little slower; kernels are within "
        "`phgcn::structural` and its backward):",
        "",
        *table(["op", "ms"], [[f"`{name.strip()}`", f"{value:.1f}"] for name, value in parts.items() if value >= 0.5]),
    ]


def stage_tables(stages: dict) -> list[str]:
    cases = list(stages["stages"])
    names = list(dict.fromkeys(stage for case in cases for stage in stages["stages"][case]))

    def cell(case: str, stage: str) -> str:
        e = stages["stages"][case].get(stage)
        if e is None:
            return ""
        return f"{e['ms']:.1f} ({e['floor_ms']:.1f})" if e["floor_ms"] else f"{e['ms']:.1f}"

    speed = stages["copy_bytes_per_second"] / 1e9
    return [
        f"ms, in brackets the floor at a copy's {speed:.1f} GB/s (load {stages['provenance']['load']}); a stage below its "
        "floor finds its arrays in the cache:",
        "",
        *table(["stage", *cases], [[stage, *(cell(case, stage) for case in cases)] for stage in names]),
    ]


def crossing_table(measured: dict) -> list[str]:
    sizes = [f"N={n:,}" for n in measured["sizes"]]
    rows = [
        [f"{r['dim']}", f"{r['channels']}", r["cloud"], *(f"{x:.2f}" for x in r["ratios"]), f"{r['crossing']:,.0f}"]
        for r in measured["rows"]
    ]
    return [
        f"exact / lattice, times of a forward and a backward, float32; median crossing {measured['median_crossing']:,.0f}:",
        "",
        *table(["D", "channels", "cloud", *sizes, "crossing"], rows),
    ]


def headline(accuracy: dict, speed: dict) -> list[str]:
    found = {(r["method"], r["cloud"]): r for r in accuracy["rows"] if (r["dim"], r["count"]) == (4, 20_000)}
    seconds = {name: t["median"] for name, t in speed["times"].items()}

    def span(job: str, end: str = "") -> str:
        low, high = (seconds[f"{job}, {end}spread {s}"] for s in (1, 10))
        return f"{low:.2f} - {high:.2f} s"

    times = {
        "lattice": [span("lattice", "N=20,000, "), span("lattice")],
        "separable": ["", span("separable")],
        "lattice-fine": ["", ""],
    }
    rows = [[f"`{m}`", *(short(found[m, c]["dev"]) for c in CLOUDS), *times[m]] for m in METHODS]
    scaled = f"{seconds['exact, N=200,000']:.0f} s, from {speed['sizes']['exact_queries']:,} rows"
    rows.append(["`exact`", *["0"] * 4, f"{seconds['exact, N=20,000']:.1f} s", scaled])
    return table(["method", *CLOUDS, "20,000 points", "200,000 points"], rows)


def graph_table() -> list[str]:
    """Test accuracies of the models on the graphs, protocol paper, with the published PH-GCN below ours."""
    rows = json.loads((ROOT / "docs" / "results" / "table.json").read_text())
    shown = [r for r in rows if r["protocol"] == "paper" and r["method"] in (None, "lattice", "published")]
    cells = {(r["model"], r["graph"]): r for r in shown}
    graphs = list(dict.fromkeys(r["graph"] for r in shown))

    def line(model: str) -> list[str]:
        found = [cells.get((model, graph)) for graph in graphs]
        return [TITLES[model], *("not run yet" if r is None else f"{r['mean']:.1f} ± {r['std']:.1f}" for r in found)]

    lines = [line(model) for model in TITLES if any(model == key[0] for key in cells)]
    published = [next(r["published"] for r in rows if (r["model"], r["graph"]) == ("phgcn", graph)) for graph in graphs]
    return table(["", *graphs], [*lines, ["*PH-GCN, published*", *(f"*{value}*" for value in published)]])


def write(path: Path, mark: str, lines: list[str]) -> None:
    """Replaces what stands between two marks of a file, which is written whole or not at all."""
    text = "\n".join([f"<!-- {mark} -->", "", *lines, "", f"<!-- end {mark} -->"])
    old = path.read_text()
    new, count = re.subn(f"<!-- {mark} -->.*?<!-- end {mark} -->", lambda _: text, old, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{path} has {count} places marked {mark}; allowed: one")
    temporary = path.with_suffix(".tmp")
    temporary.write_text(new)
    temporary.replace(path)


def main() -> None:
    accuracy, speed = results("accuracy"), results("lattice")
    write(ROOT / "docs" / "lattice.md", "accuracy", accuracy_tables(accuracy))
    write(ROOT / "docs" / "lattice.md", "speed", speed_tables(speed))
    write(ROOT / "docs" / "lattice.md", "stages", stage_tables(results("stages")))
    write(ROOT / "docs" / "lattice.md", "crossing", crossing_table(results("crossing")))
    write(ROOT / "docs" / "layers.md", "speed", layer_tables(results("layers")))
    write(ROOT / "README.md", "results", headline(accuracy, speed))
    write(ROOT / "README.md", "graphs", graph_table())
    print("written: README.md, docs/lattice.md, docs/layers.md")


if __name__ == "__main__":
    main()
