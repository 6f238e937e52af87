import json
import os
from pathlib import Path

import pytest

from phgcn.cli import app

TEXAS = (Path(os.environ.get("PHGCN_DATA", "/nowhere")) / "texas.npz").is_file()


def said(capsys, *arguments):
    """The exit code, and what is on stdout and stderr."""
    code = app.run(["reproduce", "table", *(str(argument) for argument in arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--graphs", "cora,oz"], "graphs has 'oz'; allowed: cora"),
        (["--models", "gin"], "models has 'gin'; allowed: gcn"),
        (["--protocols", "mine"], "protocols has 'mine'; allowed: paper, geom"),
        (["--methods", "guess"], "methods has 'guess'; allowed: lattice"),
        (["--jobs", "0"], "jobs is 0; allowed: 1 or more"),
        (["--stage", "sing"], "stage is 'sing'; allowed: all"),
        (["--stage", "tune"], "tune is None; allowed in the stage tune"),
        (["--device", "moon"], "device is 'moon'; allowed"),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(arguments, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *arguments)
    assert code == 2 and out == "" and not list(tmp_path.iterdir())
    assert err.count("\n") == 1 and text in err and err.startswith("phgcn: ")


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    code, _, err = said(capsys, "--quick", "--out", tmp_path / "file" / "table")
    assert code == 1 and err.count("\n") == 1 and "cannot be written (Not a directory)" in err


def test_the_help_has_examples(capsys):
    code, out, _ = said(capsys, "--help")
    assert code == 0 and "Examples:" in out and "--stage" in out and "--json" in out


@pytest.mark.skipif(not TEXAS, reason="PHGCN_DATA holds no texas")
def test_a_quick_table_of_a_real_graph(tmp_path, capsys):
    given = ("--quick", "--graphs", "texas", "--models", "gcn,mlp", "--out", tmp_path)
    code, out, err = said(capsys, *given)
    assert code == 0 and "GCN" in out and "quick" in out and "2 of 2 done" in err
    assert "A quick version" in (tmp_path / "table.md").read_text()
    code, out, err = said(capsys, *given, "--json")
    content = json.loads(out)
    assert code == 0 and err == "" and [row["quick"] for row in content["rows"]] == [True, True]
    assert content["rows"] == json.loads((tmp_path / "table.json").read_text())
    assert all(Path(file).is_file() for file in content["files"]) and len(content["files"]) == 6


@pytest.mark.skipif(not TEXAS, reason="PHGCN_DATA holds no texas")
def test_a_job_that_fails_gives_code_1(tmp_path, capsys):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "texas-mlp.toml").write_text('model = "mlp"\nlearning_rate = 1e30\n')
    code, out, err = said(capsys, "--quick", "--graphs", "texas", "--models", "mlp", "--out", tmp_path)
    assert code == 1 and "failed: texas-mlp-paper: split-00: no finite loss" in out and "texas-mlp-paper failed" in err
    assert "missing: texas-mlp-paper" in out
