import json
import os
from pathlib import Path

import pytest

from phgcn.cli import app

TEXAS = (Path(os.environ.get("PHGCN_DATA", "/nowhere")) / "texas.npz").is_file()


def said(capsys, *arguments):
    """The exit code, and what is on stdout and stderr."""
    code = app.run(["reproduce", *(str(argument) for argument in arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["benchmark", "--graphs", "cora,oz"], "graphs has 'oz'; allowed: minesweeper"),
        (["benchmark", "--models", "gin"], "models has 'gin'; allowed: global-gnn"),
        (["benchmark", "--stage", "sing"], "stage is 'sing'; allowed: all, search, train, report"),
        (["benchmark", "--jobs", "0"], "jobs is 0; allowed: 1 or more"),
        (["benchmark", "--limit-seconds", "0"], "limit_seconds is 0.0; allowed: positive numbers"),
        (["when", "--parts", "moon"], "parts has 'moon'; allowed: edges, labels, motif, tree, ring"),
        (["when", "--stage", "sing"], "stage is 'sing'; allowed: all, report"),
        (["when", "--jobs", "0"], "jobs is 0; allowed: 1 or more"),
        (["when"], "results/benchmark/benchmark.json: cannot be read"),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(arguments, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *arguments)
    assert code == 2 and out == "" and not list(tmp_path.iterdir())
    assert err.count("\n") == 1 and text in err and err.startswith("phgcn: ")


@pytest.mark.skipif(not TEXAS, reason="PHGCN_DATA holds no texas")
def test_a_quick_benchmark_of_a_real_graph_in_two_processes(tmp_path, capsys):
    pytest.importorskip("optuna")
    given = ("benchmark", "--quick", "--graphs", "texas", "--models", "linkx,h2gcn", "--trials", 2, "--out", tmp_path)
    code, out, err = said(capsys, *given, "--jobs", 2)
    assert code == 0 and "LINKX" in out and "2 of 2 done" in err
    code, out, _ = said(capsys, *given, "--stage", "report", "--json")
    content = json.loads(out)
    assert code == 0 and [row["row"] for row in content["rows"]] == ["linkx", "h2gcn"]
    assert all(Path(file).is_file() for file in content["files"])


def test_quick_rings_show_the_form(tmp_path, capsys):
    code, out, _ = said(capsys, "when", "--quick", "--parts", "ring", "--out", tmp_path)
    assert code == 0 and "ring transfer" in out and "head off" in out
    code, out, _ = said(capsys, "when", "--stage", "report", "--out", tmp_path, "--json")
    assert code == 0 and len(json.loads(out)["rows"]) == 4
