r"""Runs the installed command, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("phgcn")


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "OMP_WAIT_POLICY": "passive", **extra}


def phgcn(*arguments: object, cwd: Path | None = None, **options) -> subprocess.CompletedProcess:
    """The finished command."""
    command = [str(COMMAND), *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def python(code: str) -> subprocess.CompletedProcess:
    """A program, run to its end in a new process."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)


def started(*arguments: object, cwd: Path | None = None) -> subprocess.Popen:
    """The command, running."""
    command = [str(COMMAND), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True
    )
