"""The kernels compile for a GPU, though there may be none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent


def run(step, launches, interpret="0"):
    """One step of ``compile_kernels.py``, in a process of its own."""
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "compile_kernels.py"), step, str(launches)],
        env={
            **os.environ,
            "TRITON_INTERPRET": interpret,
            "PYTHONPATH": paths,
            "TRITON_CACHE_DIR": str(launches.parent),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_every_launch_compiles_for_a_hopper_gpu(tmp_path):
    run("record", tmp_path / "launches.json", interpret="1")
    assert "compiled" in run("compile", tmp_path / "launches.json")
