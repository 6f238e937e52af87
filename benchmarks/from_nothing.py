r"""How long the demo and all checks take on a clean clone, with nothing installed, downloaded or compiled before.

python benchmarks/from_nothing.py         # both: a quarter of an hour on two idle cores, 15 GB in the temporary folder
python benchmarks/from_nothing.py demo    # one of them; the other's row is kept

Writes ``benchmarks/results/from_nothing.json``.  Commit first: what is not committed is not in the clone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {"demo": ("make demo", 180.0), "ci": (".ci/run", 720.0)}
"""What is run, and the mark in seconds on two cores."""
CACHES = {"XDG_CACHE_HOME": "cache", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip", "TRITON_HOME": "triton"}
"""Variables that name folders in which programs keep what they downloaded or compiled."""
NOT_OF_A_STRANGER = ("PYTHONPATH", "PHGCN_CACHE", "VIRTUAL_ENV")


def measure(name: str) -> dict[str, object]:
    """Runs a command in a clone of the last commit; returns its seconds and the processor's."""
    command, mark = COMMANDS[name]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), f"{folder}/clone"], check=True)
        environment = {key: value for key, value in os.environ.items() if key not in NOT_OF_A_STRANGER}
        for variable, cache in CACHES.items():
            environment[variable] = f"{folder}/{cache}"
        about, before, begin = common.provenance(), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            command.split(), cwd=f"{folder}/clone", env=environment, capture_output=True, text=True, check=False
        )
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{command}: {seconds:.0f} s, of the processor {cpu:.0f} s, mark {mark:.0f} s", flush=True)
    return {"name": name, "command": command, "mark": mark, "seconds": seconds, "cpu_seconds": cpu, "provenance": about}


def main() -> None:
    names = sys.argv[1:] or list(COMMANDS)
    if set(names) - set(COMMANDS):
        raise SystemExit(f"the commands are {' '.join(names)}; allowed: {', '.join(COMMANDS)}")
    path = common.RESULTS / "from_nothing.json"
    rows = {row["name"]: row for row in json.loads(path.read_text())["rows"]} if path.is_file() else {}
    for name in names:
        rows[name] = measure(name)
        common.write_json(path, {"rows": [rows[name] for name in COMMANDS if name in rows]})


if __name__ == "__main__":
    main()
