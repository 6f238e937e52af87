"""A model is added by one entry of the registry: training, tuning, tables and the command line read
it.
"""

import json

import pytest
import torch
from small_graphs import small_graph, write_tables

from phgcn import nn, registry
from phgcn.cli import app
from phgcn.nn.models import NodeModel
from phgcn.registry import ModelEntry, find_model, model_names, register
from phgcn.train import Plan, Run, Settings, resolve, tune
from phgcn_lab.table import Request

CALLS = []


class Toy(NodeModel):
    """Sums ``edge_index`` and one weight per edge, to see what arrives."""

    def __init__(self, in_channels, hidden_channels, out_channels, dropout=0.5, residual=False):
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels,
            num_layers=1,
            heads=1,
            dropout=dropout,
            residual=residual,
        )

    def init_conv(self, in_channels, out_channels, **settings):
        return torch.nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index, weight):
        CALLS.append((x.shape, edge_index.shape, weight.shape, self.residual))
        return self.convs[0](
            x
            + torch.zeros_like(x).index_add_(
                0, edge_index[1], weight.unsqueeze(1) * x[edge_index[0]]
            )
        )


def toy_edges(data, seed):
    return data.edge_index, torch.full((data.edge_index.size(1),), 0.1 + seed)


TOY = ModelEntry(
    "toy",
    "Toy",
    Toy,
    ("hidden_channels", "dropout"),
    {"residual": True},
    prepare_edges=toy_edges,
)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    register(TOY)
    CALLS.clear()


def test_a_registered_model_trains_and_predicts_through_the_public_interface(toy, tmp_path):
    data = small_graph()
    settings = resolve("toy", changes=["epochs=2", "dropout=0"]).settings
    run = Run.create(
        tmp_path / "run", Plan("small", model="toy", splits=1, settings=settings), data
    )
    result = run.train(data)
    assert (
        result["model"] == "toy" and result["config"]["epochs"] == 2 and len(result["splits"]) == 1
    )
    assert "heads" not in result["config"]
    edges = data.edge_index.size(1)
    # a step and an evaluation per epoch
    assert set(CALLS) == {((60, 5), (2, edges), (edges,), True)} and len(CALLS) == 4
    assert Run.open(tmp_path / "run").plan.model == "toy"


def test_a_registered_model_is_tuned_over_the_settings_it_takes(toy, tmp_path):
    pytest.importorskip("optuna")
    plan = Plan("small", model="toy", splits=1, settings=Settings(epochs=2))
    assert tune(tmp_path, plan, small_graph(), 1, [])["varied"] == ["dropout", "learning_rate"]


def test_a_registered_model_is_trained_listed_and_named_in_errors_by_the_command_line(
    toy, tmp_path, capsys
):
    graph = str(write_tables(small_graph(), tmp_path / "small"))
    options = ["--splits", "1", "--set", "epochs=2", "--out", str(tmp_path / "run"), "--json"]
    assert app.run(["train", graph, "--model", "toy", *options]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "toy"
    for command in ("train", "tune"):
        app.run([command, "--help"])
        assert "toy" in capsys.readouterr().out.rpartition("Models:")[2]
    assert app.run(["train", graph, "--model", "gin"]) == 2
    assert capsys.readouterr().err.rstrip().endswith(", toy")
    assert app.run(["train", graph, "--model", "toy", "--set", "heads=2"]) == 2
    assert "the setting 'heads' is no setting of toy" in capsys.readouterr().err


def test_a_registered_model_is_a_row_of_the_table_if_asked_for(toy):
    assert "toy" not in Request().models
    assert {job.method for job in Request(models=("toy",)).jobs()} == {None}


def test_a_name_is_taken_once(toy):
    register(TOY)
    with pytest.raises(
        ValueError, match="model is 'toy'; allowed: a name that is not registered yet"
    ):
        register(ModelEntry("toy", "Another", Toy, ()))


def test_a_setting_that_does_not_exist_is_refused(toy):
    register(ModelEntry("odd", "Odd", Toy, ("colour",)))
    with pytest.raises(
        ValueError, match="odd is registered with the setting 'colour'; allowed: hidden_channels"
    ):
        resolve("odd")


def test_the_classes_by_name_are_those_of_the_registry(toy):
    # variants: another model, some settings fixed
    assert "toy" not in nn.MODELS and "phgcn-residual" not in nn.MODELS
    register(ModelEntry("plain", "Plain", Toy, ("dropout",)))
    assert nn.MODELS["plain"] is Toy and nn.MODELS["phgcn"] is nn.PHGCN
    assert list(nn.MODELS) == [name for name in model_names() if not find_model(name).fixed]


@pytest.mark.parametrize("local", ["gcn", "sgc", "sage", "gat", "gin", "eda", "none"])
def test_global_gnn_reads_the_features_of_edges_that_its_local_layer_reads(local):
    takes = find_model("global-gnn").edge_values_of({"local": local})
    model = nn.MODELS["global-gnn"](
        5, 8, 2, local=local, **({"edge_dim": 3} if "edge_attr" in takes else {})
    )
    assert model.takes == takes
