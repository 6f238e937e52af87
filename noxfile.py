r"""Runs a short subset of the tests on every supported version of Python, torch and PyG: ``make test-all``.

Each session has an environment of its own, with what pip finds for its versions; torch from PyPI is a CUDA build of some
gigabytes.  ``nox -s "versions(oldest)"`` runs one.  What came out is kept in ``benchmarks/results/versions.json``, and
``make tables`` writes it into docs/versions.md.  A session whose Python is not on the path is skipped.
"""

from __future__ import annotations

import json
import platform
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import nox

SHORT = ("tests/test_functional.py", "tests/nn/test_phgcn_conv.py", "tests/nn/test_models.py", "tests/data/test_load.py")
"""Attention of every method and backend, a layer, the models, files: some minutes with compiling."""
TOOLS = ("pytest>=8", "hypothesis>=6.100", "scikit-learn>=1.3")
PINNED = "==2.13.0"  # as constraints.txt
SESSIONS = {
    "oldest": ("3.10", "==2.6.0", "==2.6.0"),
    "pinned-3.11": ("3.11", PINNED, ""),
    "pinned-3.12": ("3.12", PINNED, ""),
    "newest": ("3.13", "", ""),
}
"""Python, torch and PyG of each session; an empty text is the newest that installs."""
RESULTS = Path(__file__).resolve().parent / "benchmarks" / "results" / "versions.json"

nox.options.error_on_missing_interpreters = False


def keep(row: dict[str, str]) -> None:
    """Replaces the row of a session in the results, which are in the order of the sessions."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.is_file() else []
    rows = [*(old for old in rows if old["session"] != row["session"]), row]
    rows.sort(key=lambda row: list(SESSIONS).index(row["session"]))
    RESULTS.write_text(json.dumps({"tests": SHORT, "rows": rows}, indent=1) + "\n", encoding="utf-8")


@nox.session
@nox.parametrize("python,torch,pyg", [nox.param(*versions, id=name) for name, versions in SESSIONS.items()])
def versions(session: nox.Session, torch: str, pyg: str) -> None:
    """Installs the package beside the asked-for versions and runs the short subset."""
    session.install(f"torch{torch}", f"torch_geometric{pyg}", ".", *TOOLS)
    report = Path(session.create_tmp()) / "report.xml"
    ask = "import importlib.metadata as m, platform; print(platform.python_version(), *map(m.version, {!r}))"
    packages = ("torch", "torch_geometric", "numba", "numpy")
    found = session.run("python", "-c", ask.format(packages), silent=True).split()
    session.run("python", "-m", "pytest", "-q", f"--junitxml={report}", *SHORT, success_codes=[0, 1])
    attributes = ElementTree.parse(report).getroot()[0].attrib
    counts = {name: int(attributes[name]) for name in ("tests", "failures", "errors", "skipped")}
    today = datetime.now(timezone.utc).date().isoformat()
    origin = {"session": session.name.split("(")[1].rstrip(")"), "date": today, "system": platform.system()}
    keep({**origin, **dict(zip(("python", *packages), found, strict=True)), **counts})
    if counts["failures"] + counts["errors"]:
        session.error(f"{counts['failures']} tests failed, {counts['errors']} had errors")
