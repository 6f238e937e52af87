"""GlobalGNN with labels as values, and its training."""

import csv
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


def test_the_decay_is_that_of_global_blocks_and_of_attention_to_labels():
    decays = {
        (4.0, 1.0): network(global_layers=1),
        (30.0, 30.0): network(global_layers=1, decay=30.0),
    }
    for (labels, blocks), model in decays.items():
        found = [*model.label_path.attentions, *model.global_blocks]
        starts = [float(layer.decay()[0].detach()) for layer in found]
        assert starts == [pytest.approx(labels), pytest.approx(blocks)]
    fixed = network(decay=30.0, learn_decay=False)
    assert (
        fixed.label_path.attentions[0].decay() == 30.0
        and fixed.label_path.attentions[0].decay.log is None
    )


def test_coordinates_are_columns_that_four_more_heads_attend_by():
    data, model = small_graph(), network(coordinates=[4, 1])
    labelled = torch.arange(60) % 3 != 0
    own = {"y": data.y, "labelled": labelled}
    positions = model.label_path.attentions[1].positions(data.x[:, [4, 1]])
    torch.testing.assert_close(positions[:, 1], 3 * data.x[:, [4, 1]])
    out = model(data.x, data.edge_index, **own)
    sparse = model(data.x.to_sparse_csr(), data.edge_index, **own)
    torch.testing.assert_close(sparse, out)
    out.sum().backward()
    assert model.label_path.attentions[1].lin_position.weight.grad.abs().sum() > 0
    undecayed = list(model.undecayed_parameters())
    assert any(parameter is model.label_path.shares for parameter in undecayed)
    with pytest.raises(ValueError, match="coordinates has 5; allowed: columns from 0 to 4"):
        network(coordinates=[5])
    assert network(coordinates=[0]).label_path.attention_shares() == [0.5, 0.5]
    model.remember(60)
    part = {"n_id": torch.arange(60), "keys": labelled, **own}
    known = model(data.x, data.edge_index, **part)
    torch.testing.assert_close(known, model(data.x, data.edge_index, **own, keys=labelled))


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


def test_parts_attend_to_the_labels_of_the_whole_graph():
    torch.manual_seed(0)
    data, empty = small_graph(), torch.empty(2, 0, dtype=torch.int64)
    model = GlobalGNN(5, 16, 3, local="none", norm=None, labels=True).eval()
    labelled, parts = torch.arange(60) % 4 != 0, torch.arange(60).chunk(5)
    model.remember(60)

    def of_part(part, y=data.y, **more):
        own = {"y": y[part], "labelled": labelled[part], "n_id": part}
        return model(data.x[part], empty, **own, **more)

    for part in parts:
        of_part(part)
    keys = labelled & (torch.arange(60) % 3 == 0)
    alone = labelled & ~torch.isin(torch.arange(60), parts[0]) | keys
    whole = model(data.x, empty, y=data.y, labelled=labelled, keys=alone)
    part = of_part(parts[0], keys=keys[parts[0]])
    queries = ~keys[parts[0]]
    torch.testing.assert_close(part[queries], whole[parts[0]][queries])
    assert not torch.allclose(
        part, model(data.x[parts[0]], empty, y=data.y[:12], labelled=labelled[:12], keys=keys[:12])
    )
    # without keys, no output depends on the own label, nor on one that is not known
    before = of_part(parts[0])
    for node in range(12):
        y = data.y.clone()
        y[node] = (y[node] + 1) % 3
        changed = (of_part(parts[0], y) != before).any(dim=1)
        assert not bool(changed[node]) and bool(changed.any()) == bool(labelled[node])


def test_a_network_with_labels_learns_in_parts():
    torch.manual_seed(0)
    x, labelled, empty = torch.randn(200, 5), torch.arange(200) < 160, torch.empty(2, 0).long()
    y = (x[:, 0] > 0).long()
    model = GlobalGNN(5, 16, 2, local="none", norm=None, labels=True, dropout=0.0)
    model.remember(200)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        part = torch.randperm(200)[:50]
        keys = model.draw_keys(labelled[part])
        out = model(x[part], empty, y=y[part], labelled=labelled[part], keys=keys, n_id=part)
        scored = labelled[part] & ~keys
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(out[scored], y[part][scored]).backward()
        optimiser.step()
    out = model.eval()(x, empty, y=y, labelled=labelled)
    assert float((out.argmax(dim=1) == y)[~labelled].float().mean()) > 0.85


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
    """With positions that cannot move, training nodes, evaluated in halves, do not know their
    labels."""
    torch.manual_seed(1)
    data = small_graph(300, classes=2)
    data.y = torch.randint(2, (300,))
    model = GlobalGNN(5, 16, 2, local="none", labels=True).requires_grad_(False)
    for parameter in (
        model.label_path.outputs.scale,
        model.label_path.attentions[0].head_shares,
        model.label_path.attentions[0].decay.log,
    ):
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
    right = (
        model.eval()(data.x, data.edge_index, y=data.y, labelled=labelled).argmax(dim=1) == data.y
    )
    assert abs(float(right[labelled].float().mean()) - 0.5) < 0.1
    assert abs(float(right[~labelled].float().mean()) - 0.5) < 0.2


def test_labels_of_validation_and_test_nodes_change_no_output():
    data = small_graph(90)
    training, task = train(data, epochs=3)
    hidden = data.clone()
    held = torch.cat([task.val, task.test])
    hidden.y[held] = (hidden.y[held] + 1) % 3
    assert torch.equal(
        training.labels["y"][task.train], training.task.kind.label_values(data.y)[task.train]
    )
    values = {**training.labels, "y": training.task.kind.label_values(hidden.y)}
    model = training.model.eval()
    assert torch.equal(model(*task.inputs, **training.labels), model(*task.inputs, **values))


def test_a_run_with_labels_is_evaluated_and_predicts_for_another_graph(tmp_path, capsys):
    data = small_graph(90)
    graph = write_tables(data, tmp_path / "graph")
    other = write_tables(small_graph(30, seed=3), tmp_path / "other")
    run = tmp_path / "run"
    quick = [
        "--splits",
        "1",
        "--set",
        "labels=true",
        "--set",
        "epochs=20",
        "--set",
        "hidden_channels=16",
    ]
    assert app.run(["train", str(graph), "--model", "global-gnn", "--out", str(run), *quick]) == 0
    capsys.readouterr()
    assert app.run(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_recorded"]
    assert app.run(["predict", str(run), str(other), "-o", str(tmp_path / "out.csv")]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 31
    assert app.run(["explore", str(run), "-o", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    assert app.run(["export", str(run), "--attention", "-o", str(tmp_path / "attention.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "attention.csv").open()))
    assert any(row["layer"].startswith("labels") for row in rows)


def test_at_the_input_labels_are_attended_to_by_the_input_features():
    data, model = small_graph(), network(global_at="input")
    labelled = torch.arange(60) % 3 != 0
    before = model(data.x, data.edge_index, y=data.y, labelled=labelled)
    local = before - model.label_path.outputs(
        model.label_path.attentions[0](data.x, data.y, labelled)
    )
    model.set_global(False)
    torch.testing.assert_close(model(data.x, data.edge_index), local)
