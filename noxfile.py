r"""Runs short subsets of the tests on every supported version of Python, torch and PyG.

``make test-all`` runs ``versions``: all sets of versions, the results kept in
``lab/bench/results/versions.json``, from which ``make tables`` writes docs/versions.md.
``.ci/run`` runs ``quick``: the oldest and the newest on fewer tests, kept nowhere. ``nox -s
"versions(oldest)"`` runs one.

Each session has an environment of its own, which uv fills from PyPI; torch from there is a CUDA
build of some gigabytes.  A session whose Python is not on the path is skipped."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import nox

QUICK = ("tests/cli/test_warnings.py", "tests/nn/test_phgcn_conv.py")
"""Commands on an own graph, without a warning, and the layer: a minute with compiling."""
SHORT = (*QUICK, "tests/test_functional.py", "tests/nn/test_models.py", "tests/data/test_load.py")
"""And attention of every method and backend, the models, files: some minutes with compiling."""
TOOLS = ("pytest>=8", "hypothesis>=6.100", "scikit-learn>=1.3")
PINNED = "==2.13.0"  # as constraints.txt
SESSIONS = {
    "oldest": ("3.10", "==2.6.0", "==2.6.0"),
    "pinned-3.11": ("3.11", PINNED, ""),
    "pinned-3.12": ("3.12", PINNED, ""),
    "newest": ("3.13", "", ""),
}
"""Python, torch and PyG of each session; an empty text is the newest that installs."""
RESULTS = Path(__file__).resolve().parent / "lab" / "bench" / "results" / "versions.json"

nox.options.sessions = ["versions"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False


def activate_pyenv() -> None:
    """Activates all Pythons of pyenv, whose commands ``python3.10`` and so on fail for versions
    that are not.
    """
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    if folder.is_dir():
        os.environ.setdefault(
            "PYENV_VERSION", ":".join(sorted(path.name for path in folder.iterdir()))
        )


activate_pyenv()


def sessions(*names: str):
    """Runs a function as one session for each set of versions."""
    return nox.parametrize(
        "python,torch,pyg", [nox.param(*SESSIONS[name], id=name) for name in names]
    )


def install(session: nox.Session, torch: str, pyg: str) -> None:
    session.install(f"torch{torch}", f"torch_geometric{pyg}", ".", "./lab", *TOOLS)


def source_state() -> dict[str, object]:
    """The commit, and whether what is tested differs from it."""
    ask = (
        ("git", "rev-parse", "HEAD"),
        ("git", "status", "--porcelain", "--", "src", "lab", "tests"),
    )
    commit, changes = (
        subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        for words in ask
    )
    return {"commit": commit, "dirty": bool(changes)}


def keep(row: dict[str, object]) -> None:
    """Replaces the row of a session in the results, which are in the order of the sessions."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.is_file() else []
    rows = [*(old for old in rows if old["session"] != row["session"]), row]
    rows.sort(key=lambda row: list(SESSIONS).index(row["session"]))
    RESULTS.write_text(
        json.dumps({"tests": SHORT, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )


@nox.session
@sessions(*SESSIONS)
def versions(session: nox.Session, torch: str, pyg: str) -> None:
    """Installs the package beside the asked-for versions, runs the short subset and keeps what came
    out.
    """
    install(session, torch, pyg)
    report = Path(session.create_tmp()) / "report.xml"
    ask = "import importlib.metadata as m, platform; print(platform.python_version(), *map(m.version, {!r}))"  # noqa: E501
    packages = ("torch", "torch_geometric", "numba", "numpy")
    found = session.run("python", "-c", ask.format(packages), silent=True).split()
    session.run(
        "python", "-m", "pytest", "-q", f"--junitxml={report}", *SHORT, success_codes=[0, 1]
    )
    attributes = ElementTree.parse(report).getroot()[0].attrib
    counts = {name: int(attributes[name]) for name in ("tests", "failures", "errors", "skipped")}
    today = datetime.now(timezone.utc).date().isoformat()
    origin = {
        "session": session.name.split("(")[1].rstrip(")"),
        "date": today,
        "system": platform.system(),
    }
    keep(
        {
            **origin,
            **source_state(),
            **dict(zip(("python", *packages), found, strict=True)),
            **counts,
        }
    )
    if counts["failures"] + counts["errors"]:
        session.error(f"{counts['failures']} tests failed, {counts['errors']} had errors")


@nox.session
@sessions("oldest", "newest")
def quick(session: nox.Session, torch: str, pyg: str) -> None:
    """Installs the package beside the asked-for versions and runs the quick subset."""
    install(session, torch, pyg)
    session.run("python", "-m", "pytest", "-q", *QUICK)
