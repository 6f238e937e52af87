import csv

import numpy as np
import pytest
import torch
from run_folders import new_run
from small_graphs import small_graph

from phgcn.nn.top_attention import top_attention
from phgcn.report.export import Export, export


@pytest.fixture(scope="module")
def data():
    return small_graph(nodes=30)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """Finished runs of three models, trained once."""
    folder, blocks = tmp_path_factory.mktemp("runs"), {"local": "gat", "global_layers": 1}
    made = {}
    for model, settings in (("phgcn", {}), ("global-gnn", blocks), ("gcn", {})):
        made[model] = new_run(folder / model, data, model, settings, splits=1)
        made[model].train(data)
    return made


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("model", "layers"), [("phgcn", ["layer-0", "layer-1"]), ("global-gnn", ["global-0"])]
)
def test_positions_of_every_node_layer_and_head_are_written(model, layers, runs, data, tmp_path):
    made = Export(runs[model], data)
    assert export(made, ["embeddings"], tmp_path / "out.csv") == [tmp_path / "out.csv"]
    rows = read(tmp_path / "out.csv")
    assert len(rows) == 30 * 2 * len(layers)
    assert list(rows[0]) == ["id", "layer", "head", "p0", "p1", "p2", "p3"]
    view = next(view for view in made.views if view.name == layers[-1])
    own = ["n7", layers[-1], "1"]
    (row,) = [row for row in rows if [row["id"], row["layer"], row["head"]] == own]
    position = [float(row[f"p{axis}"]) for axis in range(4)]
    assert position == pytest.approx(view.positions[7, 1].tolist(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("model", "layer"), [("phgcn", "layer-1"), ("global-gnn", "global-0")])
def test_the_strongest_targets_are_written_with_their_weights(model, layer, runs, data, tmp_path):
    made = Export(runs[model], data, top=4, nodes=["n7", "n2"])
    export(made, ["attention"], tmp_path / "out.csv")
    rows = [row for row in read(tmp_path / "out.csv") if row["path"] == "global"]
    rows = [row for row in rows if row["layer"] == layer]
    assert len(rows) == 2 * 2 * 4 and {row["node"] for row in rows} == {"n7", "n2"}
    view = next(view for view in made.views if view.name == layer)
    targets, weights = top_attention(view.positions, view.decay, 4, torch.tensor([7]))
    own = [row for row in rows if row["node"] == "n7" and row["head"] == "1"]
    assert [row["target"] for row in own] == [f"n{target}" for target in targets[0, 1].tolist()]
    assert [float(row["weight"]) for row in own] == pytest.approx(weights[0, 1].tolist(), rel=1e-4)


@pytest.mark.parametrize(("model", "layer"), [("phgcn", "layer-0"), ("global-gnn", "local-1")])
def test_local_attention_is_written_by_edge_and_sums_to_one(model, layer, runs, data, tmp_path):
    export(Export(runs[model], data), ["attention"], tmp_path / "out.csv")
    rows = [row for row in read(tmp_path / "out.csv") if row["path"] == "local"]
    rows = [row for row in rows if row["layer"] == layer]
    edges = {(f"n{a}", f"n{b}") for a, b in data.edge_index.T.tolist()}
    edges |= {(f"n{k}", f"n{k}") for k in range(30)}
    assert {(row["target"], row["node"]) for row in rows} == edges
    for head in "01":
        own = [float(row["weight"]) for row in rows if row["node"] == "n7" and row["head"] == head]
        assert sum(own) == pytest.approx(1, abs=1e-4) and own == sorted(own, reverse=True)


def test_predictions_are_those_of_the_model(runs, data, tmp_path):
    export(Export(runs["gcn"], data), ["predictions"], tmp_path / "out.csv")
    rows = read(tmp_path / "out.csv")
    assert [row["id"] for row in rows] == data.node_id
    assert set(rows[0]) >= {"label", "probability_blue"}
    for row in rows:
        shares = {name: float(row[f"probability_{name}"]) for name in ("blue", "green", "red")}
        assert row["label"] == max(shares, key=shares.get)
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)


def test_an_npz_holds_all_parts(runs, data, tmp_path):
    made = Export(runs["global-gnn"], data, top=3)
    (file,) = export(made, ["embeddings", "attention", "predictions"], tmp_path / "out.npz")
    with np.load(file, allow_pickle=False) as arrays:
        shapes = {name: arrays[name].shape for name in arrays.files}
        positions = made.views[-1].positions.numpy()
        np.testing.assert_array_equal(arrays["global-0.positions"], positions)
        np.testing.assert_array_equal(arrays["probabilities"].argmax(axis=1), arrays["predicted"])
        assert arrays["ids"].tolist() == data.node_id
        assert arrays["classes"].tolist() == ["blue", "green", "red"]
    assert shapes["global-0.targets"] == shapes["global-0.target_weights"] == (30, 2, 3)
    assert shapes["local-0.edges"][0] == 2
    assert shapes["local-0.edge_weights"] == (shapes["local-0.edges"][1], 2)


def test_several_tables_have_a_file_each_parquet_too(runs, data, tmp_path):
    from pyarrow import parquet

    parts = ["embeddings", "predictions"]
    files = export(Export(runs["phgcn"], data), parts, tmp_path / "out.parquet")
    assert [file.name for file in files] == ["out-embeddings.parquet", "out-predictions.parquet"]
    table = parquet.read_table(files[0]).to_pydict()
    assert len(table["id"]) == 30 * 2 * 2
    assert isinstance(table["p0"][0], float)
    assert table["head"][:2] == [0, 1]


ALL_PARTS = "embeddings, attention, predictions"


@pytest.mark.parametrize(
    ("model", "options", "parts", "name", "said"),
    [
        ("gcn", {}, "embeddings", "out.csv", "gcn has no embedding; allowed: --attention"),
        ("gcn", {}, "attention", "out.csv", "gcn has no attention; allowed: --embeddings"),
        ("gcn", {}, "attention", "out.npz", "gcn has no attention; allowed: --embeddings"),
        ("phgcn", {}, "embeddings", "out.xls", "'.xls' are not written; allowed: .csv, .parquet"),
        ("phgcn", {}, "", "out.csv", rf"parts is \[\]; allowed: one or more of {ALL_PARTS}"),
        ("phgcn", {"nodes": ["x"]}, "attention", "out.csv", "node is 'x'; allowed: the id of a"),
        ("phgcn", {"top": 0}, "attention", "out.csv", "top is 0; allowed: 1 or more"),
    ],
)
def test_wrong_wishes_are_refused(model, options, parts, name, said, runs, data, tmp_path):
    with pytest.raises(ValueError, match=said):
        export(Export(runs[model], data, **options), parts.split(), tmp_path / name)
    assert not list(tmp_path.iterdir())
