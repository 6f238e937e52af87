import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_graphs import small_graph

from phgcn.data import save_graph
from phgcn.provenance import provenance
from phgcn.train import settings as config
from phgcn.train import tuning
from phgcn_lab import table, table_jobs, table_report
from phgcn_lab.published import published
from phgcn_lab.table import Request
from phgcn_lab.table_report import CELL, PROVENANCE

CORE = ("gcn", "gat", "gat-eda", "phgcn", "phgcn-residual", "mlp")
SMALL = Request(("texas",), ("gcn", "phgcn", "mlp"), ("paper",), ("lattice", "exact"), splits=2)


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder for results, and small graphs under known names, with public masks."""
    data = small_graph()
    order = torch.stack(
        [torch.randperm(60, generator=torch.Generator().manual_seed(seed)) for seed in range(10)],
        dim=1,
    )
    data.train_mask, data.val_mask, data.test_mask = (
        order < 30,
        (order >= 30) & (order < 45),
        order >= 45,
    )
    for name in ("texas", "cornell"):
        save_graph(data, tmp_path / "graphs" / f"{name}.npz")
    monkeypatch.setenv("PHGCN_DATA", str(tmp_path / "graphs"))
    write_configs(tmp_path / "out", epochs=3)
    return tmp_path / "out"


def write_configs(out, epochs):
    settings = config.Settings(hidden_channels=4, heads=2, epochs=epochs, patience=epochs)
    (out / "configs").mkdir(parents=True, exist_ok=True)
    for graph in ("texas", "cornell"):
        for model in CORE:
            table_jobs.config_file(out, graph, model).write_text(
                config.as_toml(settings, model, "small")
            )


def test_rows_hold_what_is_promised(out):
    content = table.run(out, SMALL)
    rows = json.loads((out / "table.json").read_text())
    assert content["rows"] == rows and content["missing"] == content["failures"] == {}
    assert [(row["model"], row["method"]) for row in rows] == [
        ("gcn", None),
        ("phgcn", "lattice"),
        ("phgcn", "exact"),
        ("mlp", None),
    ]
    for row in rows:
        keys = {*CELL, *PROVENANCE, "mean", "std", "per_split", "published", "config"}
        assert keys <= set(row) and row["versions"]["torch"] == torch.__version__
        assert len(row["per_split"]) == 2
        assert row["mean"] == pytest.approx(sum(row["per_split"]) / 2)
        assert row["config"]["heads"] == 2 and row["config"].get("method") == row["method"]
        result = json.loads(
            (out / "runs" / table_jobs.job_name(*map(row.get, CELL)) / "result.json").read_text()
        )
        assert row["per_split"] == [100 * split["test"] for split in result["splits"]]
    assert [row["published"] for row in rows] == [54.6, 63.2, 63.2, None]
    assert (out / "table.png").stat().st_size > 1000 and "<svg" in (out / "table.svg").read_text()


def test_the_markdown_has_the_means_the_tests_and_the_methods(out):
    content = table.run(out, replace(SMALL, protocols=("paper", "geom")))
    text = (out / "table.md").read_text()
    assert text.index("## Protocol paper") < text.index("## Protocol geom")
    for row in content["rows"]:
        assert f"{row['mean']:.1f} ± {row['std']:.1f}" in text
    for row in content["differences"]:
        assert f"{row['difference']:+.1f} (p = {row['p']:.3f})" in text
    compared = {(row["model"], row["against"]) for row in content["differences"]}
    assert compared == {("phgcn", "gcn"), ("phgcn", "mlp")} and "PH-GCN − MLP" in text
    assert [row["method"] for row in content["methods"]] == ["lattice", "exact"] * 2
    assert "best published | 88.4 (ACM-GCN+, GRAFF)" in text and "(54.6 ± 1.6)" in text
    assert "quick" not in text and "Missing" not in text


def test_what_is_there_is_not_done_again_and_the_rest_is(out):
    first = table.run(out, replace(SMALL, models=("gcn",)))
    events = []
    second = table.run(out, SMALL, on_progress=events.append)
    assert {entry.name for entry in events} == {
        "texas-phgcn-paper-lattice",
        "texas-phgcn-paper-exact",
        "texas-mlp-paper",
    }
    assert second["rows"][0] == first["rows"][0]
    events.clear()
    assert table.run(out, SMALL, on_progress=events.append)["rows"] == second["rows"]
    assert events == []


def test_a_table_grows_by_calls_and_keeps_rows_of_other_commits(out, monkeypatch):
    """No merging by hand: each call adds its rows to table.json, each row with the provenance of
    its own run.
    """
    monkeypatch.setenv("PHGCN_COMMIT", "first")
    monkeypatch.setenv("PHGCN_DIRTY", "1")
    mlp = table.run(out, replace(SMALL, models=("mlp",)))["rows"]
    shutil.rmtree(out / "runs")  # another machine, which has the committed results alone
    monkeypatch.setenv("PHGCN_COMMIT", "second")
    monkeypatch.delenv("PHGCN_DIRTY")
    events = []
    rows = table.run(out, replace(SMALL, models=("gcn", "mlp")), on_progress=events.append)["rows"]
    assert {entry.name for entry in events} == {"texas-gcn-paper"}, (
        "what is in table.json is not done again"
    )
    assert [(row["model"], row["commit"], row["dirty"]) for row in rows] == [
        ("gcn", "second", None),
        ("mlp", "first", True),
    ]
    assert rows[1] == mlp[0] and json.loads((out / "table.json").read_text()) == rows
    cornell = table.run(out, replace(SMALL, graphs=("cornell",), models=("mlp",)))["rows"]
    assert [(row["graph"], row["model"]) for row in cornell] == [
        ("cornell", "mlp"),
        ("texas", "gcn"),
        ("texas", "mlp"),
    ]
    assert cornell[1:] == rows and "texas" in (out / "table.md").read_text()


def test_a_row_that_was_measured_with_other_settings_is_measured_again(out):
    request = replace(SMALL, models=("mlp",))
    table.run(out, request)
    shutil.rmtree(out / "runs")
    write_configs(out, epochs=4)
    assert table.run(out, request, stage="table")["missing"] == {"texas-mlp-paper": "not begun"}
    (row,) = table.run(out, request)["rows"]
    assert row["config"]["epochs"] == 4


def test_a_run_that_is_continued_names_the_commit_that_it_was_begun_at(out, monkeypatch):
    request = replace(SMALL, models=("mlp",))
    monkeypatch.setenv("PHGCN_COMMIT", "first")
    table.run(out, request)
    for name in ("result.json", "split-01.safetensors"):  # as if it had been killed
        (out / "runs" / "texas-mlp-paper" / name).unlink()
    monkeypatch.setenv("PHGCN_COMMIT", "second")
    (row,) = table.run(out, request)["rows"]
    assert (row["begun_at_commit"], row["commit"]) == ("first", "second")


def test_missing_runs_are_named(out):
    table.run(out, replace(SMALL, models=("gcn",)), stage="train")
    assert not (out / "table.json").exists()
    (out / "runs" / "texas-gcn-paper" / "result.json").unlink()
    content = table.run(out, SMALL, stage="table")
    assert content["rows"] == []
    assert content["missing"] == {
        "texas-gcn-paper": "2 of 2 splits are trained",
        "texas-phgcn-paper-lattice": "not begun",
        "texas-phgcn-paper-exact": "not begun",
        "texas-mlp-paper": "not begun",
    }
    text = (out / "table.md").read_text()
    assert "## Missing: 4 runs" in text and "- texas-mlp-paper: not begun" in text


def test_a_run_with_other_settings_is_refused(out):
    request = replace(SMALL, models=("gcn",))
    table.run(out, request)
    with pytest.raises(
        ValueError, match="was made with splits 2, not 3; allowed: the same, or another --out"
    ):
        table.run(out, replace(request, splits=3))
    write_configs(out, epochs=4)
    with pytest.raises(ValueError, match="texas-gcn-paper: was made with epochs 3, not 4"):
        table.run(out, request)
    content = table.run(out, request, stage="table")
    assert content["rows"] == []
    assert "was made with epochs 3, not 4" in content["missing"]["texas-gcn-paper"]


def test_a_job_that_fails_is_reported_and_the_others_go_on(out):
    wild = config.Settings(hidden_channels=4, heads=2, epochs=20, learning_rate=1e30)
    table_jobs.config_file(out, "texas", "mlp").write_text(config.as_toml(wild, "mlp", "wild"))
    content = table.run(out, SMALL)
    assert list(content["failures"]) == ["texas-mlp-paper"]
    assert "no finite loss" in content["failures"]["texas-mlp-paper"]
    assert len(content["rows"]) == 3
    assert content["missing"] == {"texas-mlp-paper": "0 of 2 splits are trained"}


# Settings


def test_settings_that_come_along_are_used_where_none_were_looked_for(tmp_path):
    settings, source = table_jobs.settings_of("cora", "gcn", tmp_path)
    assert settings == config.resolve("gcn", "cora").settings
    assert source == "configs.toml [cora.gcn] of phgcn"


def test_what_is_not_tuned_is_the_same_for_all_models_of_a_graph():
    """Of the settings that the table trains with: a model must not win by more epochs or a larger
    layer.
    """
    # those have their authors' settings
    tuned_models = [model for model in table.MODELS if not model.startswith("geom-gcn")]
    for graph in table.GRAPHS:
        values = {}
        for model in tuned_models:
            settings = config.used(table_jobs.settings_of(graph, model, Path("nowhere"))[0], model)
            for key in set(settings) - set(tuning.ALWAYS):
                values.setdefault(key, set()).add(settings[key])
        assert {
            key: {value} for key, value in table_jobs.FIXED[graph].items()
        }.items() <= values.items()
        assert {key: found for key, found in values.items() if len(found) > 1} == {}


def test_a_search_begins_with_the_settings_that_are_fixed(out, monkeypatch):
    pytest.importorskip("optuna")
    plans = []
    monkeypatch.setattr(
        table_jobs, "tune", lambda folder, plan, *_, **__: plans.append(plan) or write_found(folder)
    )
    for model in ("mlp", "phgcn"):
        study = table_jobs.Study("texas", model, 1, "cpu")
        table_jobs.tune_study(out, study, lambda text, share: None)
    for plan in plans:
        fixed = {key: getattr(plan.settings, key) for key in table_jobs.FIXED["texas"]}
        assert fixed == {"hidden_channels": 16, "weight_decay": 1e-2, "epochs": 500, "patience": 60}
        assert (plan.protocol, plan.splits) == ("paper", 3)


def write_found(folder):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("heads = 1\n")


def test_a_plain_model_with_its_own_channel_is_refused(out):
    path = table_jobs.config_file(out, "texas", "gcn")
    path.write_text(config.as_toml(config.Settings(residual=True), "gcn", "own channel"))
    with pytest.raises(ValueError, match="residual is True; allowed in the table: False"):
        table.run(out, SMALL)


def test_tuning_writes_settings_that_both_protocols_use(out, monkeypatch):
    pytest.importorskip("optuna")
    for path in (out / "configs").iterdir():
        path.unlink()
    monkeypatch.setitem(
        table_jobs.FIXED, "texas", {"hidden_channels": 4, "epochs": 3, "patience": 3}
    )
    monkeypatch.setitem(
        tuning.ALWAYS, "heads", lambda trial: trial.suggest_categorical("heads", [1, 2, 8])
    )
    request = Request(("texas",), ("phgcn",), methods=("lattice",), splits=2, trials=2)
    assert table.run(out, request, stage="tune")["failures"] == {}
    assert not (out / "runs").exists() and not (out / "table.json").exists()
    text = table_jobs.config_file(out, "texas", "phgcn").read_text()
    assert f"Found by: {provenance()['command']}" in text
    assert "mean of 1 split of protocol paper" in text
    rows = table.run(out, request)["rows"]
    assert len(json.loads((out / "tune" / "texas-phgcn" / "tune.json").read_text())["trials"]) == 2
    (study,) = json.loads((out / "tuning.json").read_text())
    assert (study["graph"], study["model"], len(study["trials"])) == ("texas", "phgcn", 2)
    assert "study" not in study
    settings = config.resolve(
        "phgcn", config=table_jobs.config_file(out, "texas", "phgcn")
    ).settings
    assert (settings.hidden_channels, settings.epochs) == (4, 3)
    assert {"commit", "dirty", "seed", "command", "machine"} <= set(study["provenance"])
    assert all({"commit", "dirty"} <= set(trial) for trial in study["trials"])
    assert [row["protocol"] for row in rows] == ["paper", "geom"]
    assert all(
        row["config"] == {**config.used(settings, "phgcn"), "method": "lattice"} for row in rows
    )


# What is asked for


def test_the_full_table_has_all_cells():
    jobs = Request().jobs()
    assert len({job.name for job in jobs}) == len(jobs)
    cells = {(job.graph, job.model, job.protocol) for job in jobs}
    assert {(g, m, p) for g in table.GRAPHS for m in CORE for p in table.PROTOCOLS} <= cells
    methods = {model: {job.method for job in jobs if job.model == model} for model in table.MODELS}
    assert methods["phgcn"] == set(table.METHODS)
    assert methods["phgcn-residual"] == {"lattice"} and methods["gcn"] == {None}
    assert methods["geom-gcn-p"] == {"published"}


def test_every_graph_of_the_paper_has_its_published_numbers():
    assert published("wisconsin", "phgcn", "paper")[:2] == (68.2, 7.3)
    assert published("texas", "mlp", "paper") is None
    for model in ("gcn", "gat", "gat-eda", "phgcn"):
        assert all(published(graph, model, "paper") for graph in table.GRAPHS)
    assert set(table_report.BEST["geom"]) == set(table.GRAPHS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"graphs": ()}, "graphs has ''; allowed: cora"),
        ({"splits": 1}, "splits is 1; allowed: 2 to 10"),
        ({"trials": 0}, "tune is 0; allowed: 1 or more trials"),
        ({"trials": 3, "quick": True}, "tune is 3; allowed with quick: no tuning"),
    ],
)
def test_a_wrong_request_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Request(**given)
