import json
from dataclasses import replace

import pytest
import torch
from small_graphs import small_graph

from phgcn.data import save_graph
from phgcn.train import Plan, Settings, find, resolve, tune, tuning
from phgcn.train.run import prepare
from phgcn.train.tuning import space, without_test

optuna = pytest.importorskip("optuna")
PLAN = Plan("small", model="mlp", splits=2, settings=Settings(hidden_channels=4, epochs=4))


@pytest.fixture
def given(tmp_path):
    save_graph(small_graph(), tmp_path / "small.npz")
    source, data = find(str(tmp_path / "small.npz"))
    return replace(PLAN, source=source), data


def test_trials_never_see_test_nodes():
    task = without_test(prepare(PLAN, small_graph())[0])
    whole = prepare(PLAN, small_graph())[0]
    assert len(task.test) == 0 and bool((task.y[whole.test] == -1).all())
    assert torch.equal(task.y[whole.train], whole.y[whole.train]) and torch.equal(task.y[whole.val], whole.y[whole.val])


def test_a_study_is_continued_and_writes_the_best_settings(given, tmp_path):
    plan, data = given
    first = tune(tmp_path / "study", plan, data, 3, [])
    assert len(first["trials"]) == 3
    told = []
    second = tune(tmp_path / "study", plan, data, 5, [], told.append)
    assert len(second["trials"]) == 5 and [entry.number for entry in told] == [3, 4]
    losses = [row["val_loss"] for row in second["trials"] if row["val_loss"] is not None]
    assert second["best"]["val_loss"] == min(losses)
    settings, _ = resolve("mlp", config=second["config"])
    assert settings.learning_rate == second["best"]["settings"]["learning_rate"]
    assert json.loads((tmp_path / "study" / "tune.json").read_text())["best"] == second["best"]
    assert tune(tmp_path / "study", plan, data, 5, [])["trials"] == second["trials"]  # nothing left to do


def test_the_first_trial_is_the_settings_given(given, tmp_path):
    plan, data = given
    row = tune(tmp_path / "study", plan, data, 1, [])["trials"][0]
    assert (row["heads"], row["dropout"], row["learning_rate"]) == (8, 0.5, 0.005)


def test_the_written_settings_give_the_loss_that_was_found(given, tmp_path):
    plan, data = given
    best = tune(tmp_path / "study", plan, data, 3, ["weight_decay"])["best"]
    settings, _ = resolve("mlp", config=tmp_path / "study" / "config.toml")
    tasks = [without_test(task) for task in prepare(plan, data)]

    class Trial:
        def report(self, *_): ...
        def should_prune(self):
            return False

    assert tuning._mean_loss(replace(plan, settings=settings), tasks, Trial()) == best["val_loss"]


def test_another_study_is_not_mixed_in(given, tmp_path):
    plan, data = given
    tune(tmp_path / "study", plan, data, 1, [])
    with pytest.raises(ValueError, match="the study there has model 'mlp', not 'gcn'"):
        tune(tmp_path / "study", replace(plan, model="gcn"), data, 2, [])
    with pytest.raises(ValueError, match="the study there has fixed"):
        tune(tmp_path / "study", plan, data, 2, ["weight_decay"])


def test_settings_that_diverge_are_cut_short(given, tmp_path, monkeypatch):
    plan, data = given
    monkeypatch.setitem(tuning.ALWAYS, "learning_rate", lambda trial: trial.suggest_float("learning_rate", 1e29, 1e30))
    plan = replace(plan, settings=replace(plan.settings, learning_rate=1e30))
    with pytest.raises(RuntimeError, match="no trial came to an end"):
        tune(tmp_path / "study", plan, data, 2, [])
    rows = json.loads((tmp_path / "study" / "tune.json").read_text())["trials"]
    assert [row["state"] for row in rows] == ["pruned", "pruned"]


def test_the_space_is_the_papers_and_more_on_request():
    assert set(space("phgcn", [])) == {"heads", "dropout", "attention_dropout", "learning_rate"}
    assert set(space("gcn", ["weight_decay"])) == {"heads", "dropout", "learning_rate", "weight_decay"}
    assert len(space("phgcn", list(tuning.ON_REQUEST))) == 9
    with pytest.raises(ValueError, match="also is 'decay_global'; allowed for gcn: hidden_channels, weight_decay"):
        space("gcn", ["decay_global"])
    with pytest.raises(ValueError, match="trials is 0"):
        tune("nowhere", PLAN, small_graph(), 0, [])
