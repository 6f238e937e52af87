"""The wheel, outside of the repository: what it holds, and whether the tutorial runs from an
environment of its own.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def outside():
    """The environment of a user, whom no variable leads into the repository."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PHGCN_DATA")
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the tree without asking a network for what builds it."""
    pytest.importorskip("build")
    folder, tree = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("tree")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    options = ["--wheel", "--sdist", "--no-isolation", "--outdir", folder, tree]
    command = [sys.executable, "-m", "build", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("phgcn-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """An environment with the wheel; its dependencies are those of this one, found through a
    ``.pth`` file behind it.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    command += ["--no-deps", "--no-index", wheel]
    subprocess.run(command, env=outside(), check=True, capture_output=True)
    Path(site, "dependencies.pth").write_text(
        sysconfig.get_path("purelib") + "\n", encoding="utf-8"
    )
    return python


def run(python, *arguments, cwd):
    done = subprocess.run(
        [python, *arguments], cwd=cwd, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_twine_finds_nothing_wrong(wheel):
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *wheel.parent.iterdir()]
    assert (
        "FAILED" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def test_the_wheel_holds_what_the_package_reads(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    needed = {
        str(path.relative_to(source)) for path in (source / "phgcn").rglob("*") if path.is_file()
    }
    assert {name for name in needed if "__pycache__" not in name} <= held


def test_the_wheel_holds_no_experiment(wheel, python, tmp_path):
    held = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert held == {"phgcn", wheel.name.split("-py3")[0] + ".dist-info"}
    assert not [
        name for name in zipfile.ZipFile(wheel).namelist() if "reproduce" in name or "bench" in name
    ]


def test_it_is_the_wheel_that_runs(python, tmp_path):
    place = run(python, "-c", "import phgcn; print(phgcn.__file__)", cwd=tmp_path)
    assert str(python.parents[1]) in place and str(ROOT) not in place


@pytest.mark.slow
def test_the_tutorial_runs_from_the_wheel(python, tmp_path):
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|console)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    for language, block in blocks:
        if language == "python":
            run(python, "-c", block, cwd=tmp_path)
            continue
        for line in block.splitlines():
            name, *words = shlex.split(line)
            assert name == "phgcn"
            run(python, python.parent / "phgcn", *words, cwd=tmp_path)
