import json
import os
from pathlib import Path

import pytest

from phgcn.cli import app

pytest.importorskip("matplotlib")
DATA = Path(os.environ.get("PHGCN_DATA", "/nowhere"))
COMMANDS = ("motif", "scaling", "embeddings", "rivals")


def said(capsys, *arguments):
    code = app.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_experiment_has_help_with_examples(command, capsys):
    code, out, _ = said(capsys, "reproduce", command, "--help")
    assert code == 0 and "Examples:" in out and f"phgcn reproduce {command}" in out and "--quick" in out and "--json" in out


def test_some_motif_trials_as_a_command(tmp_path, capsys):
    small = ("--quick", "--trials", 2, "--iterations", 2, "--jobs", 1, "--out", tmp_path)
    code, out, err = said(capsys, "reproduce", "motif", *small, "--cases", "gat-10-*")
    assert code == 0 and "not done yet: phgcn-10-colour-exact-10" in out and "2 of 2 done, gat-10-colour-1 done" in err
    code, out, _ = said(capsys, "reproduce", "motif", *small, "--cases", "gat-*", "--json")
    found = json.loads(out)
    assert code == 0 and [curve["model"] for curve in found["curves"]] == ["gat", "gat-eda"]
    assert all(Path(file).is_file() for file in found["files"]) and len(found["files"]) == 6
    code, out, err = said(capsys, "reproduce", "motif", *small, "--cases", "gin")
    assert code == 2 and out == "" and err.startswith("phgcn: cases is 'gin'; allowed: phgcn-10-colour-exact-10, ")


def test_a_trial_that_fails_is_named_and_the_code_is_1(tmp_path, capsys, monkeypatch):
    from phgcn.reproduce import motif

    def broken(*arguments, **options):
        raise RuntimeError("out of chains")

    monkeypatch.setattr(motif, "motif_graphs", broken)
    arguments = ("--quick", "--trials", 1, "--iterations", 2, "--jobs", 1, "--cases", "gat-10-*", "--out", tmp_path)
    code, out, _ = said(capsys, "reproduce", "motif", *arguments)
    assert code == 1 and "failed: gat-10-colour-0: RuntimeError: out of chains" in out
    assert not (tmp_path / "motif.json").exists()


def test_scaling_as_a_command(tmp_path, capsys, monkeypatch):
    from phgcn.reproduce import scaling, scaling_jobs

    monkeypatch.setattr(scaling_jobs, "METHODS", scaling_jobs.METHODS[:2])  # other packages compile for a minute
    tiny = scaling.Effort((100, 200), ("spread 1",), rounds=1, longest=9.0, patience=9.0, channels=4)
    monkeypatch.setattr(scaling, "quick", lambda device: tiny)
    code, out, _ = said(capsys, "reproduce", "scaling", "--quick", "--out", tmp_path, "--note", "a shared host")
    assert code == 0 and "forward and gradients, ms" in out and "scaling.svg" in out
    assert json.loads((tmp_path / "scaling.json").read_text())["note"] == "a shared host"


@pytest.mark.skipif(not (DATA / "wisconsin.npz").is_file(), reason="PHGCN_DATA holds no wisconsin.npz")
def test_embeddings_as_a_command(tmp_path, capsys):
    small = ("--quick", "--splits", 1, "--epochs", 2, "--jobs", 1)
    code, out, _ = said(capsys, "reproduce", "embeddings", *small, "--out", tmp_path)
    assert code == 0 and "wisconsin" in out and "cornell" in out and (tmp_path / "embeddings.svg").is_file()


def test_rivals_measured_elsewhere_are_reported_as_a_command(tmp_path, capsys):
    errors = {name: {"median": 0.02, "p99": 0.1, "rms": 0.03} for name in ("random", "structured")}
    row = {"cloud": "dense", "dim": 4, "count": 1000, "rival": "lattice", "number": 0, "setting": {}, "errors": errors}
    row["forward"] = {"seconds": 0.05, "bytes": None, "times": []}
    about = {"device": "cpu", "machine": "a machine", "threads": 2, "commit": "abc", "dirty": False, "date": "2026-01-02T03:04"}
    line = {"place": ["dense", 4, 1000], "key": {}, "load": 0.0, "provenance": about, "rows": [row]}
    (tmp_path / "rivals.jsonl").write_text(json.dumps(line) + "\n")
    code, out, _ = said(capsys, "reproduce", "rivals", "--stage", "report", "--out", tmp_path)
    assert code == 0 and "lattice, 50 ms" in out and (tmp_path / "rivals.png").is_file()
    code, out, err = said(capsys, "reproduce", "rivals", "--stage", "figures", "--out", tmp_path)
    assert code == 2 and err.startswith("phgcn: stage is 'figures'; allowed: all, report")
