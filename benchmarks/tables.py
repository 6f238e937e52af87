r"""Tables of the CPU's measurements, as lines of Markdown.

Not run by itself: ``benchmarks/documents.py`` writes them into the documents.  Every function takes the contents of JSON files.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from markdown_lines import digits, machine, mark_table, origin, short, table

CLOUDS = ("spread 1", "spread 3", "spread 10", "clusters")
SMALL_CLOUDS = ("spread 0.5", *CLOUDS)
SPREADS = (1, 3, 10)
METHODS = ("lattice", "lattice-fine", "separable")


# The filter


def headline(accuracy: dict, speed: dict) -> list[str]:
    """Errors and times of all methods, for the README."""
    errors = {(r["method"], r["cloud"]): r for r in accuracy["rows"] if (r["dim"], r["count"]) == (4, 20_000)}
    seconds = {name: t["median"] for name, t in speed["times"].items()}

    def span(job: str, end: str = "") -> str:
        low, high = (seconds[f"{job}, {end}spread {s}"] for s in (1, 10))
        return f"{low:.2f} - {high:.2f} s"

    times = {
        "lattice": [span("lattice", "N=20,000, "), span("lattice")],
        "separable": ["", span("separable")],
        "lattice-fine": ["", ""],
    }
    rows = [[f"`{m}`", *(short(errors[m, c]["dev"]) for c in CLOUDS), *times[m]] for m in METHODS]
    scaled = f"{seconds['exact, N=200,000']:.0f} s, from {speed['sizes']['exact_queries']:,} rows"
    rows.append(["`exact`", *["0"] * 4, f"{seconds['exact, N=20,000']:.1f} s", scaled])
    return table(["method", *CLOUDS, "20,000 points", "200,000 points"], rows)


def accuracy_tables(accuracy: dict) -> list[str]:
    by_case = {(r["method"], r["dim"], r["cloud"], r["count"]): r for r in accuracy["rows"]}

    def large(method: str, dim: int, cloud: str) -> str:
        r = by_case[method, dim, cloud, 20_000]
        return " / ".join(short(r[key]) for key in ("dev", "dev_structured", "cosine"))

    def small(method: str, dim: int) -> str:
        rows = [by_case[method, dim, cloud, 1000] for cloud in SMALL_CLOUDS]
        worst = [max(r[key] for r in rows) for key in ("relative", "dev", "dev_structured")]
        return " / ".join(short(v) for v in (*worst, min(r["cosine"] for r in rows)))

    finer = sorted({r["method"] for r in accuracy["rows"] if r["method"].startswith("MultiScale")})
    alone = ("lattice (no near field)", "lattice-fine (no near field)", "separable")
    return [
        "N = 20,000 (float32, errors on 1,000 points), each cell *dev random / dev structured / cos*:",
        "",
        *table(
            ["D", "method", *CLOUDS],
            [
                [str(d), f"`{m}`", *(large(m, d, c) for c in CLOUDS)]
                for d in (2, 4)
                for m in (*METHODS, *(finer if d == 4 else ()))
            ],
        ),
        "",
        "Milliseconds of these calls:",
        "",
        *table(
            ["method, D = 4", *CLOUDS],
            [
                [f"`{m}`", *(f"{1000 * by_case[m, 4, c, 20_000]['seconds']:.0f}" for c in CLOUDS)]
                for m in ("exact", *METHODS, *finer)
            ],
        ),
        "",
        "N = 1,000 (float64), the lattices without their near field, worst of 3 seeds and of spreads .5, 1, 3, 10 and "
        "clusters, each cell *rel / dev random / dev structured / cos*:",
        "",
        *table(["D", *(f"`{m}`" for m in METHODS)], [[str(d), *(small(m, d) for m in alone)] for d in range(1, 9)]),
    ]


def tail_table(tail: dict) -> list[str]:
    """What a bound on the weights of pairs costs, levels by levels."""
    clouds = list(tail["rows"][0]["deviation"])
    rows = []
    for r in tail["rows"]:
        levels = f"{r['spacing']:g}; {' '.join(map(str, r['hops']))}" + (" (two lattices)" if r["lattices"] == 2 else "")
        ratios = " / ".join(f"{r['mean_ratio'][d]:.2f}" for d in r["mean_ratio"])
        errors = " / ".join(short(r["deviation"][name]) for name in clouds)
        bound = "none" if r["bound"] is None else f"{r['bound']:g}"
        rows.append([str(r["dim"]), levels, bound, f"{r['worst']:.1f}", ratios, errors, f"{sum(r['seconds'].values()):.2f}"])
    distances = ", ".join(tail["rows"][0]["mean_ratio"])
    heads = ["D", "spacing; hops", "bound", "largest found", f"mean at {distances}", f"dev, {', '.join(clouds)}", "CPU s"]
    return table(heads, rows)


def cores_table(cores: dict) -> list[str]:
    """Clouds with a core, with nested boxes and without."""
    rows = []
    for method, count in sorted({(r["method"], r["count"]) for r in cores["rows"]}):
        for dims in (range(1, 5), range(5, 9)):
            some = [r for r in cores["rows"] if (r["method"], r["count"]) == (method, count) and r["dim"] in dims]

            def both(name: str, key: str, worst: Callable, some: list[dict] = some) -> str:
                numbers = [r[name][key] for r in some]
                return f"{short(statistics.median(numbers))} / {short(worst(numbers))}"

            times = statistics.median(r["with"]["seconds"] / r["without"]["seconds"] for r in some)
            cells = [f"{both(name, 'deviation', max)}, {both(name, 'cosine', min)}" for name in ("without", "with")]
            rows.append([f"`{method}`", f"{count:,}", f"{dims[0]} to {dims[-1]}", f"{len(some)}", *cells, f"{times:.1f}"])
    return table(["method", "points", "D", "clouds", "without", "with", "times"], rows)


def coincident_table(coincident: dict) -> list[str]:
    cells = {(r["dim"], r["method"]): f"{r['mean']:.2f} ({r['least']:.2f} - {r['most']:.2f})" for r in coincident["rows"]}
    dims = sorted({dim for dim, _ in cells})
    return table(["D", *(f"`{m}`" for m in METHODS)], [[str(d), *(cells[d, m] for m in METHODS)] for d in dims])


def trained_table(trained: dict) -> list[str]:
    layers: dict[tuple[str, int], list[dict]] = {}
    for row in trained["rows"]:
        layers.setdefault((row["graph"], row["layer"]), []).append(row)
    lines = []
    for (graph, layer), rows in layers.items():
        spreads = sorted(row["spread"] for row in rows)
        cells = [
            f"{max(row[m]['deviation'] for row in rows):.3f} / {min(row[m]['gradient_cosine'] for row in rows):.3f}"
            for m in METHODS
        ]
        lines.append([graph, str(layer), str(len(rows)), f"{spreads[0]:.2f} - {spreads[-1]:.2f}", *cells])
    heading = ["graph", "layer", "heads", "spread", *(f"`{m}`" for m in METHODS)]
    return [f"`{trained['model']}`, {trained['epochs']} epochs, {origin(trained)}:", "", *table(heading, lines)]


def speed_table(speed: dict) -> list[str]:
    at, ms = speed["provenance"], {name: 1000 * t["median"] for name, t in speed["times"].items()}
    jobs = ("separable", "separable backward", "lattice", "lattice backward", "pydensecrf2")
    memory = next(mark for mark in speed["marks"] if mark["what"].startswith("extra memory"))
    return [
        f"{at['cores']} cores ({machine(at)}), {origin(speed)}, median ms, N = 200,000:",
        "",
        *table(
            ["", *(f"spread {s}" for s in SPREADS)], [[j, *(f"{ms[f'{j}, spread {s}']:.0f}" for s in SPREADS)] for j in jobs]
        ),
        "",
        f"Memory beyond the input in the dense cloud, N = 1,000,000, C = 65: {memory['value']:.1f} times the values.",
    ]


def speed_marks(speed: dict) -> list[str]:
    return mark_table(speed["marks"])


def stage_table(stages: dict) -> list[str]:
    cases = list(stages["stages"])
    names = list(dict.fromkeys(stage for case in cases for stage in stages["stages"][case]))

    def cell(case: str, stage: str) -> str:
        e = stages["stages"][case].get(stage)
        if e is None:
            return ""
        return f"{e['ms']:.1f} ({e['floor_ms']:.1f})" if e["floor_ms"] else f"{e['ms']:.1f}"

    speed = stages["copy_bytes_per_second"] / 1e9
    return [
        f"ms, in brackets the floor at a copy's {speed:.1f} GB/s; a stage below its floor reads its arrays from the cache "
        f"({origin(stages)}):",
        "",
        *table(["stage", *cases], [[stage, *(cell(case, stage) for case in cases)] for stage in names]),
    ]


def crossing_summary(measured: dict) -> list[str]:
    crossings = [row["crossing"] for row in measured["rows"]]
    return [
        f"On {measured['provenance']['cores']} CPU cores the exact sum and the lattice take equally long (forward and "
        f"backward) at {min(crossings):,.0f} to {max(crossings):,.0f} points, by cloud, dimension and channels; the median is "
        f"{measured['median_crossing']:,.0f}."
    ]


def crossing_table(measured: dict) -> list[str]:
    sizes = [f"N={n:,}" for n in measured["sizes"]]
    rows = [
        [f"{r['dim']}", f"{r['channels']}", r["cloud"], *(f"{x:.2f}" for x in r["ratios"]), f"{r['crossing']:,.0f}"]
        for r in measured["rows"]
    ]
    return table(["D", "channels", "cloud", *sizes, "crossing"], rows)


# Layers, training and files


def layer_table(layers: dict) -> list[str]:
    at, seconds = layers["provenance"], {name: t["median"] for name, t in layers["times"].items()}

    def row(name: str) -> list[str]:
        layer, graph = name.split(", ", 1)
        base = seconds[f"GATConv, {graph.split(',')[0]}"]
        return [f"`{layer}`", graph, f"{1000 * seconds[name]:.0f}", f"{seconds[name] / base:.2f}x"]

    return [
        f"{at['cores']} cores ({machine(at)}), {origin(layers)}, median of a training step, {layers['heads']} heads x "
        f"{layers['channels']} channels:",
        "",
        *table(["layer", "graph", "ms", "/ GATConv"], [row(name) for name in seconds]),
    ]


def layer_marks(layers: dict) -> list[str]:
    parts = layers["stages_ms"]["EDAConv, pubmed"]
    return [
        *mark_table(layers["marks"]),
        "",
        "One step of EDAConv on pubmed by op (profiled, so a little slower; kernels are within `phgcn::structural` and its "
        "backward):",
        "",
        *table(["op", "ms"], [[f"`{name.strip()}`", f"{value:.1f}"] for name, value in parts.items() if value >= 0.5]),
    ]


def training_loop(training: dict) -> list[str]:
    """What the loop adds to the layers' own time."""
    rows = [
        [f"`{model}`", f"{1000 * t['layers']:.0f}", f"{1000 * t['whole']:.0f}", f"{t['ratio']:.3f}"]
        for model, t in training["models"].items()
    ]
    return [
        f"{training['graph']}, {origin(training)}:",
        "",
        *table(["model", "layers, ms per epoch", "with the loop", "ratio"], rows),
        "",
        f"`phgcn --help` takes {training['help_seconds']:.1f} s.",
    ]


def sparse_features(measured: dict) -> list[str]:
    rows = []
    for graph, r in measured["rows"].items():
        if graph.startswith("random"):
            continue
        ms = r["milliseconds"]
        dense, sparse = (ms[f"{kind} train"] + ms[f"{kind} evaluate"] for kind in ("dense", "sparse"))
        ratios = [f"{r['dense_over_sparse']:.1f}", f"{r['dense_over_sparse_without_dropout']:.1f}"]
        rows.append([graph, str(r["features"]), f"{100 * r['density']:.1f} %", *map(digits, (dense, sparse)), *ratios])
    heading = ["graph", "features", "not zero", "dense", "sparse", "dense / sparse"]
    return table([*heading, "the same for the training step without dropout"], rows)


def graph_files(measured: dict) -> list[str]:
    kinds = ("CSV", "Parquet", "npz")
    rows = []
    for case, (nodes, edges, features) in measured["nodes_edges_features"].items():
        times = [measured["seconds"].get(f"{case}, {kind}") for kind in kinds]
        title = f"{nodes:,} nodes, {edges:,} edges, {features} features"
        rows.append([title, *("" if t is None else f"{t['median']:.1f} s" for t in times)])
    return table(["", *kinds], rows)


# Before and after a change


def before_after(measured: dict) -> list[str]:
    """The fastest call of either tree, and the ratio, of every case."""
    trees = measured["trees"]
    rows = [
        [case["name"], *(f"{case['wall'][tree]:.2f}" for tree in trees), *(f"{case[c]['ratio']:.2f}x" for c in ("wall", "cpu"))]
        for case in measured["cases"]
        if "wall" in case
    ]
    commits = " and ".join(tree["commit"][:7] for tree in trees.values())
    heading = ["case", "before, ms", "after, ms", "after / before", "processor time"]
    return [f"{measured['device']}, commits {commits}, {measured['provenance']['date'][:10]}:", "", *table(heading, rows)]


def rooms(measured: dict) -> list[str]:
    """Lines of every room, and of code alone."""
    before, after = (measured["rooms"][tree] for tree in ("before", "after"))
    names = sorted({*before, *after} - {"library", "reproduce"})
    rows = [
        [f"**{room}**" if room == "library" else room]
        + [f"{tree[room][kind]:,}" if room in tree else "" for kind in ("lines", "code") for tree in (before, after)]
        for room in [*names, "library", "reproduce"]
    ]
    return table(["room", "lines before", "after", "code before", "after"], rows)


def first_calls(measured: dict) -> list[str]:
    """Seconds of the first call of each operation from an empty cache."""
    parts = ("imports", "forward", "backward", "cpu_seconds", "seconds")
    rows = [
        [r["call"], *(f"{r[part]:.1f}" if part in r else "" for part in parts), f"≤ {r['mark']:.0f}" if r["mark"] else ""]
        for r in measured["rows"]
    ]
    headings = ["call", "imports, processor s", "forward", "backward", "whole process", "by the clock, s", "mark"]
    return [f"{origin(measured)}:", "", *table(headings, rows)]


def from_nothing(measured: dict) -> list[str]:
    """Seconds of the demo and of all checks on a clean clone."""
    rows = []
    for row in measured["rows"]:
        about, kinds = row["provenance"], ("seconds", "cpu_seconds", "mark")
        seconds, cpu, mark = (f"{row[kind]:.0f}" for kind in kinds)
        rows.append([f"`{row['command']}`", seconds, cpu, f"≤ {mark}", f"{about['cores']}", f"{about['load']}", origin(row)])
    return table(["command", "seconds", "of the processor", "mark", "cores", "load before", "measured at"], rows)


# GlobalGNN


def search_marks(measured: dict) -> list[str]:
    """What `phgcn train` chose and scored without options, and the best candidate trained in full where it was tried."""
    rows = []
    for part in ("songs", "far", "graphs"):
        for row in measured.get(part, []):
            name = row.get("graph") or row.get("task") or f"songs, seed {row['seed']}"
            best = f"{max(row['candidates'].values()):.3f}" if "candidates" in row else ""
            ratio = (row["search_seconds"] + row["train_seconds"]) / row["train_seconds"]
            seconds = f"{row['search_seconds'] + row['train_seconds']:.0f}"
            scores = [f"{row['test']:.3f}", f"{row['val']:.3f}", f"{row['val_first']:.3f}" if best else "", best]
            rows.append([name, row["chosen"], row["metric"], *scores, seconds, f"{ratio:.1f}"])
    headings = [
        "task",
        "chosen",
        "metric",
        "test",
        "validation",
        "on split 0",
        "best candidate there",
        "seconds",
        "times training alone",
    ]
    return [f"{origin(measured)}:", "", *table(headings, rows)]


def global_gnn_epochs(*measured: dict) -> list[str]:
    """Milliseconds per epoch on pubmed beside SGFormer's, on each device that was measured."""
    lines = []
    for content in measured:
        if not content["rows"]:
            continue
        rows = [
            [row["name"] + (", CUDA graph" if row["cuda_graph"] else ""), f"{1000 * row['median']:.2f}", f"{row['ratio']:.2f}x"]
            for row in content["rows"]
        ]
        lines += ["", f"{content['graph']}, {content['provenance']['device']}, {origin(content)}:", ""]
        lines += table(["model", "ms per epoch", "of SGFormer's"], rows)
    return lines[1:] if lines else ["Not measured yet."]


# Tables without edges


def large_tables(content: dict) -> list[str]:
    """Time and memory of a training on a large table."""
    heading = ["rows", "columns", "rows of a step", "a step", "an evaluation of all rows", "memory at most"]
    rows = [
        [
            f"{row['rows']:,}",
            str(row["columns"]),
            f"{row['batch_rows']:,}",
            f"{row['step_seconds']:.1f} s",
            f"{row['evaluation_seconds']:.0f} s",
            f"{row['peak_bytes'] / 1e9:.1f} GB",
        ]
        for row in content["rows"]
    ]
    return [f"{machine(content['provenance'])}, {origin(content)}, other processes beside:", "", *table(heading, rows)]
