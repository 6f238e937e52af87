"""Commands on an own graph use nothing of other packages that is about to change or to go."""

import warnings

import pytest
from commands import call

from phgcn.cli import app


@pytest.mark.parametrize("model, method", [("global-gnn", "auto"), ("phgcn", "lattice")])
def test_an_own_graph_from_training_to_predictions_without_a_warning(
    model, method, graph, tmp_path, monkeypatch
):
    run, predictions = tmp_path / "run", tmp_path / "predictions.csv"
    settings = f"--model {model} --splits 1 --set epochs=2 --set heads=2 --set method={method}"
    monkeypatch.setattr(app, "_ignore_warnings", lambda: None)
    with warnings.catch_warnings():
        # pyproject.toml makes a DeprecationWarning of our own modules one
        warnings.simplefilter("error", FutureWarning)
        call("train", graph, settings, "--out", run)
        call("evaluate", run)
        call("predict", run, graph, "-o", predictions)
        call("export", run, "--embeddings --attention --predictions -o", tmp_path / "all.npz")
    assert len(predictions.read_text().splitlines()) == 61
