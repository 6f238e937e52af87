import inspect

import pytest

from phgcn.data.names import GRAPHS
from phgcn.nn import MODELS
from phgcn.reproduce.table import GRAPHS as TABLE
from phgcn.train import settings as config
from phgcn.train.settings import Settings, as_toml, change, keys, model_keys, read, resolve


def test_the_models_are_those_of_the_layers():
    assert set(config.MODELS) == set(MODELS) | set(config.VARIANTS)


@pytest.mark.parametrize("model", config.MODELS)
def test_each_model_takes_its_settings(model):
    base, fixed = config.variant(model)
    taken = inspect.signature(MODELS[base]).parameters
    assert {*model_keys(model), *fixed} <= set(taken) and not set(model_keys(model)) & set(fixed)


@pytest.mark.parametrize("model", config.MODELS)
def test_a_written_file_gives_the_same_settings(model, tmp_path):
    settings = change(Settings(), {"learning_rate": 0.0123, "hidden_channels": 3, "normalise": True}, model, "test")
    path = tmp_path / "config.toml"
    path.write_text(as_toml(settings, model, "two\nlines"))
    assert resolve(model, config=path) == (settings, path)
    assert all("#" in line for line in path.read_text().splitlines() if not line.startswith("model"))


def test_single_changes_replace_those_of_the_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('model = "phgcn"\nheads = 2\ndropout = 0.1\n')
    settings, _ = resolve("phgcn", config=path, changes=["heads=4", "method=exact", "learning_rate=1"])
    assert (settings.heads, settings.dropout, settings.method, settings.learning_rate) == (4, 0.1, "exact", 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour=3", "'colour' is not known to gcn; allowed: hidden_channels"),
        ("embedding_dim=2", "'embedding_dim' is no setting of gcn"),
        ("heads=0", "heads is 0; allowed: whole numbers from 1 on"),
        ("heads=2.5", "heads is 2.5; allowed"),
        ("heads=true", "heads is True; allowed"),
        ("dropout=1", "dropout is 1.0; allowed: numbers from 0 to below 1"),
        ("dropout=nan", "dropout is nan; allowed"),
        ("learning_rate=-1", "learning_rate is -1.0; allowed: positive numbers"),
        ("learning_rate=fast", "learning_rate is 'fast'; allowed"),
        ("norm=group", 'norm is \'group\'; allowed: "none", "batch", "layer"'),
        ("residual=1", "residual is 1; allowed: true, false"),
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


def test_every_file_that_comes_along_is_valid_and_found():
    paths = sorted(config.CONFIGS.glob("*.toml"))
    assert paths
    for path in paths:
        model, values = read(path)
        graph = path.stem.removesuffix(f"-{model}")
        assert config.shipped(model, graph) == path
        assert set(values) <= set(keys(model))
        resolve(model, graph)


def test_a_path_never_finds_a_file_that_comes_along():
    assert config.shipped("phgcn", "some/texas") is None
    assert config.shipped("phgcn", None) is None


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_known_graph_has_settings_for_every_model(graph):
    for model in config.MODELS:
        if model.startswith("geom-gcn") and graph not in TABLE:
            continue  # nobody published neighbourhoods for it
        path = config.shipped(model, graph)
        assert path is not None, f"{graph}-{model}.toml is missing"
        assert path.read_text().startswith(f"# {model} on {graph}"), "the file does not say what it is for"
        config.resolve(model, graph)
