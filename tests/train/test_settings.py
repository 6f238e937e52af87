import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import phgcn_lab  # noqa: F401, registers Geom-GCN
from phgcn.data.names import GRAPHS
from phgcn.registry import find_model, model_names
from phgcn.train import settings as config
from phgcn.train.plan import Plan
from phgcn.train.prepare import build_model
from phgcn.train.settings import (
    Settings,
    as_toml,
    change,
    describe_sources,
    keys,
    resolve,
    tuned,
    used,
)

MODELS = model_names()
PUBLISHED = ("phgcn", "phgcn-residual", "gat-eda", "gat", "gcn", "mlp")
PUBLISHED += ("geom-gcn-i", "geom-gcn-p", "geom-gcn-s")


@pytest.mark.parametrize("model", MODELS)
def test_each_model_takes_its_settings(model):
    entry = find_model(model)
    assert not set(entry.settings) & set(entry.fixed) and set(entry.settings) <= set(keys(model))
    if str(entry.model).startswith("phgcn."):
        build_model(Plan("small", model, settings=resolve(model).settings), 5, 3, 60)


@pytest.mark.parametrize("model", MODELS)
def test_a_written_file_gives_the_same_settings(model, tmp_path):
    changes = {"learning_rate": 0.0123, "hidden_channels": 3, "normalise": True}
    settings = change(Settings(), changes, model, "test")
    path = tmp_path / "config.toml"
    path.write_text(as_toml(settings, model, "two\nlines"))
    assert resolve(model, config=path).settings == settings
    lines = [line for line in path.read_text().splitlines() if line and "model = " not in line]
    assert all("#" in line for line in lines)


def test_single_changes_replace_those_of_the_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('model = "phgcn"\nheads = 2\ndropout = 0.1\n')
    changes = ["heads=4", "method=exact", "learning_rate=1"]
    settings = resolve("phgcn", config=path, changes=changes).settings
    found = (settings.heads, settings.dropout, settings.method, settings.learning_rate)
    assert found == (4, 0.1, "exact", 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour=3", "'colour' is not known to gcn; allowed: hidden_channels"),
        ("embedding_dim=2", "'embedding_dim' is no setting of gcn"),
        ("heads=0", "heads is 0; allowed: whole numbers from 1 to 1000000000"),
        ("heads=2.5", "heads is 2.5; allowed"),
        ("heads=true", "heads is True; allowed"),
        ("dropout=1", "dropout is 1.0; allowed: numbers from 0 to below 1"),
        ("dropout=nan", "dropout is nan; allowed"),
        ("learning_rate=-1", "learning_rate is -1.0; allowed: positive numbers"),
        ("learning_rate=fast", "learning_rate is 'fast'; allowed"),
        ("norm=group", 'norm is \'group\'; allowed: "none", "batch", "layer"'),
        ("residual=1", "residual is 1; allowed: true, false"),
        ("warmup=-1", "warmup is -1; allowed: whole numbers from 0 on"),
        ("schedule=linear", 'schedule is \'linear\'; allowed: "constant", "cosine"'),
        ("select=test", 'select is \'test\'; allowed: "loss", "metric"'),
        ("clip_norm=-1", "clip_norm is -1.0; allowed: numbers from 0 on"),
        ("edge_dropout=1", "edge_dropout is 1.0; allowed: numbers from 0 to below 1"),
        ("local_epochs=5", "'local_epochs' is no setting of gcn"),
        ("heads", "--set is 'heads'; allowed: key=value"),
        ("=3", "--set is '=3'; allowed: key=value"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(text, said):
    with pytest.raises(ValueError) as caught:
        resolve("gcn", changes=[text])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"heads = = 3", "not a TOML file"),
        (b"\xff\xfe", "not UTF-8"),
        (b'model = "gat"', "model is 'gat'; allowed: 'gcn'"),
        (b"[table]\nheads = 1", "'table' is not known to gcn"),
    ],
)
def test_a_wrong_file_is_refused(content, said, tmp_path):
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        resolve("gcn", config=path)
    assert said in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        resolve("gcn", config=tmp_path / "none.toml")


# configs.toml


def test_every_table_is_of_a_known_graph_and_model_and_valid():
    tables = config._tables()
    assert set(tables) <= set(GRAPHS)
    for graph, by_model in tables.items():
        for model, values in by_model.items():
            assert values == tuned(model, graph) and values
            resolved = resolve(model, graph)
            assert all(getattr(resolved.settings, key) == value for key, value in values.items())
            assert all(resolved.sources[key] == f"configs.toml [{graph}.{model}]" for key in values)


def test_GlobalGNN_is_trained_as_in_the_benchmark():
    results = Path(__file__).parents[2] / "docs/results/benchmark.json"
    rows = [row for row in json.loads(results.read_text())["rows"] if row["row"] == "global-gnn"]
    assert len(rows) == 10
    for row in rows:
        settings = asdict(resolve("global-gnn", row["graph"]).settings)
        assert {key: settings[key] for key in row["settings"]} == row["settings"]


@pytest.mark.parametrize("graph", ["roman-empire", "my-graph", "some/texas", None])
def test_a_graph_that_was_not_tuned_or_a_path_has_the_defaults(graph):
    for model in MODELS:
        resolved = resolve(model, graph)
        assert resolved.settings == replace(Settings(), **find_model(model).defaults)
        assert set(resolved.sources.values()) <= {"default", f"fixed by {model}"}


def test_no_setting_of_any_known_graph_changes_unseen():
    """The settings behind all published results; a change of a default or of configs.toml must be
    meant."""
    resolved = {
        f"{graph} {model}": used(resolve(model, graph).settings, model)
        for graph in GRAPHS
        for model in PUBLISHED
    }
    digest = hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()
    assert digest[:16] == "7beeee14a8313d5b"


# Sources


def test_each_setting_says_where_it_comes_from(tmp_path):
    resolved = resolve("phgcn-residual", "texas", changes=["epochs=3"])
    sources = resolved.sources
    assert sources["heads"] == "configs.toml [texas.phgcn-residual]"
    assert sources["num_layers"] == "default"
    assert sources["epochs"] == "--set" and sources["residual"] == "fixed by phgcn-residual"
    assert set(sources) == {*keys("phgcn-residual"), "residual"}
    path = tmp_path / "mine.toml"
    path.write_text("heads = 2\nepochs = 5\n")
    sources = resolve("phgcn", "texas", path, ["epochs=3"]).sources
    assert [sources[key] for key in ("heads", "epochs", "dropout")] == [
        str(path),
        "--set",
        "default",
    ]


def test_the_warm_up_of_a_table_follows_its_epochs_unless_it_is_said(tmp_path):
    def of(*changes, **more):
        settings = resolve("table", changes=changes, **more).settings
        return settings.epochs, settings.warmup, settings.patience

    assert of() == (300, 90, 300) and of("epochs=20") == (20, 6, 20)
    assert of("epochs=20", "warmup=2", "patience=9") == (20, 2, 9)
    start = {"epochs": 600, "warmup": 60, "patience": 600}, "start"
    assert of("epochs=50", start=start) == (50, 5, 50)
    # a run that is continued names all its settings
    path = tmp_path / "config.toml"
    path.write_text("epochs = 20\nwarmup = 6\npatience = 20\n")
    assert of("epochs=40", config=path) == (40, 6, 20)


def test_sources_are_one_line_each_with_the_values():
    lines = describe_sources(resolve("mlp", "texas", changes=["epochs=3"]), "mlp")
    sources = [line.split(": ")[0] for line in lines]
    assert sorted(sources) == ["--set", "configs.toml [texas.mlp]", "default"]
    assert "--set: epochs=3" in lines
    defaults = 'default: num_layers=2, norm="none", scaling="none", normalise=false, schedule='
    assert any(line.startswith(defaults) for line in lines)
