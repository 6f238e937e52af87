"""The kernels compile for a GPU, though there may be none."""

import json
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
        env={**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": paths, "TRITON_CACHE_DIR": str(launches.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_every_launch_compiles_for_a_hopper_gpu(tmp_path):
    run("record", tmp_path / "launches.json", interpret="1")
    assert "compiled" in run("compile", tmp_path / "launches.json")


def test_runs_of_the_near_field_have_lengths_of_their_own_when_compiled(tmp_path):
    """What the interpreter cannot see: a loop may be compiled wrong."""
    from phgcn.lattice.triton import near

    points = {"keys": "*i64", "point": "*i64", "position": "*fp32"}
    types = {"targets": points, "sources": points, "runs": "*i32", "near": "*fp64"}
    types |= dict.fromkeys(("begin", "end", "target_count", "source_count", "row_count", "channels"), "i32")
    launches = []
    for back, extra in ((False, near.ONES), (True, near.STORED), (True, near.ONES)):
        sizes = near.NearSizes(4, 4, 4, 3, back, extra, 3 - extra, not back, 16, 4, 8, near.LOOK, near.LIST, 64)
        every = {"SIZES": sizes._asdict(), **dict.fromkeys(() if back else ("target_rows", "grad"))}
        kinds = {name: "constexpr" if name in every else types.get(name, "*fp32") for name in near._near.arg_names}
        options = {"num_warps": 1, "enable_fp_fusion": not back}
        launches.append(json.dumps([near.__name__, "_near", kinds, every, options]))
    (tmp_path / "launches.json").write_text(json.dumps(launches))
    assert "3 compiled" in run("compile", tmp_path / "launches.json")
