import json
import os
from pathlib import Path

import pytest

from phgcn.cli import app

pytest.importorskip("matplotlib")
DATA = Path(os.environ.get("PHGCN_DATA", "/nowhere"))
COMMANDS = ("motif", "scaling", "embeddings", "rivals", "table", "benchmark", "when", "tables")


def needs(graph):
    found = (DATA / f"{graph}.npz").is_file()
    return pytest.mark.skipif(not found, reason=f"PHGCN_DATA holds no {graph}")


@pytest.fixture
def said(capsys):
    def call(command, *arguments):
        """Returns the exit code, and what is on stdout and stderr."""
        code = app.run(["reproduce", *command.split(), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("command", COMMANDS)
def test_every_experiment_has_help_with_examples(command, said):
    code, out, _ = said(command, "--help")
    assert code == 0 and "Examples:" in out
    assert f"phgcn reproduce {command}" in out and "--json" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("benchmark --graphs cora,oz", "graphs has 'oz'; allowed: minesweeper"),
        ("benchmark --models gin", "models has 'gin'; allowed: global-gnn"),
        ("benchmark --stage sing", "stage is 'sing'; allowed: all, search, train, report"),
        ("benchmark --jobs 0", "jobs is 0; allowed: 1 or more"),
        ("benchmark --limit-seconds 0", "limit_seconds is 0.0; allowed: positive numbers"),
        ("when --parts moon", "parts has 'moon'; allowed: edges, labels, motif, tree, ring"),
        ("when --stage sing", "stage is 'sing'; allowed: all, report"),
        ("when", "results/benchmark/benchmark.json: cannot be read"),
        ("rivals --stage figures", "stage is 'figures'; allowed: all, report"),
        ("table --graphs cora,oz", "graphs has 'oz'; allowed: cora"),
        ("table --models gin", "models has 'gin'; allowed: gcn"),
        ("table --protocols mine", "protocols has 'mine'; allowed: paper, geom"),
        ("table --methods guess", "methods has 'guess'; allowed: lattice"),
        ("table --jobs 0", "jobs is 0; allowed: 1 or more"),
        ("table --stage sing", "stage is 'sing'; allowed: all"),
        ("table --stage tune", "tune is None; allowed in the stage tune"),
        ("table --device moon", "device is 'moon'; allowed"),
        ("motif --cases gin", "cases is 'gin'; allowed: phgcn-10-colour-exact-10, "),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(arguments, text, tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(arguments)
    assert code == 2 and out == "" and not list(tmp_path.iterdir())
    assert err.count("\n") == 1 and text in err and err.startswith("phgcn: ")


def test_some_motif_trials_as_a_command(tmp_path, said):
    small = "motif --quick --trials 2 --iterations 2 --jobs 1 --cases"
    code, out, err = said(small, "gat-10-*", "--out", tmp_path)
    assert code == 0 and "not done yet: phgcn-10-colour-exact-10" in out
    assert "2 of 2 done, gat-10-colour-1 done" in err
    code, out, _ = said(small, "gat-*", "--out", tmp_path, "--json")
    found = json.loads(out)
    assert code == 0 and [curve["model"] for curve in found["curves"]] == ["gat", "gat-eda"]
    assert all(Path(file).is_file() for file in found["files"]) and len(found["files"]) == 6


def test_a_trial_that_fails_is_named_and_the_code_is_1(tmp_path, said, monkeypatch):
    from phgcn_lab import motif

    def broken(*arguments, **options):
        raise RuntimeError("out of chains")

    monkeypatch.setattr(motif, "motif_graphs", broken)
    small = "motif --quick --trials 1 --iterations 2 --jobs 1 --cases gat-10-* --out"
    code, out, _ = said(small, tmp_path)
    assert code == 1 and "failed: gat-10-colour-0: RuntimeError: out of chains" in out
    assert not (tmp_path / "motif.json").exists()


def test_scaling_as_a_command(tmp_path, said, monkeypatch):
    from phgcn_lab import scaling

    monkeypatch.setattr(scaling, "METHODS", ("exact", "lattice"))
    tiny = scaling.Effort((100, 200), (4,), ("dense",), rounds=1, limit=60.0)
    monkeypatch.setattr(scaling, "quick", lambda device: tiny)
    code, out, _ = said("scaling", "--quick", "--out", tmp_path, "--note", "a shared host")
    assert code == 0 and "with gradients" in out and "scaling.svg" in out
    assert json.loads((tmp_path / "scaling.json").read_text())["note"] == "a shared host"


@needs("wisconsin")
def test_embeddings_as_a_command(tmp_path, said):
    small = "embeddings --quick --splits 1 --epochs 2 --jobs 1 --out"
    code, out, _ = said(small, tmp_path)
    assert code == 0 and "wisconsin" in out and "cornell" in out
    assert (tmp_path / "embeddings.svg").is_file()


def test_rivals_measured_elsewhere_are_reported_as_a_command(tmp_path, said):
    errors = {name: {"median": 0.02, "p99": 0.1, "rms": 0.03} for name in ("random", "structured")}
    place = {"cloud": "dense", "dim": 4, "count": 20_000}
    row = {**place, "rival": "lattice", "number": 0, "setting": {}, "errors": errors}
    row["forward"] = {"seconds": 0.05, "bytes": None, "times": []}
    about = {"device": "cpu", "machine": "a machine", "threads": 2}
    about |= {"commit": "abc", "dirty": False, "date": "2026-01-02T03:04"}
    content = {"place": place, "asked": {}, "load": 0.0, "provenance": about, "rows": [row]}
    (tmp_path / "rivals").mkdir()
    (tmp_path / "rivals" / "dense-4-20000.json").write_text(json.dumps(content))
    code, out, _ = said("rivals", "--stage", "report", "--out", tmp_path)
    assert code == 0 and "lattice, 50 ms" in out and (tmp_path / "rivals.png").is_file()


@needs("texas")
def test_a_quick_benchmark_of_a_real_graph_in_two_processes(tmp_path, said):
    pytest.importorskip("optuna")
    given = "benchmark --quick --graphs texas --models linkx,h2gcn --trials 2 --out"
    code, out, err = said(given, tmp_path, "--jobs", 2)
    assert code == 0 and "LINKX" in out and "2 of 2 done" in err
    code, out, _ = said(given, tmp_path, "--stage", "report", "--json")
    content = json.loads(out)
    assert code == 0 and [row["row"] for row in content["rows"]] == ["linkx", "h2gcn"]
    assert all(Path(file).is_file() for file in content["files"])


def test_quick_rings_show_the_form(tmp_path, said):
    code, out, _ = said("when", "--quick", "--parts", "ring", "--out", tmp_path)
    assert code == 0 and "ring transfer" in out and "head off" in out
    code, out, _ = said("when", "--stage", "report", "--out", tmp_path, "--json")
    assert code == 0 and len(json.loads(out)["rows"]) == 4


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path, said):
    (tmp_path / "file").write_text("in the way")
    code, _, err = said("table", "--quick", "--out", tmp_path / "file" / "table")
    assert code == 1 and err.count("\n") == 1 and "cannot be written (Not a directory)" in err


@needs("texas")
def test_a_quick_table_of_a_real_graph(tmp_path, said):
    given = "table --quick --graphs texas --models gcn,mlp --out"
    code, out, err = said(given, tmp_path)
    assert code == 0 and "GCN" in out and "A quick version" in out and "2 of 2 done" in err
    assert "A quick version" in (tmp_path / "table.md").read_text()
    code, out, err = said(given, tmp_path, "--json")
    content = json.loads(out)
    assert code == 0 and err == "" and [row["quick"] for row in content["rows"]] == [True, True]
    assert content["rows"] == json.loads((tmp_path / "table.json").read_text())
    assert all(Path(file).is_file() for file in content["files"]) and len(content["files"]) == 6


@needs("texas")
def test_a_job_that_fails_gives_code_1(tmp_path, said):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "texas-mlp.toml").write_text('model = "mlp"\nlearning_rate = 1e30\n')
    given = "table --quick --graphs texas --models mlp --out"
    code, out, err = said(given, tmp_path)
    assert code == 1 and "failed: texas-mlp-paper: split-00: no finite loss" in out
    assert "texas-mlp-paper failed" in err and "missing: texas-mlp-paper" in out
