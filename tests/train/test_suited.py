from dataclasses import replace

import pytest
import torch
from small_graphs import small_graph

from phgcn.registry import DEFAULT_MODEL
from phgcn.train import Plan, suit_settings
from phgcn.train import settings as config
from phgcn.train.prepare import prepare, seeded, start
from phgcn.train.settings import Settings, keys, resolve


def graph_of(nodes, features, filled):
    """A graph of that size, such a share of whose features is not 0."""
    data = small_graph(nodes=nodes, features=features)
    data.x = (torch.rand(nodes, features, generator=torch.Generator().manual_seed(0)) < filled).float()
    return data


GRAPHS = {
    "small": graph_of(200, 300, 0.05),
    "words": graph_of(1500, 300, 0.05),
    "dense": graph_of(1500, 300, 1.0),
    "few": graph_of(1500, 7, 1.0),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_suited_settings_are_valid_and_train(name):
    data = GRAPHS[name]
    values, reason = suit_settings(data, "accuracy")
    assert set(values) <= set(keys(DEFAULT_MODEL))
    settings = config.change(Settings(), values, DEFAULT_MODEL, reason)
    assert settings.select == "metric" and settings.learn_decay and settings.global_layers > 0
    plan = Plan("small", DEFAULT_MODEL, splits=1, settings=replace(settings, epochs=2, hidden_channels=8))
    task = prepare(plan, data)[0]
    with seeded(0, task):
        training = start(plan, task)
        while not training.done:
            training.epoch()
    assert training.state.epoch == 2


def test_the_rule_follows_size_and_features_and_names_them():
    suited = {name: suit_settings(data, "accuracy") for name, data in GRAPHS.items()}
    assert suited["words"].reason == "suited to 1,500 nodes, 300 word features and accuracy"
    assert suited["few"].reason == "suited to 1,500 nodes, 7 few features and accuracy"
    assert suit_settings(GRAPHS["words"], "roc_auc").values == suited["few"].values
    assert len({str(sorted(values.items())) for values, _ in suited.values()}) == len(GRAPHS)
    assert suited["words"].values["local_epochs"] < suited["words"].values["epochs"]  # its global path gets a turn
    assert suited["words"].values["jk"] == "sum"  # neighbourhoods of all widths


def test_sparse_features_are_judged_as_dense_ones():
    data = graph_of(1500, 300, 0.05)
    dense = suit_settings(data, "accuracy")
    data.x = data.x.to_sparse_csr()
    assert suit_settings(data, "accuracy") == dense


def test_labels_have_no_say():
    data = graph_of(200, 300, 0.05)
    before = suit_settings(data, "accuracy")
    data.y = torch.zeros_like(data.y)
    assert suit_settings(data, "accuracy") == before


def test_suited_settings_are_below_a_file_and_single_changes(tmp_path):
    suited = suit_settings(GRAPHS["few"], "accuracy")
    path = tmp_path / "mine.toml"
    path.write_text("num_layers = 5\n")
    settings, sources = resolve(DEFAULT_MODEL, None, path, ["hidden_channels=12"], suited)
    assert (settings.num_layers, settings.hidden_channels, settings.norm) == (5, 12, suited.values["norm"])
    assert (sources["num_layers"], sources["hidden_channels"]) == (str(path), "--set")
    assert sources["norm"] == suited.reason and sources["jk"] == "default"


def test_a_tuned_table_starts_from_the_defaults(monkeypatch):
    """Or a change of the rule would change a published result."""
    monkeypatch.setattr(config, "_tables", lambda: {"few": {DEFAULT_MODEL: {"num_layers": 6}}})
    settings, sources = resolve(DEFAULT_MODEL, "few", None, (), suit_settings(GRAPHS["few"], "accuracy"))
    assert settings == replace(Settings(), num_layers=6) and set(sources.values()) == {
        f"configs.toml [few.{DEFAULT_MODEL}]",
        "default",
    }
