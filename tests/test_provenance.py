import shutil
import subprocess
import sys

import pytest

import phgcn
from phgcn import provenance as module
from phgcn.provenance import provenance

KEYS = {
    "machine",
    "cores",
    "threads",
    "device",
    "python",
    "torch",
    "phgcn",
    "commit",
    "dirty",
    "seed",
    "date",
    "command",
}


def git(folder, *arguments):
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree of its own with one commit, which the module takes for the one it lies in."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    for name in ("src/phgcn/code.py", "lab/bench/results/old.json", "docs/text.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    monkeypatch.setattr(module, "_PACKAGE", (tmp_path / "src" / "phgcn").resolve())
    monkeypatch.setattr(module, "_ROOT", tmp_path.resolve())
    for name in ("PHGCN_COMMIT", "PHGCN_DIRTY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_all_is_said(monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["/somewhere/bin/phgcn", "train", "texas", "--out", "/tmp/far/run"]
    )
    found = provenance(seed=7, device="cpu", packages=("numpy", "no-such-package"))
    assert (
        set(found) >= KEYS
        and found["seed"] == 7
        and found["device"] == "cpu"
        and found["phgcn"] == phgcn.__version__
    )
    assert found["command"] == "phgcn train texas --out run" and found["no-such-package"] is None


def test_a_benchmark_is_named_by_its_place_in_the_project(tree, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(tree / "lab" / "bench"), "gpu_speed", "--quick"])
    assert provenance()["command"] == "python lab/bench gpu_speed --quick"


def test_a_clean_tree_has_a_commit_and_results_do_not_make_it_dirty(tree):
    (tree / "lab" / "bench" / "results" / "old.json").write_text("measured again\n")
    (tree / "docs" / "text.md").write_text("two\n")
    found = provenance()
    assert len(found["commit"]) == 40 and found["dirty"] is False


@pytest.mark.parametrize("name", ["src/phgcn/code.py", "src/phgcn/new.py", "lab/bench/new.py"])
def test_code_that_is_not_committed_makes_it_dirty(name, tree):
    (tree / name).write_text("two\n")
    assert provenance()["dirty"] is True


def test_a_package_inside_of_another_repository_has_no_commit(tree, monkeypatch):
    monkeypatch.setattr(module, "_PACKAGE", tree / ".venv" / "phgcn")
    found = provenance()
    assert found["commit"] is None and found["dirty"] is None


@pytest.mark.parametrize(("given", "dirty"), [(None, None), ("0", False), ("1", True)])
def test_a_copied_tree_takes_both_from_the_environment(given, dirty, monkeypatch):
    monkeypatch.setenv("PHGCN_COMMIT", "abc")
    monkeypatch.delenv("PHGCN_DIRTY", raising=False)
    if given is not None:
        monkeypatch.setenv("PHGCN_DIRTY", given)
    found = provenance()
    assert (found["commit"], found["dirty"]) == ("abc", dirty)


def test_benchmarks_use_the_same_function(monkeypatch):
    monkeypatch.syspath_prepend(str(module._ROOT / "lab" / "bench"))
    common = pytest.importorskip("common")
    monkeypatch.setenv("PHGCN_COMMIT", "abc")
    found = common.provenance()
    assert (
        set(found) >= {*KEYS, "load"} and found["commit"] == "abc" and found["seed"] == common.SEED
    )
