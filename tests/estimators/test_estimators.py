import json
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
import torch
from commands import call
from small_graphs import small_graph, write_tables
from torch_geometric.data import Data

import phgcn
from phgcn.data import Columns, load_graph, splits
from phgcn.estimators import NodeClassifier, NodeRegressor
from phgcn.report.layers import view_layers
from phgcn.train.prediction import trial_model

QUICK = {"model": "global-gnn", "epochs": 30, "hidden_channels": 8, "heads": 2}
NAMES = np.array(["blue", "green", "red"])


@pytest.fixture(scope="module")
def data():
    return small_graph()


@pytest.fixture(scope="module")
def held_back(data):
    """Names of classes, some of them unknown to the classifier."""
    labels = NAMES[data.y.numpy()].astype(object)
    labels[::4] = None
    return labels


@pytest.fixture(scope="module")
def classifier(data, held_back):
    return phgcn.NodeClassifier(**QUICK).fit((data.x.numpy(), data.edge_index.numpy()), held_back)


def test_a_classifier_predicts_the_names_it_was_given(classifier, data, held_back):
    assert classifier.classes_.tolist() == ["blue", "green", "red"]
    assert classifier.n_features_in_ == 5
    predicted, shares = classifier.predict(), classifier.predict_proba()
    assert predicted.shape == (60,) and shares.shape == (60, 3)
    np.testing.assert_array_equal(classifier.classes_[shares.argmax(axis=1)], predicted)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    truth = NAMES[data.y.numpy()]
    unseen = np.array([label is None for label in held_back])
    assert (predicted[unseen] == truth[unseen]).mean() > 0.7
    honest = np.where(unseen, truth, None)
    assert classifier.score(y=honest) == pytest.approx((predicted[unseen] == truth[unseen]).mean())
    assert 0 < classifier.validation_score_ <= 1


def test_it_predicts_for_another_graph(classifier):
    new = small_graph(nodes=30, seed=3)
    predicted = classifier.predict((new.x, new.edge_index))
    assert (predicted == NAMES[new.y.numpy()]).mean() > 0.5
    truth = NAMES[new.y.numpy()]
    assert classifier.score((new.x, new.edge_index), truth) == (predicted == truth).mean()
    with pytest.raises(ValueError, match="4 features; allowed: 5"):
        classifier.predict((new.x[:, :4], new.edge_index))


def test_training_is_that_of_the_library_and_follows_the_seed(classifier, data, held_back):
    again = NodeClassifier(**QUICK).fit((data.x, data.edge_index), held_back)
    np.testing.assert_array_equal(again.predict_proba(), classifier.predict_proba())
    other = NodeClassifier(seed=1, **QUICK).fit((data.x, data.edge_index), held_back)
    assert not np.array_equal(other.predict_proba(), classifier.predict_proba())
    assert (classifier.run_.folder / "result.json").is_file()
    assert classifier.run_.plan.settings.epochs == 30


def test_embeddings_and_attention_are_those_of_the_layers(classifier, data):
    run = classifier.run_
    trained = trial_model(run, run.plan.trials()[0], classifier.graph_)
    view = view_layers(trained.model, trained.inputs)[-1]
    np.testing.assert_array_equal(classifier.embed(), view.positions.numpy())
    attended = classifier.attention(7, k=3)
    found = [target for target in attended if (target.path, target.head) == ("global", 1)]
    targets, weights = view.strongest(3, torch.tensor([7]))
    assert [target.target for target in found] == [str(number) for number in targets[0, 1].tolist()]
    assert [target.weight for target in found] == pytest.approx(weights[0, 1].tolist())
    assert classifier.attention("7", k=3) == classifier.attention(7, k=3)


def test_saved_and_loaded_it_is_the_same_and_a_run_for_the_commands(classifier, tmp_path, capsys):
    folder = classifier.save(tmp_path / "saved")
    loaded = NodeClassifier.load(folder)
    np.testing.assert_array_equal(loaded.predict_proba(), classifier.predict_proba())
    assert loaded.get_params() == classifier.get_params()
    assert loaded.classes_.tolist() == classifier.classes_.tolist()
    call("predict", folder, folder / "graph.npz", "-o", tmp_path / "out.csv")
    rows = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert rows == classifier.predict().tolist()
    capsys.readouterr()
    call("export", folder, "--embeddings --json -o", tmp_path / "out.npz")
    assert json.loads(capsys.readouterr().out)["files"] == [str(tmp_path / "out.npz")]
    with pytest.raises(ValueError, match="is there already; allowed"):
        classifier.save(folder)
    with pytest.raises(ValueError, match=r"holds a NodeClassifier; allowed: NodeClassifier\.load"):
        NodeRegressor.load(folder)
    with pytest.raises(ValueError, match=r"no estimator here \(estimator.json is missing\)"):
        NodeClassifier.load(tmp_path)


def test_parameters_are_those_of_scikit_learn(classifier, data):
    params = NodeClassifier(model="mlp", epochs=3).get_params()
    others = {"model": "mlp", "seed": 0, "device": "cpu", "directed": False, "epochs": 3}
    assert params == others
    assert NodeClassifier().set_params(epochs=7, seed=2).get_params()["epochs"] == 7
    assert repr(NodeClassifier(model="mlp", epochs=3)) == "NodeClassifier(model='mlp', epochs=3)"
    base = pytest.importorskip("sklearn.base")
    copy = base.clone(classifier)
    assert copy.get_params() == classifier.get_params() and not hasattr(copy, "run_")


def test_a_regressor_predicts_numbers(data):
    truth = (data.x[:, 0] + 2 * data.x[:, 1]).numpy()
    y = truth.copy()
    y[::4] = np.nan
    regressor = phgcn.NodeRegressor(model="mlp", epochs=100, dropout=0.0, learning_rate=0.02)
    regressor.fit((data.x, data.edge_index), y)
    held_back = np.where(np.arange(60) % 4 == 0, truth, np.nan)
    assert regressor.predict().shape == (60,) and regressor.score(y=held_back) > 0.7
    assert regressor.validation_score_ > 0.7


def test_several_labels_per_node(data):
    y = np.stack([data.x[:, 0] > 0, data.x[:, 1] > 0], axis=1).astype(float)
    classifier = NodeClassifier(model="mlp", epochs=60, dropout=0.0, learning_rate=0.02)
    classifier.fit((data.x, data.edge_index), y)
    assert classifier.predict().shape == (60, 2) and (classifier.predict() == (y > 0)).mean() > 0.9
    assert classifier.predict_proba().shape == (60, 2)


@pytest.mark.parametrize("form", ["data", "path"])
def test_graphs_with_labels_need_no_y(form, data, tmp_path):
    graph = data if form == "data" else write_tables(data, tmp_path / "small")
    classifier = NodeClassifier(model="mlp", epochs=20).fit(graph)
    assert classifier.classes_.tolist() == ["blue", "green", "red"]
    assert classifier.predict(graph).shape == (60,)


def test_classes_that_are_numbers_in_a_graph_are_predicted_as_numbers(data, tmp_path):
    plain = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    fitted = NodeClassifier(**QUICK).fit(plain)
    assert fitted.classes_.tolist() == [0, 1, 2]
    (split,) = splits(data.y, "final", 1)
    share = (fitted.predict() == data.y.numpy())[split.val].mean()
    assert share == fitted.score() == fitted.score(y=data.y)
    again = NodeClassifier.load(fitted.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict(), fitted.predict(), strict=True)


def test_frames_of_pandas_are_taken_with_their_ids(data):
    pd = pytest.importorskip("pandas")
    nodes = pd.DataFrame(data.x.numpy(), index=data.node_id, columns=[f"f{k}" for k in range(5)])
    first, second = ([f"n{end}" for end in ends] for ends in data.edge_index)
    edges = pd.DataFrame({"from": first, "to": second})
    # others have none, in any order
    y = pd.Series(NAMES[data.y.numpy()], index=data.node_id).sample(45, random_state=0)
    classifier = NodeClassifier(**QUICK, scaling="none").fit((nodes, edges), y)
    assert classifier.graph_.node_id == data.node_id
    assert torch.equal(classifier.graph_.edge_index, data.edge_index)
    torch.testing.assert_close(classifier.graph_.x, data.x)
    unseen = [node for node in data.node_id if node not in y.index]
    held_back = pd.Series(NAMES[data.y.numpy()], index=data.node_id)[unseen]
    predicted = pd.Series(classifier.predict(), index=data.node_id)[unseen]
    share = (predicted == held_back).mean()
    assert classifier.score(y=held_back) == pytest.approx(share) and share > 0.5
    assert {target.target for target in classifier.attention("n3")} <= set(data.node_id)
    message = r"^the frame of edges, row .*'nobody'.* the frame of nodes"
    with pytest.raises(ValueError, match=message):
        classifier.predict((nodes, edges.replace("n3", "nobody")))
    message = "y has the node 'nobody'; allowed: ids of nodes, such as 'n0'"
    with pytest.raises(ValueError, match=message):
        NodeClassifier().fit((nodes, edges), pd.Series(["a"], index=["nobody"]))


def test_the_labels_are_no_feature_of_a_frame(data):
    pd = pytest.importorskip("pandas")
    nodes = pd.DataFrame(data.x.numpy(), columns=[f"f{k}" for k in range(5)])
    nodes["churn"] = NAMES[data.y.numpy()]
    edges = data.edge_index.numpy()
    with pytest.warns(UserWarning, match="the column 'churn' is no feature: y has the labels"):
        classifier = NodeClassifier(**QUICK).fit((nodes, edges), nodes["churn"])
    without = NodeClassifier(**QUICK).fit((nodes.drop(columns="churn"), edges), nodes["churn"])
    assert classifier.n_features_in_ == 5
    np.testing.assert_array_equal(classifier.predict((nodes, edges)), without.predict())


@pytest.mark.parametrize("form", ["array", "data", "frame"])
def test_nodes_that_were_trained_on_do_not_count_in_a_score(form, data):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.x.numpy(), columns=[f"f{k}" for k in range(5)])
    forms = {"array": (data.x, data.edge_index), "data": data, "frame": (frame, data.edge_index)}
    graph, labels = forms[form], data.y.numpy()
    classifier = NodeClassifier(**QUICK).fit(graph, labels)
    (split,) = splits(data.y, "final", 1)
    right = classifier.predict() == labels
    assert right[split.val].mean() != right.mean()
    assert classifier.score(graph, labels) == classifier.score() == right[split.val].mean()
    other = (
        (forms["frame"][0][::-1], data.edge_index) if form == "frame" else (data.x[:30], [[], []])
    )
    count = len(other[0])
    right = classifier.predict(other) == labels[:count]
    assert classifier.score(other, labels[:count]) == right.mean(), "of others all count"


def test_every_option_of_columns_is_taken(data):
    pd = pytest.importorskip("pandas")
    taken = {entry.name: entry.default for entry in fields(Columns)}
    assert taken.items() <= NodeClassifier(**taken).get_params().items()
    nodes = pd.DataFrame(data.x.numpy(), columns=["size", "lat", "lon", "f3", "f4"])
    edges = pd.DataFrame(data.edge_index.numpy().T, columns=["from", "to"])
    edges.loc[len(edges)] = 3, 99
    quick = QUICK | {"epochs": 2, "labels": True, "scaling": "none"}
    classifier = NodeClassifier(coordinates=["lat", "lon"], unknown_ids="drop", **quick).fit(
        (nodes, edges), data.y
    )
    assert torch.equal(classifier.graph_.edge_index, data.edge_index)
    graph = data.x, data.edge_index
    numbered = NodeClassifier(coordinates=[1, 2], **quick).fit(graph, data.y)
    np.testing.assert_array_equal(classifier.predict_proba(), numbered.predict_proba())
    plain = NodeClassifier(**quick).fit(graph, data.y)
    assert (plain.predict_proba() != numbered.predict_proba()).any()


def test_scores_stand_above_simple_answers(classifier, held_back):
    result = classifier.run_.result()
    known = held_back[[label is not None for label in held_back]]
    assert set(result["yardsticks"]) == {"commonest", "linear"}
    share = max(Counter(known).values()) / len(known)
    assert result["yardsticks"]["commonest"]["mean"] == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda d: NodeClassifier(colour=3), "parameter is 'colour'; allowed: model, seed"),
        (lambda d: NodeClassifier(drop_out=0), r"'drop_out' \(did you mean 'dropout'\?\); allowed"),
        (lambda d: NodeClassifier(heads=0).fit(d), "settings: heads is 0; allowed"),
        (lambda d: NodeClassifier(model="rnn").fit(d), "model is 'rnn'; allowed: phgcn"),
        (lambda d: NodeClassifier().fit(d, ["a", "b"] + [None] * 58), "2 labelled nodes, which"),
        (lambda d: NodeClassifier().predict(), "is not fitted; allowed: after fit or load"),
        (lambda d: NodeClassifier().fit(d, [1, 2]), "y has 2 entries; allowed: 60, one per node"),
        (lambda d: NodeClassifier().fit(d, np.linspace(0, 1, 60)), "y is numbers with decimals"),
        (lambda d: NodeClassifier().fit(d, np.zeros(60, int)), "all labels are the same class"),
        (lambda d: NodeRegressor().fit(d), "allowed for NodeRegressor: regression"),
        (lambda d: NodeRegressor().fit(d, ["a"] * 60), "y is not all numbers; allowed"),
        (lambda d: NodeClassifier().fit(3), "graph is a int; allowed: a name"),
        (lambda d: NodeClassifier().fit((d.x, torch.tensor([[0], [99]])), d.y), "99"),
    ],
)
def test_mistakes_are_said_in_one_line(make, said, data):
    with pytest.raises(ValueError, match=said) as raised:
        make(data)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("form", ["path", "data"])
def test_a_table_with_gaps_and_categories_survives_saving(form, tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    cities = ("Rome", "Oslo")
    rows = [f"n{k},{k * 1.5},{k if k % 5 else ''},{cities[k % 2]}" for k in range(30)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,size,city", *rows]))
    edges = [f"n{k},n{(k + 1) % 30}" for k in range(30)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]))
    graph = str(folder) if form == "path" else load_graph(folder)
    regressor = NodeRegressor(model="mlp", epochs=3).fit(graph)
    regressor.save(tmp_path / "kept")
    again = NodeRegressor.load(tmp_path / "kept")
    assert again.predict().tolist() == regressor.predict().tolist()
    assert len(set(regressor.predict().tolist())) > 10
