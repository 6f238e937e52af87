"""A search is judged by validation alone, kept trial by trial, and continues where it was cut
off."""

import json
import time

import pytest
import torch
from benchmark_graph import graph_with_splits, use_as_texas

from phgcn_lab.benchmark import search, spaces
from phgcn_lab.benchmark.search import Study, best_trial, run_study

pytest.importorskip("optuna")
FAR = float("inf")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    use_as_texas(monkeypatch, graph_with_splits())


def study(trials=2, seconds=100.0, model="linkx"):
    return Study("texas", model, trials, seconds, "cpu", epochs=3)


def run(asked, out, deadline=FAR):
    return run_study(asked, out, deadline, lambda text, share: None)


def test_recipes_come_first_and_every_trial_is_kept(tmp_path):
    content = run(study(3), tmp_path)
    assert content == json.loads((tmp_path / "search" / "texas-linkx.json").read_text())
    assert [trial["settings"] for trial in content["trials"]] == spaces.RECIPES["linkx"][:3]
    for trial in content["trials"]:
        assert trial["state"] == "complete" and trial["recipe"] and trial["epochs"] == [3, 3, 3]
        assert trial["value"] == pytest.approx(sum(trial["val"]) / 3) and trial["seconds"] > 0
        assert trial["device"] and "commit" in trial and "dirty" in trial
    assert content["space"]["num_layers"] == [1, 2, 3, 4] and content["splits"] == [0, 1, 2]


def test_a_search_continues(tmp_path):
    first = run(study(2), tmp_path)
    assert run(study(2), tmp_path) == first
    more = run(study(7), tmp_path)
    assert more["trials"][:2] == first["trials"] and len(more["trials"]) == 7
    settings = [trial["settings"] for trial in more["trials"]]
    assert settings[:5] == spaces.RECIPES["linkx"] and not more["trials"][6]["recipe"]
    assert all(value in spaces.SPACES["linkx"][key] for key, value in settings[6].items())


def test_test_labels_have_no_influence(tmp_path, monkeypatch):
    before = run(study(), tmp_path / "before")
    data = graph_with_splits()
    outside = ~(data.train_mask | data.val_mask)[:, list(spaces.CHOOSING_SPLITS)].any(dim=1)
    assert outside.any()
    data.y[outside] = (data.y[outside] + 1) % 3
    use_as_texas(monkeypatch, data)
    after = run(study(), tmp_path / "after")
    assert [trial["value"] for trial in before["trials"]] == [
        trial["value"] for trial in after["trials"]
    ]
    seen = []

    def watch(plan, arguments, split, deadline, *, show_test):
        seen.append(show_test)
        return {"val": 0.5, "val_loss": 1.0, "epochs": 1}, None

    monkeypatch.setattr(search, "train_split", watch)
    run(study(), tmp_path / "watched")
    assert seen == [False] * 6


def test_time_ends_a_search_but_not_its_first_trial(tmp_path):
    content = run(study(30, seconds=1e-6), tmp_path)
    assert [trial["state"] for trial in content["trials"]] == ["complete"]


def test_a_deadline_cuts_a_trial_which_is_tried_again_later(tmp_path):
    assert run(study(), tmp_path, deadline=time.time() - 1)["trials"] == []
    asked, content = study(), study().read(tmp_path)
    sampler = search._make_sampler(asked, content)
    cut = search._run_trial(asked, content, sampler, time.time() - 1)
    assert cut["state"] == "cut" and cut["value"] is None
    content["trials"].append(cut)
    asked.file(tmp_path).parent.mkdir()
    asked.file(tmp_path).write_text(json.dumps(content))
    again = run(asked, tmp_path)["trials"]
    assert [trial["state"] for trial in again] == ["cut", "complete", "complete"]
    assert again[1]["settings"] == cut["settings"]


def test_settings_that_diverge_are_a_failed_trial(tmp_path, monkeypatch):
    data = graph_with_splits()
    data.x = torch.full_like(data.x, torch.inf)
    use_as_texas(monkeypatch, data)
    trials = run(study(1), tmp_path)["trials"]
    assert [trial["state"] for trial in trials] == ["failed"]
    assert "no finite loss" in trials[0]["problem"]


def test_bad_trials_are_pruned_after_a_split(tmp_path, monkeypatch):
    calls = []

    def worse_and_worse(plan, arguments, split, deadline, *, show_test):
        calls.append(split)
        return {"val": 1 / len(calls), "val_loss": 1.0, "epochs": 1}, None

    monkeypatch.setattr(search, "train_split", worse_and_worse)
    states = [trial["state"] for trial in run(study(6), tmp_path)["trials"]]
    assert states == ["complete"] * 4 + ["pruned"] * 2 and calls == [0, 1, 2] * 4 + [0, 0]


def test_a_study_of_another_space_is_refused(tmp_path, monkeypatch):
    run(study(1), tmp_path)
    monkeypatch.setitem(spaces.SPACES, "linkx", {**spaces.SPACES["linkx"], "num_layers": (1,)})
    with pytest.raises(ValueError, match=r"was made with space .* choose another --out"):
        run(study(), tmp_path)


def test_the_best_trial_has_the_highest_value_then_the_smallest_loss():
    rows = [
        ("complete", 0.5, 0.1),
        ("complete", 0.7, 0.3),
        ("complete", 0.7, 0.2),
        ("pruned", None, None),
    ]
    trials = [
        {"state": state, "value": value, "val_loss": loss, "settings": {}}
        for state, value, loss in rows
    ]
    assert best_trial({"trials": trials}) is trials[2]
    trials.append(
        {"state": "complete", "value": 0.9, "val_loss": 0.1, "settings": {"global_layers": 0}}
    )
    assert best_trial({"trials": trials}) is trials[2]  # a body alone is a step on the way
    assert best_trial({"trials": trials[3:]}) is None


def test_every_model_can_be_searched(tmp_path, threads):
    threads(1)
    for model in spaces.MODELS:
        content = run(study(1, model=model), tmp_path)
        assert [trial["state"] for trial in content["trials"]] == ["complete"], model


def test_global_gnn_is_searched_body_first_then_its_global_path(tmp_path, threads):
    threads(1)
    content = run(study(6, model=spaces.OURS), tmp_path)
    bodies, paths = content["trials"][:3], content["trials"][3:]
    assert [trial["settings"] for trial in bodies] == [
        body | spaces.OFF for body in spaces.RECIPES[spaces.OURS][:3]
    ]
    best = min(bodies, key=lambda trial: (-trial["value"], trial["val_loss"]))
    assert [trial["settings"] for trial in paths] == [
        best["settings"] | path for path in spaces.PATHS[:3]
    ]
    assert best_trial(content) in paths
    assert run(study(6, model=spaces.OURS), tmp_path) == content
