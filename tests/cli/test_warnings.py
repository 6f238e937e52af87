"""Commands on an own graph use nothing of other packages that is about to change or to go."""

import warnings

import pytest
from small_graphs import small_graph, write_tables

from phgcn.cli import app


@pytest.fixture
def graph(tmp_path):
    return write_tables(small_graph(), tmp_path / "small")


@pytest.mark.parametrize("model, method", [("global-gnn", "auto"), ("phgcn", "lattice")])
def test_an_own_graph_from_training_to_predictions_without_a_warning(model, method, graph, tmp_path, monkeypatch):
    run, settings = tmp_path / "run", ("--set", "epochs=2", "--set", "heads=2", "--set", f"method={method}")
    monkeypatch.setattr(app, "_ignore_warnings", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # pyproject.toml makes a DeprecationWarning of our own modules one
        for command in (
            ("train", graph, "--model", model, "--splits", 1, *settings, "--out", run),
            ("evaluate", run),
            ("predict", run, graph, "-o", tmp_path / "predictions.csv"),
            ("export", run, "--embeddings", "--attention", "--predictions", "-o", tmp_path / "all.npz"),
        ):
            assert app.run([str(word) for word in command]) == 0, command
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 61
