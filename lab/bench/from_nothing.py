r"""How long the demo and all checks take on a clean clone, with nothing installed, downloaded or
compiled before.

Needs a quarter of an hour on two idle cores and 15 GB in the temporary folder.  Commit first: what
is not committed is not in the clone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator

import common
from registry import measurement

from phgcn_lab.markdown import origin, table

COMMANDS = {"demo": ("make demo", 180.0), "ci": (".ci/run", 720.0)}
"""What is run, and the mark in seconds on two cores."""
CACHES = {"XDG_CACHE_HOME": "cache", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
CACHES["TRITON_HOME"] = "triton"
"""Variables that name folders in which programs keep what they downloaded or compiled."""
NOT_OF_A_STRANGER = ("PYTHONPATH", "PHGCN_CACHE", "VIRTUAL_ENV")


def measure(name: str) -> dict[str, object]:
    command, mark = COMMANDS[name]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(common.ROOT), f"{folder}/clone"], check=True)
        environment = {k: v for k, v in os.environ.items() if k not in NOT_OF_A_STRANGER}
        environment |= {variable: f"{folder}/{cache}" for variable, cache in CACHES.items()}
        about, pipes = common.provenance(), {"stderr": subprocess.PIPE, "cwd": f"{folder}/clone"}
        done, taken = common.run_process(command.split(), env=environment, **pipes)
    if done.returncode:
        printed = f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{printed}")
    return {"name": name, "command": command, "mark": mark, **taken, "provenance": about}


def rows_of(measured: dict) -> list[str]:
    rows = []
    for row in measured["rows"]:
        about, kinds = row["provenance"], ("seconds", "cpu_seconds", "mark")
        seconds, cpu, mark = (f"{row[kind]:.0f}" for kind in kinds)
        cells = [f"`{row['command']}`", seconds, cpu, f"≤ {mark}", f"{about['cores']}"]
        rows.append([*cells, f"{about['load']}", origin(row)])
    times = ("seconds", "of the processor", "mark", "cores", "load before", "measured at")
    return table(["command", *times], rows)


@measurement(
    tables=rows_of, only={"nargs": "+", "choices": list(COMMANDS), "default": list(COMMANDS)}
)
def from_nothing(options: argparse.Namespace) -> Iterator[dict]:
    """Seconds of `make demo` and of all checks on a clean clone, nothing installed before."""
    path = options.kept
    kept = json.loads(path.read_text())["rows"] if path.is_file() else []
    rows = {row["name"]: row for row in kept}
    for name in options.only:
        rows[name] = measure(name)
        yield {"rows": [rows[name] for name in COMMANDS if name in rows]}
