"""GlobalGNN with labels as values, and its training."""

import json

import pytest
import torch
from small_graphs import small_graph, write_tables

from phgcn.cli import app
from phgcn.nn import GlobalGNN
from phgcn.train import Plan, resolve
from phgcn.train.prepare import prepare, seeded, start


def network(**settings):
    torch.manual_seed(0)
    return GlobalGNN(5, 16, 3, local="sage", labels=True, **settings).eval()


def test_no_output_depends_on_the_own_label_nor_on_one_that_is_not_known():
    data, model = small_graph(), network()
    labelled = torch.arange(60) % 3 != 0
    before = model(data.x, data.edge_index, y=data.y, labelled=labelled)
    for node in range(0, 60, 7):
        y = data.y.clone()
        y[node] = (y[node] + 1) % 3
        changed = (model(data.x, data.edge_index, y=y, labelled=labelled) != before).any(dim=1)
        assert not bool(changed[node]) and bool(changed.any()) == bool(labelled[node])


def test_keys_get_no_labels_and_without_labels_the_network_is_the_local_one():
    data, model = small_graph(), network()
    labelled = torch.ones(60, dtype=torch.bool)
    keys = model.draw_keys(labelled)
    out = model(data.x, data.edge_index, y=data.y, labelled=labelled, keys=keys)
    torch.manual_seed(0)
    local = GlobalGNN(5, 16, 3, local="sage").eval()(data.x, data.edge_index)
    torch.testing.assert_close(out[keys], local[keys])
    assert not torch.allclose(out[~keys], local[~keys])
    model.set_global(False)
    torch.testing.assert_close(model(data.x, data.edge_index), local)
    with pytest.raises(ValueError, match="n_id is given to a network with labels"):
        model(data.x, data.edge_index, n_id=torch.arange(60))


def train(data, epochs=40):
    changes = ["labels=true", f"epochs={epochs}", "hidden_channels=16", "select=metric"]
    settings = resolve("global-gnn", changes=changes).settings
    plan = Plan("small", "global-gnn", splits=1, settings=settings)
    task = prepare(plan, data)[0]
    with seeded(0, task):
        training = start(plan, task)
        for _ in range(epochs):
            training.epoch()
    return training, task


def test_random_labels_are_learned_by_nobody_through_the_labels():
    """With positions that cannot move, training nodes, evaluated in halves, do not know their labels."""
    torch.manual_seed(1)
    data = small_graph(300, classes=2)
    data.y = torch.randint(2, (300,))
    model = GlobalGNN(5, 16, 2, local="none", labels=True).requires_grad_(False)
    for parameter in (model.outputs.scale, model.attentions[0].head_shares, model.attentions[0].decay.log):
        parameter.requires_grad_(True)
    labelled = torch.arange(300) < 240
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(60):
        keys = model.draw_keys(labelled)
        out = model(data.x, data.edge_index, y=data.y, labelled=labelled, keys=keys)
        scored = labelled & ~keys
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(out[scored], data.y[scored]).backward()
        optimiser.step()
    right = model.eval()(data.x, data.edge_index, y=data.y, labelled=labelled).argmax(dim=1) == data.y
    assert abs(float(right[labelled].float().mean()) - 0.5) < 0.1
    assert abs(float(right[~labelled].float().mean()) - 0.5) < 0.2


def test_labels_of_validation_and_test_nodes_change_no_output():
    data = small_graph(90)
    training, task = train(data, epochs=3)
    hidden = data.clone()
    held = torch.cat([task.val, task.test])
    hidden.y[held] = (hidden.y[held] + 1) % 3
    assert torch.equal(training.labels["y"][task.train], training.task.kind.label_values(data.y)[task.train])
    values = {**training.labels, "y": training.task.kind.label_values(hidden.y)}
    model = training.model.eval()
    assert torch.equal(model(*task.inputs, **training.labels), model(*task.inputs, **values))


def test_a_run_with_labels_is_evaluated_and_predicts_for_another_graph(tmp_path, capsys):
    data = small_graph(90)
    graph, other = write_tables(data, tmp_path / "graph"), write_tables(small_graph(30, seed=3), tmp_path / "other")
    run = tmp_path / "run"
    quick = ["--splits", "1", "--set", "labels=true", "--set", "epochs=20", "--set", "hidden_channels=16"]
    assert app.run(["train", str(graph), "--model", "global-gnn", "--out", str(run), *quick]) == 0
    capsys.readouterr()
    assert app.run(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_recorded"]
    assert app.run(["predict", str(run), str(other), "-o", str(tmp_path / "out.csv")]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 31
    assert app.run(["explore", str(run), "-o", str(tmp_path / "page.html")]) == 0
