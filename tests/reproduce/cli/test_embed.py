import csv
import json

import pytest
from small_graphs import small_graph, write_tables

from phgcn.cli import app
from phgcn.runtime.numba import cache_folder

pytest.importorskip("sklearn")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    cache_folder()  # that of compiled kernels stays where it is
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "phgcn" / "embeddings"


def test_a_graph_is_embedded_and_the_file_is_said(tmp_path, own_cache, capsys):
    folder = str(write_tables(small_graph(), tmp_path / "graph"))
    assert app.run(["embed", folder, "--method", "isomap", "--seed", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["nodes"] == 60 and result["graph_pairs"] == small_graph().edge_index.size(1)
    assert abs(result["latent_pairs"] - result["graph_pairs"]) < 0.1 * result["graph_pairs"]
    assert [str(path) for path in own_cache.iterdir()] == [result["file"]]
    assert app.run(["embed", folder, "--method", "isomap", "--seed", "3"]) == 0
    assert "positions in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "tsne"], "method is 'tsne'; allowed: isomap, poincare, struc2vec"),
        (["--method", "isomap", "--seed", "-1"], "seed is -1"),
        ([], "--method"),
    ],
)
def test_wrong_options_are_one_line(arguments, said, tmp_path, capsys):
    folder = str(write_tables(small_graph(), tmp_path / "graph"))
    assert app.run(["embed", folder, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_missing_package_is_one_line(tmp_path, monkeypatch, capsys):
    from phgcn.reproduce import extra

    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    folder = str(write_tables(small_graph(), tmp_path / "graph"))
    assert app.run(["embed", folder, "--method", "isomap"]) == 2
    assert capsys.readouterr().err == (
        "phgcn: the embedding isomap needs the package scikit-learn: pip install 'phgcn[reproduce]'\n"
    )


def test_geom_gcn_is_trained_evaluated_and_predicts_for_another_graph(tmp_path, capsys):
    folder = str(write_tables(small_graph(), tmp_path / "graph"))
    other = str(write_tables(small_graph(nodes=40, seed=1), tmp_path / "other"))
    out = str(tmp_path / "run")
    train = ["train", folder, "--model", "geom-gcn-i", "--splits", "2", "--out", out]
    assert app.run([*train, "--set", "learning_rate=0.05", "--set", "epochs=40", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["config"]["neighbourhood"] == "computed" and result["test"]["mean"] > 0.5
    assert app.run(["evaluate", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_recorded"]
    assert app.run(["predict", out, other, "-o", str(tmp_path / "p.csv")]) == 0
    with open(tmp_path / "p.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 41


def test_neighbourhoods_that_were_not_published_are_refused(tmp_path, capsys):
    folder = str(write_tables(small_graph(), tmp_path / "graph"))
    out = str(tmp_path / "run")
    assert app.run(["train", folder, "--model", "geom-gcn-p", "--neighbourhood", "published", "--out", out]) == 2
    assert "no neighbourhoods were published for graph" in capsys.readouterr().err
    assert app.run(["train", folder, "--model", "gcn", "--neighbourhood", "published", "--out", out + "2"]) == 2
    assert "'neighbourhood' is no setting of gcn" in capsys.readouterr().err
