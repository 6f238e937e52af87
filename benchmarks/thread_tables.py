r"""Tables of the CPU's filter by number of threads, as lines of Markdown.

Not run by itself: ``benchmarks/documents.py`` writes them into the documents.
"""

from __future__ import annotations

from markdown_lines import digits, machine, origin, table

MARK = 5.0
"""How many times faster 16 threads should be than 2."""

STAGED = "lattice, spread 3"


def jobs(measured: dict) -> list[str]:
    """Milliseconds of every job, and how many times faster the most threads are than 2; in brackets what is outside of kernels
    with the most."""
    at, threads = measured["provenance"], [str(number) for number in measured["threads"]]
    rows = []
    for job, runs in measured["times"].items():
        ratio = runs["2"]["ms"] / runs[threads[-1]]["ms"]
        cells = [digits(runs[number]["ms"]) for number in threads]
        rows.append([job, *cells, f"{ratio:.1f}x", digits(runs[threads[-1]]["outside_kernels_ms"])])
    ratios = [runs["2"]["ms"] / runs[threads[-1]]["ms"] for runs in measured["times"].values()]
    limits = [f"{name} {times['2'] / times[threads[-1]]:.1f}x" for name, times in measured["limits_ms"].items()]
    return [
        f"{at['cores']} cores ({machine(at)}), {origin(measured)}, the fastest of {measured['rounds']} calls, ms, "
        f"N = {measured['count']:,}:",
        "",
        *table(["", *(f"{number} threads" for number in threads), f"2 to {threads[-1]}", "outside of kernels"], rows),
        "",
        f"Mark: {MARK:g}x from 2 to {threads[-1]}; {sum(ratio >= MARK for ratio in ratios)} of {len(ratios)} reach it.",
        "",
        f"What this machine gains on other work: {', '.join(limits)}.",
    ]


def stages(measured: dict) -> list[str]:
    """Milliseconds of the stages of one job."""
    runs = measured["times"][STAGED]
    longest = sorted(runs["2"]["stages_ms"], key=lambda stage: -runs["2"]["stages_ms"][stage])
    last = list(runs)[-1]
    rows = []
    for stage in longest:
        times = [run["stages_ms"][stage] for run in runs.values()]
        if times[0] >= 0.5:
            ratio = runs["2"]["stages_ms"][stage] / runs[last]["stages_ms"][stage]
            rows.append([f"`{stage}`", *map(digits, times), f"{ratio:.1f}x"])
    heading = ["stage", *(f"{number} threads" for number in runs), f"2 to {last}"]
    return [f"Forward of {STAGED}, {origin(measured)}, ms:", "", *table(heading, rows)]
