r"""What a new user meets: kernels to compile, runs to extend, to export, to compare, and warnings
that are not for them."""

import csv
import json
import re
import warnings

import pytest
from commands import call
from small_graphs import small_graph, write_tables

from phgcn.cli import doctor
from phgcn.runtime import warm

QUICK = "--splits 2 --set epochs=3 --set hidden_channels=8 --set heads=2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def graph(folder):
    return write_tables(small_graph(nodes=30), folder / "small")


@pytest.fixture(scope="module")
def run(folder, graph):
    call("train", graph, QUICK, "--model global-gnn --out", folder / "run")
    return folder / "run"


def test_training_says_that_it_compiles_and_what_it_takes(graph, tmp_path, said, monkeypatch):
    compiled = []
    monkeypatch.setattr(warm.compiled.Kernel, "is_kept", lambda self, real="float32": False)
    note = lambda self, real="float32": compiled.append(self.__name__)  # noqa: E731
    monkeypatch.setattr(warm.compiled.Kernel, "compile", note)
    code, _, err = said("train", graph, QUICK, "--set epochs=8 --model mlp --out", tmp_path / "mlp")
    assert code == 0 and not compiled and "compiling" not in err
    lines = err.splitlines()
    assert "\n2 splits of protocol paper, at most 8 epochs each" in err
    assert re.search(r"^an epoch takes .* for 2 trainings of 8 epochs", err, re.MULTILINE)
    done = [line.split(",")[0] for line in lines if line.endswith(": done")]
    assert done == ["split-00 of 2", "split-01 of 2"]

    def begin(*_, **options):
        raise ValueError("training begins")

    monkeypatch.setattr("phgcn.train.run.Run.train", begin)
    _, _, err = said("train", graph, QUICK, "--model phgcn --out", tmp_path / "phgcn")
    assert compiled
    assert err.splitlines()[-1] == "phgcn: training begins"
    assert f"compiling kernels, once, about {len(compiled) * warm.SECONDS:.0f} s" in err
    assert f"compiled {len(compiled)} kernels in 0 s" in err


def test_doctor_compiles_all_kernels_ahead(said, monkeypatch):
    compiled = []
    monkeypatch.setattr(doctor, "TESTS", {})
    monkeypatch.setattr(warm.compiled.Kernel, "is_kept", lambda self, real="float32": False)
    note = lambda self, real="float32": compiled.append((self.__name__, real))  # noqa: E731
    monkeypatch.setattr(warm.compiled.Kernel, "compile", note)
    code, _, err = said("doctor --warm")
    names = [kernel.__name__ for kernel in warm.kernels_in(warm.ROOMS)]
    assert code == 0
    assert compiled == [(name, real) for real in ("float32", "float64") for name in names]
    assert "compiling kernels, once, about" in err
    assert "compiling float64 kernels, once, about" in err


def test_doctor_warms_every_gpu_by_its_self_test(monkeypatch):
    ran = []
    monkeypatch.setattr(doctor, "_gpus", lambda: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(doctor, "TESTS", {"a test": lambda device: ran.append(device) or "fine"})
    monkeypatch.setattr(doctor, "_explain_auto", dict)
    named = [test["what"] for test in doctor.examine(gpus=True)["tests"]]
    assert named == ["a test", "a test, cuda:0", "a test, cuda:1"]
    assert ran == ["cpu", "cuda:0", "cuda:1"] and len(doctor.examine()["tests"]) == 1


def test_a_finished_run_takes_more_epochs(graph, tmp_path, said):
    arguments = ("train", graph, "--model mlp --splits 1 --out", tmp_path / "run", "--json")
    assert json.loads(said(*arguments, "--set epochs=2")[1])["epochs"] == 2
    assert json.loads(said(*arguments, "--resume --set epochs=5")[1])["epochs"] == 5
    code, _, err = said(*arguments, "--resume --set epochs=4")
    assert code == 2 and "epochs is 4; allowed: 5 or more" in err


def test_export_writes_tables_through_the_command(run, tmp_path, said):
    options = "--attention --node n3 --top 2 --json -o"
    code, out, err = said("export", run, options, tmp_path / "out.csv")
    assert code == 0, err
    assert json.loads(out)["files"] == [str(tmp_path / "out.csv")]
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["node"] for row in rows} == {"n3"}
    assert {row["layer"] for row in rows} == {"global-0"}
    assert len(rows) == 4
    code, _, err = said("export", run, "-o", tmp_path / "none.csv")
    assert code == 2
    assert "there is nothing to export; allowed: --embeddings, --attention, --predictions" in err


def test_runs_are_compared_through_the_command(run, graph, folder, tmp_path, said):
    assert said("train", graph, QUICK, "--model mlp --out", folder / "mlp")[0] == 0
    code, out, err = said("compare", run, folder / "mlp", "-o", tmp_path / "compared.svg")
    assert code == 0, err
    assert "global-gnn" in out
    assert "mlp" in out
    assert " of 2" in out
    assert (tmp_path / "compared.svg").stat().st_size > 2000
    result = json.loads(said("compare", run, folder / "mlp", "--json")[1])
    assert result["paired"] and len(result["runs"]) == 2
    code, _, err = said("compare", run)
    assert code == 2 and "two or more" in err


def test_an_unknown_node_is_refused_before_anything_is_drawn(run, tmp_path, said):
    code, _, err = said("plot", run, "--node nobody -o", tmp_path / "plots")
    assert code == 2 and "node is 'nobody'; allowed: the id of a node, such as 'n0'" in err
    assert not (tmp_path / "plots").exists()


def test_a_final_model_has_no_test_nodes_and_predicts(graph, tmp_path, said):
    out = tmp_path / "run"
    options = f"--model mlp --protocol final {QUICK} --splits 1 --out"
    code, printed, err = said("train", graph, options, out)
    assert code == 0, err
    assert "no test nodes" in printed and "nan" not in printed
    assert said("predict", out, graph, "-o", tmp_path / "out.csv")[0] == 0
    assert said("plot", out, "-o", tmp_path / "plots")[0] == 0


def test_a_name_that_is_too_long_is_named_as_it_was_given(run, graph, tmp_path, said):
    name = f"{'x' * 250}.csv"  # with the end of a temporary name it is too long
    code, _, err = said("predict", run, graph, "-o", tmp_path / name)
    assert code == 1
    assert f"{tmp_path / name}: cannot be written (File name too long)" in err
    assert ".tmp" not in err


def test_warnings_of_other_packages_are_not_for_users(said, monkeypatch):
    import phgcn.data

    def warn():
        for what, file, name in (
            ("about to change", "torch/old.py", "torch.old"),
            ("ours to change", "phgcn/own.py", "phgcn.own"),
        ):
            code = f"import warnings; warnings.warn({what!r}, FutureWarning)"
            exec(compile(code, file, "exec"), {"__name__": name})
        return []

    monkeypatch.setattr(phgcn.data, "table", warn)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")  # pyproject.toml makes errors of our own
        assert said("graphs")[0] == 0
    assert [str(warning.message) for warning in heard] == ["ours to change"]
