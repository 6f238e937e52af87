import json
import os
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
import typer
from installed import COMMAND, environment, phgcn
from small_graphs import small_graph, write_tables

from phgcn.cli import app
from phgcn.data import save_graph
from phgcn.explore.runs import gather_side
from phgcn.train import Run

COMMANDS = (
    "train",
    "evaluate",
    "predict",
    "tune",
    "plot",
    "explore",
    "export",
    "compare",
    "embed",
    "graphs",
    "doctor",
    "partition",
    "reproduce",
)
EXPERIMENTS = ("table", "motif", "scaling", "embeddings", "benchmark", "when", "rivals", "tables", "city")
QUICK = ("--splits", "1", "--set", "epochs=2", "--set", "heads=2")


def said(capsys, *arguments):
    """The exit code, and the lines on stdout and stderr."""
    code = app.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def graph(tmp_path):
    return write_tables(small_graph(), tmp_path / "small")


def processor_seconds(*arguments):
    """The processor time that a command takes, which other programs hardly change."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = phgcn(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.returncode == 0
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_comes_within_a_second_and_without_torch():
    assert all(name in phgcn("--help").stdout for name in COMMANDS)
    assert min(processor_seconds("--help") for _ in range(3)) < 1
    heavy = ("torch", "numba", "numpy", "torch_geometric", "matplotlib")
    code = f"import sys, phgcn.cli.app; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_commands_are_all_that_there_are():
    group = typer.main.get_command(app.app)
    assert set(group.commands) == set(COMMANDS) and set(group.commands["reproduce"].commands) == set(EXPERIMENTS)


def test_an_interrupted_command_does_not_wait_for_threads():
    code = (
        "import sys, threading, phgcn.data\n"
        "from phgcn.cli import app\n"
        "def interrupted():\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    raise KeyboardInterrupt\n"
        "phgcn.data.table, sys.argv = interrupted, ['phgcn', 'graphs']\n"
        "app.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment())
    assert ended.returncode == 130 and ended.stderr == "phgcn: interrupted\n"


@pytest.mark.parametrize("command", [*COMMANDS[:-1], *(f"reproduce {name}" for name in EXPERIMENTS)])
def test_every_command_has_help_with_examples_and_json(command, capsys):
    code, out, _ = said(capsys, *command.split(), "--help")
    assert code == 0 and "Examples:" in out and f"phgcn {command}" in out and "--json" in out


def test_without_a_command_the_help_is_shown(capsys):
    code, out, _ = said(capsys)
    assert code == 0 and "Usage" in out


@pytest.mark.parametrize(
    ("commit", "dirty", "shown"),
    [("", "", ""), ("abcdef0123", "0", " (commit abcdef0)"), ("ab", "1", " (commit ab, with changes)")],
)
def test_version_and_commit_are_printed(commit, dirty, shown, monkeypatch, capsys):
    import phgcn as package
    from phgcn import provenance

    monkeypatch.setattr(provenance, "_git", lambda *_: None)
    monkeypatch.setenv("PHGCN_COMMIT", commit)
    monkeypatch.setenv("PHGCN_DIRTY", dirty)
    assert said(capsys, "--version")[:2] == (0, f"phgcn {package.__version__}{shown}\n")


@pytest.mark.parametrize(("typed", "completed"), [("phgcn tr", "train"), ("phgcn train --prot", "--protocol")])
def test_the_shell_completes_commands_and_options(typed, completed):
    asked = {"_PHGCN_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    command = [sys.executable, "-m", "phgcn"]
    found = subprocess.run(command, env=environment(**asked), capture_output=True, text=True, check=True)
    assert found.stdout.split() == [completed]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["train"], "GRAPH is missing; allowed: a known name"),
        (["fly"], "No such command 'fly'"),
        (["train", "texas", "--colour", "red"], "No such option: --colour"),
        (["train", "texas", "--splits", "many"], "Invalid value for '--splits'"),
        (["train", "no-such-graph"], "no graph of this name"),
        (["train", "GRAPH", "--model", "gin"], "model is 'gin' (did you mean 'gcn'?); allowed: phgcn"),
        (["train", "GRAPH", "--protocol", "mine"], "protocol is 'mine'; allowed"),
        (["train", "GRAPH", "--protocol", "geom"], "masks is None"),
        (["train", "GRAPH", "--splits", "0"], "splits is 0; allowed"),
        (["train", "GRAPH", "--set", "colour=3"], "the setting 'colour' is not known to global-gnn; allowed: hidden_channels"),
        (["train", "GRAPH", "--set", "heads=0"], "heads is 0; allowed"),
        (["train", "GRAPH", "--set", f"heads={10**20}"], f"heads is {10**20}; allowed: whole numbers from 1 to 1000000000"),
        (["train", "GRAPH", "--config", "none.toml"], "none.toml: the settings cannot be read"),
        (["train", "GRAPH", "--resume"], "no run here"),
        (["train", "GRAPH", "--device", "moon"], "device is 'moon'; allowed"),
        (["train", "GRAPH", "--device", "meta"], "device is 'meta'; allowed"),
        (["--max-gb", "0", "graphs"], "PHGCN_MAX_GB is '0.0'; allowed: a positive number of gigabytes"),
        (["--max-gb", "many", "graphs"], "Invalid value for '--max-gb'"),
        (["evaluate", "nowhere"], "nowhere: no run here"),
        (["predict", "nowhere", "texas"], "nowhere: no run here"),
        (["plot", "nowhere"], "nowhere: no run here"),
        (["tune", "GRAPH", "--trials", "0"], "trials is 0; allowed"),
        (["tune", "GRAPH", "--also", "colour"], "also is 'colour'; allowed for global-gnn"),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(arguments, text, graph, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHGCN_MAX_GB", "")  # put back after the test
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path))
    np.savez(tmp_path / "texas.npz", edges=np.zeros((0, 2), int))
    code, out, err = said(capsys, *(graph if word == "GRAPH" else word for word in arguments))
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and text in err and err.startswith("phgcn: ")


def test_a_failure_gives_one_line_and_code_1(graph, tmp_path, capsys):
    wild = ["--set", "learning_rate=1e30", "--set", "epochs=20", "--splits", "1"]
    code, _, err = said(capsys, "train", graph, "--out", tmp_path / "run", *wild)
    assert code == 1 and "split-00: no finite loss in epoch" in err.splitlines()[-1]


def test_an_error_of_ours_is_one_line_too(capsys, monkeypatch):
    import phgcn.data

    monkeypatch.setattr(phgcn.data, "table", lambda: 1 / 0)
    code, _, err = said(capsys, "graphs")
    assert code == 1 and err == "phgcn: ZeroDivisionError: division by zero (PHGCN_TRACEBACK=1 shows where)\n"


def test_an_interrupt_gives_code_130(graph, tmp_path, capsys, monkeypatch):
    from phgcn.train.loop import Training

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "epoch", interrupted)
    code, _, err = said(capsys, "train", graph, "--model", "mlp", "--out", tmp_path / "run", *QUICK)
    assert code == 130 and err.splitlines()[-1] == "phgcn: interrupted" and "--resume continues" in err


@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_folder_that_cannot_be_written_is_said(command, graph, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    code, _, err = said(capsys, command, graph, "--out", tmp_path / "file" / "run", *QUICK)
    assert code == 1 and "Traceback" not in err and "cannot be written (Not a directory)" in err.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_said(graph, tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, err = said(capsys, "train", graph, "--out", tmp_path / "locked" / "run", *QUICK)
    assert code == 1 and err.count("\n") == 1 and "cannot be written (Permission denied)" in err


def test_a_full_disk_leaves_nothing_half_written_and_the_run_can_go_on(graph, tmp_path, capsys):
    limit = 6000  # bytes: enough for run.json, not for weights
    mlp = ("--model", "mlp", *QUICK, "--set", "hidden_channels=512")
    assert said(capsys, "train", graph, *mlp, "--out", tmp_path / "before")[0] == 0  # compiles kernels: those are files too

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [str(COMMAND), "train", str(graph), *mlp, "--out", str(tmp_path / "run")]
    found = subprocess.run(
        command, env=environment(), preexec_fn=full, capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 1 and found.stdout == ""
    line = found.stderr.splitlines()[-1]
    assert "cannot be written" in line and "File too large" in line and "Traceback" not in found.stderr
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "config.toml", "run.json"}
    assert said(capsys, "train", graph, "--out", tmp_path / "run", "--resume")[0] == 0


def test_the_settings_are_printed_with_their_sources(graph, tmp_path, capsys):
    config = tmp_path / "mine.toml"
    config.write_text("heads = 2\nepochs = 7\n")
    options = ("--model", "phgcn-residual", "--splits", "1", "--config", config, "--set", "epochs=2", "--out", tmp_path / "run")
    code, _, err = said(capsys, "train", graph, *options)
    lines = err.splitlines()
    assert code == 0 and lines[0].startswith("graph small: 60 nodes, ")
    assert lines[1].startswith("task classification (labels are names): 3 classes (blue 20, green 20, red 20), 0 nodes without")
    assert lines[2] == "phgcn-residual on small; settings by source"
    assert "method = auto picks exact: " in "\n".join(lines)
    assert f"{config}: heads=2" in lines and "--set: epochs=2" in lines and "fixed by phgcn-residual: residual=true" in lines
    assert any(line.startswith("default: hidden_channels=8, num_layers=2") for line in lines)
    assert "--set: epochs=2" in (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "result.json").unlink()
    code, _, err = said(capsys, "train", graph, "--out", tmp_path / "run", "--resume")
    assert code == 0 and any(
        line.startswith(f"{tmp_path / 'run' / 'run.json'}: hidden_channels=8") for line in err.splitlines()
    )


def test_without_a_model_a_search_chooses_one_and_says_what_it_saw(graph, tmp_path, capsys):
    code, out, err = said(capsys, "train", graph, "--out", tmp_path / "run", *QUICK)
    assert code == 0 and re.search("search: [68] candidates, up to 20 epochs; best so far", err)
    seen = json.loads((tmp_path / "run" / "result.json").read_text())["search"]
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    chosen = next(row for row in seen["candidates"] if row["candidate"] == seen["chosen"])
    assert (chosen["model"], seen["effort"]) == (about["model"], "short")
    assert re.search(r"^search: .*--set: heads=2, epochs=2$", err, re.MULTILINE | re.DOTALL)
    assert seen["sentence"].startswith("Attention to all nodes ") and seen["sentence"] in " ".join(out.split("\n"))
    assert f"{seen['chosen']} (chosen)" in out and "mlp" in out
    code, out, _ = said(capsys, "evaluate", tmp_path / "run")
    assert code == 0 and seen["sentence"] in out
    run = Run.open(tmp_path / "run")
    assert gather_side(run, run.plan.trials()[0], run.data()).facts["search"] == seen["sentence"]


def test_a_search_can_be_left_out_and_is_refused_beside_a_model(graph, tmp_path, capsys):
    code, out, err = said(capsys, "train", graph, "--out", tmp_path / "run", "--search", "none", *QUICK)
    assert code == 0 and "candidates" not in err and "global-gnn on small; settings by source" in err
    assert re.search(r"global path: gates [0-9.e-]+, heads attend to [0-9]+ of 60 nodes \(median\)", out)
    for options, message in [
        (("--search", "quick"), "--search is 'quick'; allowed: none, short, long"),
        (("--search", "long", "--model", "mlp"), "--search is 'long' beside --model; allowed: none"),
    ]:
        code, _, err = said(capsys, "train", graph, "--out", tmp_path / "other", *options, *QUICK)
        assert code == 2 and message in err and not (tmp_path / "other").exists()


def test_bfloat16_without_a_gpu_is_refused_before_a_folder_is_made(graph, tmp_path, capsys):
    code, _, err = said(capsys, "train", graph, "--out", tmp_path / "run", "--set", "amp=true")
    assert code == 2 and "amp is true on the device cpu; allowed: false, or a GPU" in err
    assert not (tmp_path / "run").exists()


def test_output_without_a_terminal_is_plain(graph, tmp_path, capsys):
    code, out, err = said(capsys, "train", graph, "--out", tmp_path / "run", *QUICK[:2], "--splits", "2", *QUICK[2:])
    assert code == 0 and not re.search("\x1b|\r", out + err)
    assert "split-00 of 2, epoch 2" in err and str(tmp_path / "run") in out


def test_names_from_a_file_are_cleaned_when_they_are_printed(tmp_path, capsys):
    data = small_graph()
    data.name, data.classes = "wild", ["red\x1b[31m", "a\nb", "\x00"]
    data.node_id = [f"={number}\x1b" for number in range(data.num_nodes)]
    save_graph(data, tmp_path / "wild.npz")
    run, table = tmp_path / "run", tmp_path / "out.csv"
    printed = [said(capsys, "train", tmp_path / "wild.npz", "--out", run, *QUICK), said(capsys, "evaluate", run)]
    printed += [said(capsys, "predict", run, tmp_path / "wild.npz", "-o", table)]
    assert all(code == 0 and not re.search("[\x00\x1b]", out + err) for code, out, err in printed)
    assert "red?" in printed[1][1] and "a b" in printed[1][1]
    assert "\n=0\x1b," in table.read_text()  # an id is written as it is
    assert said(capsys, "plot", run, "-o", tmp_path / "plots")[0] == 0


def test_predictions_for_a_spreadsheet_hold_no_formulas(tmp_path, capsys):
    data = small_graph()
    data.node_id = [f"={number}" for number in range(data.num_nodes)]
    data.classes = ["-blue", "@green", "red"]
    save_graph(data, tmp_path / "own.npz")
    said(capsys, "train", tmp_path / "own.npz", "--out", tmp_path / "run", *QUICK)
    assert said(capsys, "predict", tmp_path / "run", tmp_path / "own.npz", "-o", tmp_path / "out.csv", "--spreadsheet")[0] == 0
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert all(row[0] == f"'={number}" for number, row in enumerate(rows))
    assert {row[1] for row in rows} <= {"'-blue", "'@green", "red"}


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, None])
def test_a_damaged_study_is_one_line(content, graph, tmp_path, capsys):
    pytest.importorskip("optuna")
    arguments = ("tune", graph, "--trials", "1", "--out", tmp_path / "study", "--model", "mlp", *QUICK)
    if content is None:
        assert said(capsys, *arguments)[0] == 0
        content = bytearray((tmp_path / "study" / "study.db").read_bytes())
        content[4096::7] = bytes(len(content[4096::7]))
    (tmp_path / "study").mkdir(exist_ok=True)
    (tmp_path / "study" / "study.db").write_bytes(content)
    code, _, err = said(capsys, *arguments)
    if content == b"":  # to SQLite a new database
        assert code == 0
    else:
        line = err.splitlines()[-1]
        assert code == 2 and line.startswith("phgcn: ") and "Traceback" not in err
        assert f"{tmp_path / 'study' / 'study.db'}: cannot be used (" in line and "move it away to begin a new study" in line


def test_the_error_of_attention_is_measured_on_request(graph, tmp_path, capsys):
    run = tmp_path / "run"
    said(capsys, "train", graph, "--out", run, "--model", "phgcn", *QUICK)
    code, out, _ = said(capsys, "evaluate", run, "--attention-error", "--json")
    rows = json.loads(out)["attention_error"]
    assert code == 0 and [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in rows:
        assert row["spread"] > 0
        for method in ("lattice", "lattice-fine", "separable"):
            assert 0 <= row[method]["deviation"] < 1 and -1 <= row[method]["gradient_cosine"] <= 1 + 1e-9
            assert len(row[method]["interval"]) == 2
    assert "attention_error" not in json.loads(said(capsys, "evaluate", run, "--json")[1])
    code, out, _ = said(capsys, "evaluate", run, "--attention-error")
    assert code == 0 and f"{rows[0]['lattice']['deviation']:.4f} / {rows[0]['lattice']['gradient_cosine']:.4f}" in out
    said(capsys, "train", graph, "--out", tmp_path / "mlp", "--model", "mlp", *QUICK)
    code, out, _ = said(capsys, "evaluate", tmp_path / "mlp", "--attention-error", "--json")
    assert code == 0 and json.loads(out)["attention_error"] == []
