import json
import re
from dataclasses import replace

import pytest
import torch
from small_graphs import small_graph

from phgcn.cli import tuning as tuning_command
from phgcn.data import save_graph
from phgcn.train import Plan, Settings, entrant, find, resolve, tune, tuning
from phgcn.train.prepare import prepare, without_test
from phgcn.train.tuning import space

optuna = pytest.importorskip("optuna")
PLAN = Plan("small", model="mlp", splits=2, settings=Settings(hidden_channels=4, epochs=4))


@pytest.fixture
def study_plan(tmp_path):
    save_graph(small_graph(), tmp_path / "small.npz")
    source, data = find(str(tmp_path / "small.npz"))
    return replace(PLAN, source=source), data


def test_trials_never_see_test_nodes(study_plan, tmp_path, monkeypatch):
    """Of what every trial trains with: no label of a test node, and no test node to evaluate."""
    plan, data = study_plan
    whole, seen = prepare(plan, data), []
    start = entrant.start
    monkeypatch.setattr(entrant, "start", lambda plan, task: seen.append(task) or start(plan, task))
    tune(tmp_path / "study", plan, data, 2, [])
    assert len(seen) == 2 * plan.splits
    for number, task in enumerate(seen):
        original = whole[number % plan.splits]
        assert len(original.test) > 0 and bool((original.y[original.test] >= 0).all())
        assert len(task.test) == 0 and bool((task.y[original.test] == -1).all())
        for part in ("train", "val"):
            nodes = getattr(original, part)
            assert torch.equal(getattr(task, part), nodes) and torch.equal(
                task.y[nodes], original.y[nodes]
            )


def test_attention_to_labels_is_tuned(study_plan, tmp_path):
    plan, data = study_plan
    settings = Settings(hidden_channels=4, heads=2, epochs=4, labels=True)
    plan = replace(plan, model="global-gnn", splits=1, settings=settings)
    also = ["decay", "key_share", "global_at"]
    found = tune(tmp_path / "study", plan, data, 3, also)
    assert len(found["trials"]) == 3 and found["best"]["settings"]["labels"] is True
    assert {"labels", *also} <= set(found["best"]["settings"])
    first = found["trials"][0]
    assert (first["decay"], first["key_share"], first["global_at"]) == (1.0, 0.6, "top")
    varied = tune(tmp_path / "labels", plan, data, 4, ["labels"])
    assert {type(row["labels"]) for row in varied["trials"]} == {bool}


def test_all_settings_that_can_be_varied_are_named_in_the_help():
    named = re.findall("[a-z_]+", tuning_command._also.split(":")[1].split(".")[0])
    assert sorted(named) == sorted(tuning.ON_REQUEST)


def test_a_study_is_continued_and_writes_the_best_settings(study_plan, tmp_path):
    plan, data = study_plan
    first = tune(tmp_path / "study", plan, data, 3, [])
    assert len(first["trials"]) == 3
    reports = []
    second = tune(tmp_path / "study", plan, data, 5, [], reports.append)
    assert len(second["trials"]) == 5 and [entry.number for entry in reports] == [3, 4]
    losses = [row["val_loss"] for row in second["trials"] if row["val_loss"] is not None]
    assert second["best"]["val_loss"] == min(losses)
    settings = resolve("mlp", config=second["config"]).settings
    assert settings.learning_rate == second["best"]["settings"]["learning_rate"]
    assert json.loads((tmp_path / "study" / "tune.json").read_text())["best"] == second["best"]
    # nothing left to do
    assert tune(tmp_path / "study", plan, data, 5, [])["trials"] == second["trials"]


def test_a_study_says_at_which_commit_each_trial_ran(study_plan, tmp_path, monkeypatch):
    plan, data = study_plan
    for count, commit in enumerate(("first", "second"), start=1):
        monkeypatch.setenv("PHGCN_COMMIT", commit)
        monkeypatch.setenv("PHGCN_DIRTY", "0")
        result = tune(tmp_path / "study", plan, data, count, [])
    assert [(row["commit"], row["dirty"]) for row in result["trials"]] == [
        ("first", False),
        ("second", False),
    ]
    written = json.loads((tmp_path / "study" / "tune.json").read_text())["provenance"]
    assert (written["commit"], written["seed"]) == ("second", plan.seed)


def test_the_first_trial_is_the_settings_given(study_plan, tmp_path):
    plan, data = study_plan
    row = tune(tmp_path / "study", plan, data, 1, [])["trials"][0]
    assert (row["heads"], row["dropout"], row["learning_rate"]) == (8, 0.5, 0.005)


def test_the_written_settings_give_the_loss_that_was_found(study_plan, tmp_path):
    plan, data = study_plan
    best = tune(tmp_path / "study", plan, data, 3, ["weight_decay"])["best"]
    settings = resolve("mlp", config=tmp_path / "study" / "config.toml").settings
    tasks = [without_test(task) for task in prepare(plan, data)]

    class Trial:
        number = 0

        def report(self, *_): ...
        def should_prune(self):
            return False

    assert tuning._mean_loss(replace(plan, settings=settings), tasks, Trial()) == best["val_loss"]


def test_a_trial_that_is_behind_stops_at_the_first_rung(study_plan, tmp_path, monkeypatch):
    plan, data = study_plan
    monkeypatch.setattr(tuning, "FIRST_RUNG", 2)
    monkeypatch.setitem(
        tuning.ALWAYS, "learning_rate", lambda trial: 1e-6 if trial.number else 0.01
    )
    plan = replace(plan, settings=replace(plan.settings, learning_rate=0.01, epochs=20))
    epochs = []
    monkeypatch.setattr(tuning.Entrant, "run", counted(tuning.Entrant.run, epochs))
    rows = tune(tmp_path / "study", plan, data, 3, [])["trials"]
    assert [row["state"] for row in rows] == ["complete", "pruned", "pruned"]
    assert epochs.count(2) == 3 * plan.splits and epochs.count(18) == plan.splits


def counted(run, epochs):
    def counting(self, until):
        epochs.append(until)
        run(self, until)

    return counting


def test_another_study_is_not_mixed_in(study_plan, tmp_path):
    plan, data = study_plan
    tune(tmp_path / "study", plan, data, 1, [])
    with pytest.raises(ValueError, match="the study there has model 'mlp', not 'gcn'"):
        tune(tmp_path / "study", replace(plan, model="gcn"), data, 2, [])
    with pytest.raises(
        ValueError, match="the study there has weight_decay fixed, not varied; choose another --out"
    ):
        tune(tmp_path / "study", plan, data, 2, ["weight_decay"])
    other = replace(plan, seed=3, settings=replace(plan.settings, patience=7))
    with pytest.raises(
        ValueError,
        match="the study there has seed 0, not 3; patience 100, not 7; choose another --out",
    ):
        tune(tmp_path / "study", other, data, 2, [])


def test_settings_that_diverge_are_cut_short(study_plan, tmp_path, monkeypatch):
    plan, data = study_plan
    monkeypatch.setitem(
        tuning.ALWAYS,
        "learning_rate",
        lambda trial: trial.suggest_float("learning_rate", 1e29, 1e30),
    )
    plan = replace(plan, settings=replace(plan.settings, learning_rate=1e30))
    with pytest.raises(RuntimeError, match="no trial came to an end"):
        tune(tmp_path / "study", plan, data, 2, [])
    rows = json.loads((tmp_path / "study" / "tune.json").read_text())["trials"]
    assert [row["state"] for row in rows] == ["pruned", "pruned"]


def test_the_space_is_the_papers_and_more_on_request():
    assert set(space("phgcn", [])) == {"heads", "dropout", "attention_dropout", "learning_rate"}
    assert set(space("gcn", ["weight_decay"])) == {
        "heads",
        "dropout",
        "learning_rate",
        "weight_decay",
    }
    of_phgcn = ["hidden_channels", "num_layers", "decay_local", "decay_global", "embedding_dim"]
    assert len(space("phgcn", ["weight_decay", *of_phgcn])) == 10
    assert {"heads", "dropout", "learning_rate", "local"} == set(space("global-gnn", ["local"]))
    with pytest.raises(
        ValueError,
        match="also is 'decay_global'; allowed for gcn: hidden_channels, num_layers, weight_decay",
    ):
        space("gcn", ["decay_global"])
    with pytest.raises(ValueError, match="trials is 0"):
        tune("nowhere", PLAN, small_graph(), 0, [])
