import json
import os
import re
import resource

import numpy as np
import pytest
import typer
from commands import words
from installed import phgcn, python
from small_graphs import small_graph

from phgcn.cli import app
from phgcn.data import save_graph
from phgcn.explore.runs import gather_side
from phgcn.train import Run

COMMANDS = (
    "train evaluate predict tune plot explore export compare graphs doctor partition reproduce"
)
EXPERIMENTS = "table motif scaling embeddings benchmark when rivals tables city labels"
HELPED = [*COMMANDS.split()[:-1], *(f"reproduce {name}" for name in EXPERIMENTS.split())]
QUICK = "--splits 1 --set epochs=2 --set heads=2"


def processor_seconds(*arguments):
    """The processor time that a command takes, which other programs hardly change."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = phgcn(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.returncode == 0
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_comes_within_a_second_and_without_torch():
    assert all(name in phgcn("--help").stdout for name in COMMANDS.split())
    assert min(processor_seconds("--help") for _ in range(3)) < 1
    heavy = ("torch", "numba", "numpy", "torch_geometric", "matplotlib")
    code = f"import sys, phgcn.cli.app; print([name for name in {heavy} if name in sys.modules])"
    assert python(code).stdout == "[]\n"


def test_the_commands_are_all_that_there_are():
    group = typer.main.get_command(app.app)
    assert set(group.commands) == set(COMMANDS.split())
    assert set(group.commands["reproduce"].commands) == set(EXPERIMENTS.split())


@pytest.mark.parametrize("arguments", ["reproduce motif --quick", "reproduce"])
def test_without_the_lab_its_commands_say_how_to_get_it(arguments):
    done = python(f"""
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "phgcn_lab" else find(name, *rest)
from phgcn.cli import app
sys.exit(app.run({arguments.split()}))
""")
    get = "pip install ./lab in a clone of the repository"
    needs = f"phgcn: phgcn reproduce needs the package phgcn-lab: {get}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", needs)


def test_two_source_trees_in_the_path_are_enough(tmp_path):
    """Where nothing can be installed no metadata says that there are commands of the lab."""
    done = python("""
import importlib.metadata, sys
importlib.metadata.distributions = lambda **_: iter(())
from phgcn.cli import app
sys.exit(app.run(["reproduce", "motif", "--help"]))
""")
    assert done.returncode == 0 and "phgcn reproduce motif --quick" in done.stdout


def test_an_interrupted_command_does_not_wait_for_threads():
    ended = python("""
import sys, threading, phgcn.data
from phgcn.cli import app
def interrupted():
    threading.Thread(target=threading.Event().wait).start()
    raise KeyboardInterrupt
phgcn.data.table, sys.argv = interrupted, ["phgcn", "graphs"]
app.main()
""")
    assert ended.returncode == 130 and ended.stderr == "phgcn: interrupted\n"


@pytest.mark.parametrize("command", HELPED)
def test_every_command_has_help_with_examples_and_json(command, said):
    code, out, _ = said(command, "--help")
    assert code == 0 and "Examples:" in out and f"phgcn {command}" in out and "--json" in out


def test_without_a_command_the_help_is_shown(said):
    code, out, _ = said()
    assert code == 0 and "Usage" in out


@pytest.mark.parametrize(
    ("commit", "dirty", "shown"),
    [
        ("", "", ""),
        ("abcdef0123", "0", " (commit abcdef0)"),
        ("ab", "1", " (commit ab, with changes)"),
    ],
)
def test_version_and_commit_are_printed(commit, dirty, shown, monkeypatch, said):
    import phgcn as package
    from phgcn import provenance

    monkeypatch.setattr(provenance, "_git", lambda *_: None)
    monkeypatch.setenv("PHGCN_COMMIT", commit)
    monkeypatch.setenv("PHGCN_DIRTY", dirty)
    assert said("--version")[:2] == (0, f"phgcn {package.__version__}{shown}\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("train", "GRAPH is missing; allowed: a known name"),
        ("fly", "No such command 'fly'"),
        ("train texas --colour red", "No such option: --colour"),
        ("train texas --splits many", "Invalid value for '--splits'"),
        ("train no-such-graph", "no graph of this name"),
        ("train GRAPH --model gin", "model is 'gin' (did you mean 'gcn'?); allowed: phgcn"),
        ("train GRAPH --protocol mine", "protocol is 'mine'; allowed"),
        ("train GRAPH --protocol geom", "masks is None"),
        ("train GRAPH --splits 0", "splits is 0; allowed"),
        ("train GRAPH --set colour=3", "'colour' is not known to global-gnn; allowed: hidden_c"),
        ("train GRAPH --set heads=0", "heads is 0; allowed"),
        (f"train GRAPH --set heads={10**20}", "allowed: whole numbers from 1 to 1000000000"),
        ("train GRAPH --config none.toml", "none.toml: the settings cannot be read"),
        ("train GRAPH --resume", "no run here"),
        ("train GRAPH --device moon", "device is 'moon'; allowed"),
        ("train GRAPH --device meta", "device is 'meta'; allowed"),
        ("--max-gb 0 graphs", "PHGCN_MAX_GB is '0.0'; allowed: a positive number of gigabytes"),
        ("--max-gb many graphs", "Invalid value for '--max-gb'"),
        ("evaluate nowhere", "nowhere: no run here"),
        ("predict nowhere texas", "nowhere: no run here"),
        ("plot nowhere", "nowhere: no run here"),
        ("tune GRAPH --trials 0", "trials is 0; allowed"),
        ("tune GRAPH --also colour", "also is 'colour'; allowed for global-gnn"),
    ],
)
def test_wrong_input_gives_one_line_and_code_2(arguments, text, graph, tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHGCN_MAX_GB", "")  # put back after the test
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path))
    np.savez(tmp_path / "texas.npz", edges=np.zeros((0, 2), int))
    code, out, err = said(arguments.replace("GRAPH", str(graph)))
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and text in err and err.startswith("phgcn: ")


def test_a_failure_gives_one_line_and_code_1(graph, tmp_path, said):
    wild = "--set learning_rate=1e30 --set epochs=20 --splits 1"
    code, _, err = said("train", graph, "--out", tmp_path / "run", wild)
    assert code == 1 and "split-00: no finite loss in epoch" in err.splitlines()[-1]


def test_an_error_of_ours_is_one_line_too(said, monkeypatch):
    import phgcn.data

    monkeypatch.setattr(phgcn.data, "table", lambda: 1 / 0)
    code, _, err = said("graphs")
    assert code == 1
    assert err == "phgcn: ZeroDivisionError: division by zero (PHGCN_TRACEBACK=1 shows where)\n"


def test_an_interrupt_gives_code_130(graph, tmp_path, said, monkeypatch):
    from phgcn.train.loop import Training

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "epoch", interrupted)
    code, _, err = said("train", graph, "--model mlp --out", tmp_path / "run", QUICK)
    assert code == 130
    assert err.splitlines()[-1] == "phgcn: interrupted"
    assert "--resume continues" in err


@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_folder_that_cannot_be_written_is_said(command, graph, tmp_path, said):
    (tmp_path / "file").write_text("in the way")
    code, _, err = said(command, graph, "--out", tmp_path / "file" / "run", QUICK)
    assert code == 1
    assert "Traceback" not in err
    assert "cannot be written (Not a directory)" in err.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_said(graph, tmp_path, said):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, err = said("train", graph, "--out", tmp_path / "locked" / "run", QUICK)
    assert code == 1 and err.count("\n") == 1 and "cannot be written (Permission denied)" in err


def test_a_full_disk_leaves_nothing_half_written_and_the_run_can_go_on(
    graph, tmp_path, said, monkeypatch
):
    # Python cuts off a module's bytecode at the limit without an error; later imports then fail.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    limit = 6000  # bytes: enough for run.json, not for weights
    mlp = f"--model mlp {QUICK} --set hidden_channels=512"
    # compiles kernels: those are files too
    assert said("train", graph, mlp, "--out", tmp_path / "before")[0] == 0

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    found = phgcn(*words("train", graph, mlp, "--out", tmp_path / "run"), preexec_fn=full)
    assert found.returncode == 1 and found.stdout == ""
    line = found.stderr.splitlines()[-1]
    assert "cannot be written" in line
    assert "File too large" in line
    assert "Traceback" not in found.stderr
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {".lock", "config.toml", "run.json"}
    assert said("train", graph, "--out", tmp_path / "run", "--resume")[0] == 0


def test_the_settings_are_printed_with_their_sources(graph, tmp_path, said):
    config = tmp_path / "mine.toml"
    config.write_text("heads = 2\nepochs = 7\n")
    options = f"--model phgcn-residual --splits 1 --config {config} --set epochs=2"
    code, _, err = said("train", graph, options, "--out", tmp_path / "run")
    lines = err.splitlines()
    assert code == 0 and lines[0].startswith("graph small: 60 nodes, ")
    classes = "3 classes (blue 20, green 20, red 20), 0 nodes without"
    assert lines[1].startswith(f"task classification (labels are names): {classes}")
    assert lines[2] == "phgcn-residual on small; settings by source"
    assert "method = auto picks exact: " in "\n".join(lines)
    assert f"{config}: heads=2" in lines
    assert "--set: epochs=2" in lines
    assert "fixed by phgcn-residual: residual=true" in lines
    assert any(line.startswith("default: hidden_channels=8, num_layers=2") for line in lines)
    assert "--set: epochs=2" in (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "result.json").unlink()
    code, _, err = said("train", graph, "--out", tmp_path / "run", "--resume")
    assert code == 0
    assert f"\n{tmp_path / 'run' / 'run.json'}: hidden_channels=8" in err


def test_without_a_model_a_search_chooses_one_and_says_what_it_saw(graph, tmp_path, said):
    code, out, err = said("train", graph, "--out", tmp_path / "run", QUICK)
    assert code == 0 and re.search(r"search: \d+ candidates, up to \d+ epochs", err)
    assert err.count("task classification") == 1, "what is in the graph is said once"
    assert err.index("task classification") < err.index("search: ")
    seen = json.loads((tmp_path / "run" / "result.json").read_text())["search"]
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    chosen = next(row for row in seen["candidates"] if row["candidate"] == seen["chosen"])
    assert (chosen["model"], seen["effort"]) == (about["model"], "short")
    assert re.search(r"^search: .*--set: heads=2, epochs=2$", err, re.MULTILINE | re.DOTALL)
    assert seen["sentence"].startswith("Attention to all nodes ")
    assert seen["sentence"] in " ".join(out.split("\n"))
    assert f"{seen['chosen']} (chosen)" in out and "mlp" in out
    code, out, _ = said("evaluate", tmp_path / "run")
    assert code == 0 and seen["sentence"] in out
    run = Run.open(tmp_path / "run")
    assert gather_side(run, run.plan.trials()[0], run.data()).facts["search"] == seen["sentence"]


def test_settings_of_a_model_that_is_not_the_default_one_are_for_the_search(graph, tmp_path, said):
    code, out, _ = said("train", graph, "--out", tmp_path / "run", QUICK, "--set decay_global=3")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert code == 0 and about["model"] == "phgcn" and about["settings"]["decay_global"] == 3.0
    assert "Whether attention to all nodes helps here is not known" in out
    code, _, err = said("train", graph, "--out", tmp_path / "none", QUICK, "--set dekay=3")
    assert code == 2 and "the setting 'dekay' is not known to global-gnn" in err
    assert not (tmp_path / "none").exists()


def test_the_end_of_a_file_is_named_and_not_an_empty_line(monkeypatch, capsys):
    def ended():
        raise EOFError("Ran out of input")

    typer_app = typer.Typer()
    typer_app.command()(ended)
    monkeypatch.setattr(app, "app", typer_app)
    assert app.run([]) == 1
    assert "phgcn: EOFError: Ran out of input" in capsys.readouterr().err


def test_evaluate_has_the_unit_of_its_yardsticks_and_help_the_search(graph, tmp_path, said):
    run = tmp_path / "run"
    assert said("train", graph, "--out", run, QUICK, "--model mlp")[0] == 0
    out = said("evaluate", run)[1]
    assert re.search(r"^test accuracy: \d+\.\d\d % over 1 model", out, re.MULTILINE)
    assert re.search(r"^always answering .*: \d+\.\d %", out, re.MULTILINE)
    helped = " ".join(phgcn("train", "--help").stdout.replace("│", " ").split())
    assert "[default: chosen by a search, or table without edges]" in helped


def test_labels_alone_are_a_global_path(graph, tmp_path, said):
    few = "--splits 1 --set labels=true --set global_layers=0"
    run = tmp_path / "run"
    code, out, _ = said("train", graph, "--out", run, QUICK, "--model global-gnn", few)
    assert code == 0 and "global path: to the labels of training nodes" in out
    assert "global path: to the labels of training nodes" in said("evaluate", run)[1]


def test_a_search_can_be_left_out_and_is_refused_beside_a_model(graph, tmp_path, said):
    code, out, err = said("train", graph, "--out", tmp_path / "run", "--search none", QUICK)
    assert code == 0
    assert "candidates" not in err
    assert "global-gnn on small; settings by source" in err
    path = r"global path: gates [0-9.e-]+, heads attend to [0-9]+ of 60 nodes \(median\)"
    assert re.search(path, out)
    for options, message in [
        ("--search quick", "--search is 'quick'; allowed: none, short, long"),
        ("--search long --model mlp", "--search is 'long' beside --model; allowed: none"),
    ]:
        code, _, err = said("train", graph, "--out", tmp_path / "other", options, QUICK)
        assert code == 2 and message in err and not (tmp_path / "other").exists()


def test_bfloat16_without_a_gpu_is_refused_before_a_folder_is_made(graph, tmp_path, said):
    code, _, err = said("train", graph, "--out", tmp_path / "run", "--set amp=true")
    assert code == 2 and "amp is true on the device cpu; allowed: false, or a GPU" in err
    assert not (tmp_path / "run").exists()


def test_output_without_a_terminal_is_plain(graph, tmp_path, said):
    code, out, err = said("train", graph, QUICK, "--splits 2 --out", tmp_path / "run")
    assert code == 0 and not re.search("\x1b|\r", out + err)
    assert "split-00 of 2, epoch 2" in err and str(tmp_path / "run") in out


def test_names_from_a_file_are_cleaned_when_they_are_printed(tmp_path, said):
    data = small_graph()
    data.name, data.classes = "wild", ["red\x1b[31m", "a\nb", "\x00"]
    data.node_id = [f"={number}\x1b" for number in range(data.num_nodes)]
    save_graph(data, tmp_path / "wild.npz")
    run, table = tmp_path / "run", tmp_path / "out.csv"
    printed = [said("train", tmp_path / "wild.npz", "--out", run, QUICK), said("evaluate", run)]
    printed += [said("predict", run, tmp_path / "wild.npz", "-o", table)]
    assert all(code == 0 and not re.search("[\x00\x1b]", out + err) for code, out, err in printed)
    assert "red?" in printed[1][1] and "a b" in printed[1][1]
    assert "\n=0\x1b," in table.read_text()  # an id is written as it is
    assert said("plot", run, "-o", tmp_path / "plots")[0] == 0


def test_predictions_for_a_spreadsheet_hold_no_formulas(tmp_path, said):
    data = small_graph()
    data.node_id = [f"={number}" for number in range(data.num_nodes)]
    data.classes = ["-blue", "@green", "red"]
    save_graph(data, tmp_path / "own.npz")
    said("train", tmp_path / "own.npz", "--out", tmp_path / "run", QUICK)
    out = ("-o", tmp_path / "out.csv", "--spreadsheet")
    assert said("predict", tmp_path / "run", tmp_path / "own.npz", *out)[0] == 0
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert all(row[0] == f"'={number}" for number, row in enumerate(rows))
    assert {row[1] for row in rows} <= {"'-blue", "'@green", "red"}


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, None])
def test_a_damaged_study_is_one_line(content, graph, tmp_path, said):
    pytest.importorskip("optuna")
    arguments = ("tune", graph, "--trials 1 --out", tmp_path / "study", "--model mlp", QUICK)
    if content is None:
        assert said(*arguments)[0] == 0
        content = bytearray((tmp_path / "study" / "study.db").read_bytes())
        content[4096::7] = bytes(len(content[4096::7]))
    (tmp_path / "study").mkdir(exist_ok=True)
    (tmp_path / "study" / "study.db").write_bytes(content)
    code, _, err = said(*arguments)
    if content == b"":  # to SQLite a new database
        assert code == 0
    else:
        line = err.splitlines()[-1]
        assert code == 2 and line.startswith("phgcn: ") and "Traceback" not in err
        assert f"{tmp_path / 'study' / 'study.db'}: cannot be used (" in line
        assert "move it away to begin a new study" in line


def test_the_error_of_attention_is_measured_on_request(graph, tmp_path, said):
    run = tmp_path / "run"
    said("train", graph, "--out", run, "--model phgcn", QUICK)
    code, out, _ = said("evaluate", run, "--attention-error --json")
    rows = json.loads(out)["attention_error"]
    assert code == 0
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in rows:
        assert row["spread"] > 0
        for method in ("lattice", "lattice-fine", "separable"):
            assert 0 <= row[method]["deviation"] < 1
            assert -1 <= row[method]["gradient_cosine"] <= 1 + 1e-9
            assert len(row[method]["interval"]) == 2
    assert "attention_error" not in json.loads(said("evaluate", run, "--json")[1])
    code, out, _ = said("evaluate", run, "--attention-error")
    assert code == 0
    first = rows[0]["lattice"]
    assert f"{first['deviation']:.4f} / {first['gradient_cosine']:.4f}" in out
    said("train", graph, "--out", tmp_path / "mlp", "--model mlp", QUICK)
    code, out, _ = said("evaluate", tmp_path / "mlp", "--attention-error --json")
    assert code == 0 and json.loads(out)["attention_error"] == []
