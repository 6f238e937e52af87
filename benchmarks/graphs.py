r"""Counts the known graphs: the columns of the paper's Table 1 as counted in the files, beside the published counts.

python benchmarks/graphs.py    # writes docs/results/graphs.json; needs the files, in $PHGCN_DATA or the cache
"""

from __future__ import annotations

from typing import Any

import common

import phgcn.data

OUT = common.RESULTS.parent.parent / "docs" / "results" / "graphs.json"


def rows() -> list[dict[str, Any]]:
    """One row for each known graph; ``counted`` is :obj:`None` where its file is not on this machine."""
    return [
        {
            "graph": row.name,
            "edge_count": row.edge_count,
            "masks": row.masks,
            "metric": row.metric,
            "counted": None if row.found is None else row.found._asdict(),
            "published": row.published._asdict(),
        }
        for row in phgcn.data.table()
    ]


def main() -> None:
    content = {"provenance": common.provenance(), "rows": rows()}
    common.write_json(OUT, content)
    print(f"{sum(row['counted'] is not None for row in content['rows'])} of {len(content['rows'])} graphs counted: {OUT}")


if __name__ == "__main__":
    main()
