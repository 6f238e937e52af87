"""Labels of training nodes as inputs of a model: drawn keys, kept keys, the rows that decide."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from phgcn.data import load_graph
from phgcn.nn.graph_input import record_calls
from phgcn.train import Plan, Run, find, resolve
from phgcn.train.labels import deciding_keys, layer_positions
from phgcn.train.loop import Training
from phgcn.train.prediction import trial_model
from phgcn.train.prepare import prepare, seeded, start

SMALL = ["epochs=4", "warmup=2", "hidden_channels=8", "heads=2", "embedding_dim=2", "method=exact"]


def write_table(path, rows=60, task="regression", seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    y = x[:, 0] * x[:, 1] if task == "regression" else (x[:, 0] > 0).long()
    label = [f"{v:.4f}" if task == "regression" else f"c{v}" for v in y.tolist()]
    lines = ["a,b,c,kind,label"]
    for number, (row, text) in enumerate(zip(x.tolist(), label, strict=True)):
        lines.append(",".join([*(f"{v:.4f}" for v in row), "xy"[number % 2], text]))
    path.write_text("\n".join(lines) + "\n")
    return path


def plan_of(source, data, changes=(), **more):
    settings = resolve("table", changes=[*SMALL, *changes]).settings
    metric = "rmse" if data.task == "regression" else "accuracy"
    return Plan(source, "table", splits=1, metric=metric, task=data.task, settings=settings, **more)


@pytest.fixture
def trained(tmp_path):
    source, data = find(str(write_table(tmp_path / "rows.csv")))
    run = Run.create(tmp_path / "run", plan_of(source, data), data)
    run.train(data)
    return run, data


def test_a_table_is_a_graph_without_edges_whose_ids_are_row_numbers(tmp_path):
    data = load_graph(write_table(tmp_path / "rows.csv"))
    assert data.num_nodes == 60 and data.edge_index.shape == (2, 0)
    assert data.node_id[:3] == ["1", "2", "3"] and data.feature_names == [
        "a",
        "b",
        "c",
        "kind=x",
        "kind=y",
    ]


def test_a_step_has_keys_and_the_loss_is_of_the_others(trained):
    run, data = trained
    task = prepare(run.plan, data)[0]
    with seeded(0, task):
        training = start(run.plan, task)
        losses = [float(training._step()) for _ in range(2)]
        assert all(map(torch.isfinite, map(torch.tensor, losses)))
        keys = training.model.draw_keys(training.labels["labelled"])
    assert 0 < int(keys.sum()) < len(task.train) and not bool(keys[task.val].any())
    kept = training._loss(torch.zeros(60, 1), task.train, task.y[task.train], keys)
    queries = task.train[~keys[task.train]]
    torch.testing.assert_close(kept, task.kind.loss(torch.zeros(len(queries), 1), task.y[queries]))


def test_labels_of_validation_and_test_nodes_change_no_weight(trained, tmp_path):
    run, data = trained
    task = prepare(run.plan, data)[0]
    outside = torch.cat([task.val, task.test])
    other = Data(**data.to_dict())
    other.y = data.y.clone()
    other.y[outside] = 100.0
    found = []
    for graph in (data, other):
        task = prepare(run.plan, graph)[0]
        with seeded(0, task):
            training: Training = start(run.plan, task)
            training.epoch()
            found.append(
                [p.detach().clone() for p in training.model.parameters()] + [training._logits()]
            )
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_outputs_of_a_training_are_those_of_its_model_for_rows_that_are_not_trained_on(trained):
    run, data = trained
    task = prepare(run.plan, data)[0]
    with seeded(0, task):
        training = start(run.plan, task)
        training.epoch()
    found = training._logits()
    whole = training.model(task.x, **training.labels)
    for nodes in (task.val, task.test):
        torch.testing.assert_close(found[nodes], whole[nodes])
    assert not torch.allclose(found[task.train], whole[task.train])


@pytest.mark.parametrize("parts", ["network", "both"])
def test_sparse_tables_are_trained_on_as_many_rows_as_dense_ones(parts, tmp_path):
    source, data = find(str(write_table(tmp_path / "rows.csv")))
    sparse = Data(**data.to_dict())
    sparse.x = data.x.to_sparse_csr()
    plan = plan_of(source, data, [f"parts={parts}", "batch_rows=10", "scaling=none"])
    losses = []
    for graph in (data, sparse):
        task = prepare(plan, graph)[0]
        assert (task.x.layout == torch.strided) == (graph is data)
        with seeded(0, task):
            training, rows = start(plan, task), []
            training.model.register_forward_pre_hook(
                lambda _, given, r=rows: r.append(len(given[0]))
            )
            losses.append([training.epoch()[:3] for _ in range(2)])
        assert rows[0] <= 10 < rows[1], "a step, then an evaluation"
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]))


def test_own_rows_attend_to_training_rows_and_other_rows_to_kept_keys(trained, tmp_path):
    run, data = trained
    trial = run.plan.trials()[0]
    task, kept = prepare(run.plan, data)[0], run.kept_keys(trial)
    assert torch.equal(kept.nodes, task.train) and kept.names() == [
        data.node_id[n] for n in task.train.tolist()
    ]
    own = trial_model(run, trial, data).logits()
    unlabelled = run.read(str(tmp_path / "rows.csv"), labels=False)
    # the kept labels, not those of the file
    assert torch.equal(trial_model(run, trial, unlabelled).logits(), own)
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    chosen = task.test[:5].tolist()
    (tmp_path / "new.csv").write_text("\n".join([rows[0], *(rows[1 + n] for n in chosen)]) + "\n")
    other = run.read(str(tmp_path / "new.csv"), labels=False)
    new = trial_model(run, trial, other).logits()
    torch.testing.assert_close(new, own[chosen], rtol=1e-4, atol=1e-5)


def test_deciding_keys_have_the_weights_of_attention(trained):
    run, data = trained
    trial = run.plan.trials()[0]
    _, model, inputs, values = trial_model(run, trial, data)
    kept, (part,) = run.kept_keys(trial), layer_positions(model, inputs, values)
    test = prepare(run.plan, data)[0].test
    rows = [part._replace(positions=part.positions[test])]
    everything = deciding_keys(rows, torch.full((len(test),), -1), len(kept.nodes))
    mean = (everything.weights.unsqueeze(2) * kept.values[everything.keys]).sum(dim=1)
    features = record_calls([part.layer], model, inputs, values)[part.layer][0][0]
    want = part.layer.eval()(features[test])
    torch.testing.assert_close(mean, want.detach(), rtol=1e-4, atol=1e-5)
    own = torch.zeros(len(test), dtype=torch.int64)
    without = deciding_keys(rows, own, 3)
    assert not bool((without.keys == 0).any())


def test_a_killed_training_has_the_bits_of_an_uninterrupted_one(tmp_path):
    source, data = find(str(write_table(tmp_path / "rows.csv", task="classification")))
    plan = plan_of(source, data)
    whole = Run.create(tmp_path / "whole", plan, data)
    whole.train(data)
    begun = Run.create(
        tmp_path / "begun",
        replace(plan, settings=replace(plan.settings, schedule="constant")),
        data,
    )

    def stop(progress):
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun.train(data, stop)
    again = Run.open(begun.folder)
    result = again.train(again.data())
    other = Run.create(tmp_path / "other", begun.plan, data)
    assert result["splits"][0]["val_loss"] == other.train(data)["splits"][0]["val_loss"]


def test_a_step_of_a_table_computes_training_rows_and_a_batch_some_of_them(trained):
    run, data = trained
    for size, fewest, most in ((0, 36, 36), (10, 5, 10)):
        plan = replace(run.plan, settings=replace(run.plan.settings, batch_rows=size))
        task = prepare(plan, data)[0]
        with seeded(0, task):
            training = start(plan, task)
            seen = []
            training.model.register_forward_pre_hook(
                lambda model, arguments, seen=seen: seen.append(arguments[0])
            )
            training._step()
        (rows,) = seen
        assert fewest <= len(rows) <= most == (size or len(task.train))
        assert bool((rows[:, None] == task.x[task.train][None]).all(dim=2).any(dim=1).all())
