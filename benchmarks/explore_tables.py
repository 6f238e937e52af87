r"""The tables of docs/explorer.md, from ``benchmarks/results/explore.json``."""

from __future__ import annotations

from markdown_lines import origin, table

UNITS = {"megabytes": "MB", "picture_ms": "ms", "click_ms": "ms"}
MEANT = {"megabytes": "page", "picture_ms": "first picture", "click_ms": "a click (median)"}


def marks(measured: dict) -> list[str]:
    """What was asked for and what was measured, for both pages."""
    rows = []
    for part, title in (("pubmed", "pubmed"), ("large", "generated")):
        page = measured[part]
        about = f"{title}, {page['nodes']:,} nodes, {page['layers']} layers of {page['heads']} heads"
        for key, mark in page["marks"].items():
            got = f"{page[key]:.1f}" if key == "megabytes" else f"{page[key]:.0f}"
            rows.append([about, MEANT[key], f"under {mark['mark']} {UNITS[key]}", f"{got} {UNITS[key]}", _yes(mark["reached"])])
        others = [("first picture", "picture_ms")] * (part == "large")
        for meaning, key in [*others, ("axes and tools", "axes_ms"), ("a frame while it is dragged (median)", "frame_ms")]:
            rows.append([about, meaning, "", f"{page[key]:.0f} ms", ""])
        rows.append([about, "written in", "", f"{page['write_s']:.1f} s", ""])
    load = "; ".join(f"{part} at {origin(measured[part])}, load {measured[part]['load']}" for part in ("pubmed", "large"))
    return [*table(["page", "what", "mark", "measured", "reached"], rows), "", f"2 shared cores: {load}."]


def libraries(measured: dict) -> list[str]:
    """Size and frames of what could draw the dots."""
    rows = []
    for row in measured["libraries"]["rows"]:
        sizes = [f"{row[key] / 1e6:.2f} MB" for key in ("bytes", "packed_bytes")]
        policy = [_yes(row["webgl_without_eval"]), str(row["blocked_styles"])]
        rows.append([row["name"], *sizes, *policy, f"{row['frame_ms']:.0f} ms"])
    points = measured["libraries"]["rows"][0]["points"]
    headings = ["", "size", "packed", "WebGL without `eval`", "styles blocked", f"a frame, {points:,} points"]
    return [*table(headings, rows), "", f"At {origin(measured['libraries'])}, load {measured['libraries']['load']}."]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
