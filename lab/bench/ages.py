r"""How many commits the code has gone on since a figure of the documents was measured.

Every JSON file that a table comes from describes some folders, its rooms.  Its age is the number of
commits in them since the oldest of its commits.  A file that is older than :data:`LIMIT` is named
in :data:`OLD` with the reason, and its tables say so, or ``tests/docs`` fails.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 100
"""Commits in the rooms of a file that may follow its measurement."""

LATTICE = ("src/phgcn/lattice", "src/phgcn/exact")
CPU = (*LATTICE, ":!src/phgcn/lattice/triton", ":!src/phgcn/exact/triton")
GPU = (*LATTICE, ":!src/phgcn/lattice/numba", ":!src/phgcn/exact/numba")
LAYERS = ("src/phgcn/nn", "src/phgcn/structural")
TRAINING = ("src/phgcn/nn", "src/phgcn/train")
DATA = ("src/phgcn/data",)

ROOMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("accuracy", "crossing", "hostile", "lattice", "trained"), CPU),
    **dict.fromkeys(("ladder_choices", "ladder_scatter", "before_after", "scaling", "rivals"), CPU),
    **dict.fromkeys(("gpu_crossing", "gpu_large", "gpu_speed", "scaling-gpu", "rivals-gpu"), GPU),
    "first_call": (*CPU, "src/phgcn/runtime"),
    "from_nothing": ("Makefile", "pyproject.toml", ".ci"),
    "versions": ("pyproject.toml", "noxfile.py", "constraints.txt"),
    "layers": LAYERS,
    "gpu_layers": (*LAYERS, *GPU),
    "products": (*LAYERS, *GPU),
    "distributed": ("src/phgcn/distributed",),
    "explore": ("src/phgcn/explore",),
    "graphs": DATA,
    "read_graphs": DATA,
    "sparse_features": ("src/phgcn/nn",),
    "split_overlap": ("src/phgcn/data/splits.py",),
    "gallery": ("examples", *CPU),
}
"""The folders that a JSON file describes, by its name; the others describe :data:`TRAINING`."""


class Old(NamedTuple):
    """Why a file may be old: the commits that this is said of, and what is printed."""

    commits: tuple[str, ...]
    reason: str


FORMER = "measured before the present lattice"
OLD: dict[str, Old] = {
    "benchmark": Old(("e884eca",), FORMER),
    "embeddings": Old(("ead7a31",), FORMER),
    "first_call": Old(("cb46a04",), FORMER),
    "gallery": Old(("8edc79b",), FORMER),
    "hostile_before": Old(("a50fdde",), "*before* is the former lattice"),
    "distributed": Old(("eee1c8f",), FORMER),
    "lattice": Old(("ac1e053",), "the times are those of the former lattice"),
    "memory": Old(("0a25181",), FORMER),
    "motif": Old(
        (
            *("090b5ed", "10825b1", "14501db", "173bdf5", "37c6d2f", "480c152", "649688e"),
            *("7571452", "932c2ea", "ad2d506", "b2ca64b", "bfeb118", "da3ffb0", "e9a5e21"),
            "ff2948d",
        ),
        FORMER,
    ),
    "products": Old(("d595748",), FORMER),
    "rivals": Old(("9ac7fc5",), FORMER),
    "rivals-gpu": Old(("d595748",), FORMER),
    "scaling": Old(("cf2c4b9",), FORMER),
    "scaling-gpu": Old(("a975be7",), FORMER),
    "table": Old(
        (
            *("4fd0046", "55e1c1b", "79391be", "9826ab8", "ad2d506", "cf2c4b9"),
            *("d1a4568", "eb8462d"),
        ),
        FORMER,
    ),
    "table-differences": Old(("4fd0046",), FORMER),
    "trained": Old(("9751c61",), FORMER),
    "training": Old(("7984a02",), "the training loop has changed since"),
    "when": Old(("1002b2f",), FORMER),
    "within_class": Old(("c9fe583",), FORMER),
}
"""Old files by name.  Whoever measures one anew takes it off this list: a test compares commits."""


JOINED = dict.fromkeys(
    (
        *("f30003c", "246304a", "cd636ca", "c686f43", "fdae15f"),
        *("f0df272", "604612c", "47654a3", "b442499", "559cd7e", "0e9c766", "25f36af"),
    ),
    "3e4b9fd",
)
"""Commits that figures name and the history does not have: after an interruption they were joined
into the commit beside them.
"""


def rooms(source: str) -> tuple[str, ...]:
    return ROOMS.get(Path(source).stem, TRAINING)


def is_whole() -> bool:
    """Whether this is a repository with its whole history."""
    command = ("git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return done.stdout.strip() == "false"


def history() -> frozenset[str]:
    """Returns the first seven letters of all commits up to the present one."""
    return frozenset(line[:7] for line in _git("rev-list", "HEAD").split())


def commits_since(commit: str, folders: Iterable[str]) -> int:
    """Counts the commits in some folders since one of them."""
    since = f"{JOINED.get(commit, commit)}..HEAD"
    return int(_git("rev-list", "--count", since, "--", *folders))


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(ROOT), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def age(source: str, commits: Iterable[str]) -> int:
    """Returns the age of a file: that of the oldest of its commits."""
    return max(commits_since(commit, rooms(source)) for commit in commits)


def sentence(sources: Iterable[str]) -> str:
    """What a table says of the old ones among its files, or nothing."""
    found = [Path(source).stem for source in sources]
    reasons = dict.fromkeys(OLD[name].reason for name in found if name in OLD)
    return f"Old: {'; '.join(reasons)}." if reasons else ""
