import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_folders import outcome
from small_graphs import small_graph

from phgcn.data import save_graph
from phgcn.train import Plan, Run, Settings, evaluate, find, predict
from phgcn.train.checkpoints import CheckpointSchedule
from phgcn.train.graph import scale_features
from phgcn.train.prepare import build_model, prepare, seeded, start

SETTINGS = Settings(hidden_channels=4, heads=2, epochs=3)


class Killed(BaseException):
    """Stands for the end of a process: nothing in the code handles it."""


@pytest.fixture
def given(tmp_path):
    """A graph file, and a plan for it."""
    save_graph(small_graph(), tmp_path / "small.npz")
    source, data = find(str(tmp_path / "small.npz"))
    return Plan(source, model="mlp", splits=2, settings=SETTINGS), data


FILES = (("split", "csv"), ("split", "safetensors"), ("last-split", "safetensors"))


def test_a_run_holds_what_is_promised(given, tmp_path):
    plan, data = given
    Run.create(tmp_path / "run", plan, data).train(data)
    names = {path.name for path in (tmp_path / "run").iterdir() if path.name != ".lock"}
    splits = {f"{name}-0{k}.{kind}" for k in range(2) for name, kind in FILES}
    assert names == {"run.json", "config.toml", "result.json"} | splits
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["graph"] == "small" and result["model"] == "mlp" and result["protocol"] == "paper"
    assert result["config"]["heads"] == 2 and "embedding_dim" not in result["config"]
    assert (
        result["seeds"] == [0, 1000]
        and len(result["splits"]) == 2
        and "torch" in result["versions"]
    )
    tests = [row["test"] for row in result["splits"]]
    assert result["test"]["mean"] == sum(tests) / 2
    assert result["epochs"] == 6 and result["seconds"] > 0
    head = (tmp_path / "run" / "split-00.csv").read_text().splitlines()
    assert head[0] == "epoch,train_loss,val_loss,val_metric,seconds" and len(head) == 4


def test_a_split_does_not_depend_on_how_many_there_are(given, tmp_path):
    plan, data = given
    Run.create(tmp_path / "two", plan, data).train(data)
    Run.create(tmp_path / "one", replace(plan, splits=1), data).train(data)
    two, one = outcome(tmp_path / "two"), outcome(tmp_path / "one")
    assert two[1]["split-00.safetensors"] == one[1]["split-00.safetensors"]


def test_repeats_train_each_split_anew(given, tmp_path):
    plan, data = given
    result = Run.create(tmp_path / "run", replace(plan, repeats=2), data).train(data)
    assert result["seeds"] == [0, 1, 1000, 1001]
    assert (tmp_path / "run" / "split-01-repeat-1.safetensors").is_file()
    assert result["splits"][0]["val_loss"] != result["splits"][1]["val_loss"]


def test_cut_off_at_any_file_a_run_continues_to_the_same_result(given, tmp_path, monkeypatch):
    plan, data = given
    Run.create(tmp_path / "whole", plan, data).train(data)
    wanted = outcome(tmp_path / "whole")
    monkeypatch.setattr(CheckpointSchedule, "due", lambda self: True)
    original, unlink = Path.replace, Path.unlink
    count = {"left": 0}

    def counted(function):
        def call(self, *arguments, **options):
            if count["left"] == 0:
                raise Killed
            count["left"] -= 1
            return function(self, *arguments, **options)

        return call

    cuts = 0
    for cut in range(200):
        folder = tmp_path / f"cut-{cut}"
        run = Run.create(folder, plan, data)
        count["left"] = cut
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", counted(original))
            patched.setattr(Path, "unlink", counted(unlink))
            try:
                run.train(data)
                break
            except Killed:
                cuts += 1
        Run.open(folder).train(data)
        assert outcome(folder) == wanted, f"cut at file operation {cut}"
        assert not list(folder.glob(".*.tmp")) and not list(folder.glob("*.state-*"))
    assert cuts >= 20  # 6 checkpoints, 2 splits, a result: each written, each tidied up


def test_one_process_at_a_time_trains_a_run(given, tmp_path):
    plan, data = given
    run = Run.create(tmp_path / "run", plan, data)
    with run.locked(), pytest.raises(ValueError, match="another process is training this run"):
        Run.open(tmp_path / "run").train(data)


def test_a_folder_with_something_in_it_is_refused(given, tmp_path):
    plan, data = given
    with pytest.raises(ValueError, match="holds files that are no run"):
        Run.create(tmp_path, plan, data)
    Run.create(tmp_path / "run", plan, data)
    with pytest.raises(ValueError, match="continue it with --resume"):
        Run.create(tmp_path / "run", plan, data)
    with pytest.raises(ValueError, match="a file; allowed: a folder"):
        Run.create(tmp_path / "small.npz", plan, data)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a JSON file"),
        ("[]", "not a run of this version"),
        ('{"format": 9}', "not a run of this version"),
        ('{"format": 1}', "not a run"),
    ],
)
def test_a_damaged_run_is_refused(content, said, tmp_path):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=said):
        Run.open(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no run here"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "gin"}, "model is 'gin' .*; allowed"),
        ({"protocol": "mine"}, "protocol is 'mine'; allowed"),
        ({"splits": 0}, "splits is 0; allowed: 1 to 1000"),
        ({"repeats": 2000}, "repeats is 2000; allowed"),
        ({"seed": -1}, "seed is -1; allowed"),
        ({"metric": "mae"}, "metric is 'mae'; allowed: accuracy, roc_auc, f1"),
        ({"task": "ranking"}, "task is 'ranking'; allowed: classification, regression, multilabel"),
        ({"device": "moon"}, "device is 'moon'; allowed: cpu"),
    ],
)
def test_a_wrong_plan_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        Plan("small", **change)


def test_a_changed_graph_is_noticed(given, tmp_path):
    plan, data = given
    run = Run.create(tmp_path / "run", plan, data)
    save_graph(small_graph(seed=1), tmp_path / "small.npz")
    with pytest.raises(
        ValueError,
        match=r"has changed since .* was begun: 270 edges, in both directions, before 324",
    ):
        run.data()


def test_evaluation_gives_what_was_recorded(given, tmp_path):
    plan, data = given
    run = Run.create(tmp_path / "run", replace(plan, model="phgcn"), data)
    with pytest.raises(ValueError, match="not finished"):
        evaluate(run, data)
    result = run.train(data)
    found = evaluate(Run.open(tmp_path / "run"), data)
    assert found["as_recorded"] and found["test"] == result["test"]
    tests = sum(int(task.test.numel()) for task in prepare(plan, data))
    assert sum(map(sum, found["confusion"])) == tests
    hits = sum(found["confusion"][k][k] for k in range(3))
    assert hits / tests == pytest.approx(found["test"]["mean"])


def test_predictions_follow_the_model_and_keep_ids(given, tmp_path):
    plan, data = given
    run = Run.create(tmp_path / "run", plan, data)
    run.train(data)
    new = small_graph(nodes=31, seed=5)
    new.node_id = [f"other-{number}" for number in range(31)]
    save_graph(new, tmp_path / "new.npz")
    found = predict(run, str(tmp_path / "new.npz"), tmp_path / "new.csv", split=1)
    lines = [line.split(",") for line in (tmp_path / "new.csv").read_text().splitlines()]
    assert lines[0] == ["id", "label", "probability_blue", "probability_green", "probability_red"]
    assert [line[0] for line in lines[1:]] == new.node_id
    with torch.no_grad():
        out = run.model(run.plan.trials()[1])(new.x, new.edge_index)
    assert [line[1] for line in lines[1:]] == [data.classes[k] for k in out.argmax(dim=1)]
    chances = torch.tensor([[float(cell) for cell in line[2:]] for line in lines[1:]])
    torch.testing.assert_close(chances, out.softmax(dim=1), atol=1e-5, rtol=1e-4)
    assert sum(found["predicted"].values()) == 31


def test_a_graph_with_other_features_is_refused(given, tmp_path):
    plan, data = given
    run = Run.create(tmp_path / "run", plan, data)
    run.train(data)
    save_graph(small_graph(features=4), tmp_path / "narrow.npz")
    with pytest.raises(ValueError, match="has 4 features; allowed: 5"):
        predict(run, str(tmp_path / "narrow.npz"), tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(ValueError, match="split is 2; allowed: 0 to 1"):
        predict(run, plan.source, tmp_path / "out.csv", split=2)


@pytest.mark.parametrize("sparse", [False, True])
def test_normalised_rows_sum_to_one(sparse):
    dense = torch.tensor([[1.0, 0.0, 3.0], [0.0, 0.0, 0.0], [-1.0, 1.0, 0.0]])
    x = scale_features(dense.to_sparse_csr() if sparse else dense, True)
    found = x.to_dense() if sparse else x
    torch.testing.assert_close(
        found, torch.tensor([[0.25, 0.0, 0.75], [0.0, 0.0, 0.0], [-0.5, 0.5, 0.0]])
    )


def test_a_variant_is_its_model_with_settings_fixed():
    plain, own = (
        build_model(Plan("small", model=name, settings=SETTINGS), 5, 3, 60)
        for name in ("phgcn", "phgcn-residual")
    )
    assert type(plain) is type(own) and not plain.residual and own.residual


@pytest.mark.parametrize("method", ["exact", "lattice", "lattice-fine", "separable"])
def test_the_method_that_is_named_is_used_on_small_graphs_too(method):
    task = prepare(Plan("small", settings=SETTINGS), small_graph())[0]
    said = []
    for name in (method, "exact"):
        plan = Plan("small", settings=replace(SETTINGS, method=name))
        with seeded(0, task):
            said.append(start(plan, task)._logits())
    assert torch.equal(*said) == (method == "exact")


def test_a_run_says_what_its_global_path_attends_to(given, tmp_path):
    plan, data = given
    settings = replace(
        SETTINGS,
        hidden_channels=8,
        global_layers=2,
        learn_decay=True,
        epochs=30,
        learning_rate=0.05,
    )
    run = Run.create(tmp_path / "run", replace(plan, model="global-gnn", settings=settings), data)
    result = run.train(data)
    layers = result["splits"][0]["global_attention"]
    assert [layer["layer"] for layer in layers] == [0, 1] and len(layers[0]["effective_nodes"]) == 2
    assert all(
        layer["gate"] > 0 and 1 <= count <= 60
        for layer in layers
        for count in layer["effective_nodes"]
    )
    assert result["global_path"]["nodes"] == 60
    rows = [
        line.split(",")
        for line in (tmp_path / "run" / "attention-split-00.csv").read_text().splitlines()
    ]
    assert rows[0] == [
        "epoch",
        "layer",
        "head",
        "decay",
        "spread",
        "effective_nodes",
        "self_share",
        "gate",
    ]
    assert [row[:3] for row in rows[1:]] == [
        [e, k, h] for e in ("1", "25") for k in ("0", "1") for h in ("0", "1")
    ]
    found = evaluate(Run.open(tmp_path / "run"), data)
    assert found["as_recorded"] and found["splits"][0]["global_attention"] == layers
    assert Run.create(tmp_path / "mlp", plan, data).train(data)["global_path"] is None


def test_a_model_whose_best_epoch_was_local_predicts_without_its_global_path(given, tmp_path):
    plan, data = given
    settings = replace(SETTINGS, hidden_channels=8, global_layers=1, epochs=6, local_epochs=6)
    run = Run.create(tmp_path / "run", replace(plan, model="global-gnn", settings=settings), data)
    result = run.train(data)
    assert not any(run.model(trial).use_global for trial in run.plan.trials())
    assert [row["local_epochs"] for row in result["splits"]] == [6, 6] and result["global_path"][
        "gate"
    ] == 0
    assert evaluate(run, data)["as_recorded"]
